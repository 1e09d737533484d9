package live

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

// empty is a log without records, which may be out of reach.
type empty struct{ away bool }

func (e *empty) Partitions(context.Context, string) ([]int, error) {
	if e.away {
		return nil, errors.New("no broker answers")
	}
	return []int{0}, nil
}

func (e *empty) Follow(ctx context.Context, _ string, _ int, _ int64, _ func(int64, []byte), ended func()) (int64, error) {
	for ctx.Err() == nil {
		ended()
		pause(ctx, 10*time.Millisecond)
	}
	return 0, nil
}

func TestAReadingThatFailsLeavesWhatTheOldPictureWasTold(t *testing.T) {
	db := testenv.ClickHouse(t)
	if err := clickhouse.Migrate(t.Context(), db.Conn, clickhouse.Options{Database: db.Database}); err != nil {
		t.Fatal(err)
	}
	log := &empty{}
	f, err := New(DefaultConfig(), Deps{Conn: db.Conn, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	old, err := f.open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer old.stop()
	offset := int64(0)
	tell := func(s *session, domain string) bool {
		t.Helper()
		_, value, err := event.Encode(&event.Membership{Cluster: "c1", Node: "n", Source: "s", ObservedAtMs: 1_700_000_000_000,
			Levels: []*event.Level{{Level: event.LevelDomain, Value: domain}}})
		if err != nil {
			t.Fatal(err)
		}
		offset++
		s.record(partition{event.TopicMembership, 0}, offset, value)
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.moved[0] == offset
	}
	if !tell(old, "a") {
		t.Fatal("the first word of a node that no topology has is news")
	}
	log.away = true
	if _, err := f.open(t.Context(), old); err == nil {
		t.Fatal("a picture was read without its topics")
	}
	if !tell(old, "b") {
		t.Error("after a reading that failed, a move went unseen")
	}
	log.away = false
	next, err := f.open(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	defer next.stop()
	if tell(next, "b") || !tell(next, "c") {
		t.Error("the picture that took over must know the old word from a new one")
	}
}

// TestAfterARestartAPlanKnowsWhomToAskForRoom: the topics say nothing more of the jobs, and what was told of them before
// is in the tables.
func TestAfterARestartAPlanKnowsWhomToAskForRoom(t *testing.T) {
	db := testenv.ClickHouse(t)
	if err := clickhouse.Migrate(t.Context(), db.Conn, clickhouse.Options{Database: db.Database}); err != nil {
		t.Fatal(err)
	}
	// Three domains of two nodes, each held by one job that started at noon. It is one o'clock.
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, q := range []string{
		`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, generation, version)
			SELECT 'c1', concat('n', toString(number)), 0, '2200-01-01', concat('d', toString(intDiv(number, 2))), 1, 1 FROM numbers(6)`,
		`INSERT INTO node_facts (cluster, node, source, valid_from, valid_to, gpus_present, revision, version)
			SELECT 'c1', concat('n', toString(number)), 'slurm', 0, '2200-01-01', 4, 1, 1 FROM numbers(6)`,
		`INSERT INTO placements (cluster, job_id, attempt, valid_from, valid_to, nodes, node_gpus, version)
			SELECT 'c1', ['low', 'kept', 'silent'][number + 1], 'r0', '2026-11-30 12:00:00', '2200-01-01',
				[concat('n', toString(2 * number)), concat('n', toString(2 * number + 1))], [4, 4], 1 FROM numbers(3)`,
		`INSERT INTO attempts (cluster, job_id, attempt, state, start, priority, preemptible, preemptible_from, checkpoint, checkpoint_every_ms, restart_ms, version) VALUES
			('c1', 'low', 'r0', 'running', '2026-11-30 12:00:00', -2, true, '2026-11-30 12:30:00', '2026-11-30 12:40:00', NULL, 600000, 1),
			('c1', 'kept', 'r0', 'running', '2026-11-30 12:00:00', 3, false, NULL, NULL, 1800000, 60000, 1),
			('c1', 'silent', 'r0', 'running', '2026-11-30 12:00:00', NULL, NULL, NULL, NULL, NULL, NULL, 1)`,
	} {
		if err := db.Conn.Exec(t.Context(), q); err != nil {
			t.Fatalf("%v in:\n%s", err, q)
		}
	}
	f, err := New(DefaultConfig(), Deps{Conn: db.Conn, Log: &empty{}, Now: func() time.Time { return noon.Add(time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	type price struct {
		Priority                  *int64
		Preemptible               bool
		PreemptibleFrom           int64
		Restart, Saved, SaveEvery int64
	}
	for job, want := range map[string]price{
		"low":    {ptr(int64(-2)), true, noon.Unix() + 1800, 600, noon.Unix() + 2400, 0},
		"kept":   {ptr(int64(3)), false, 0, 60, noon.Unix(), 1800}, // saved since its start, as far as told
		"silent": {Restart: -1},
	} {
		h := s.clusters["c1"].state.Holding(runKey(job, ""))
		if h == nil {
			t.Fatalf("job %s holds nothing", job)
		}
		if got := (price{h.Priority, h.Preemptible, h.PreemptibleFrom, h.Restart, h.Saved, h.SaveEvery}); !reflect.DeepEqual(got, want) {
			t.Errorf("job %s: got %+v, want %+v", job, got, want)
		}
	}
	snap := (*s.views.Load())["c1"].Snapshot
	view := snap.View()
	plan := advise.PlanRoom(snap, &view, 2, ptr(int64(5)))
	if plan == nil || len(plan.Moves) != 1 || plan.Moves[0].Job != "low" || plan.Moves[0].To != "" || *plan.Moves[0].Priority != -2 ||
		!plan.CostKnown || plan.CostGPUHours != 4 {
		t.Errorf("got %+v, want the one job that is known to be low and preemptible to end, at 8 GPUs times 20 and 10 minutes", plan)
	}
	if plan := advise.PlanRoom(snap, &view, 2, ptr(int64(-3))); plan != nil {
		t.Errorf("got %+v for an asker whom nobody has to make room for", plan)
	}
}

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

// TestThePastIsReadAsItWas: two nodes change their domain at noon, one breaks, a job ends and another begins.
func TestThePastIsReadAsItWas(t *testing.T) {
	db := testenv.ClickHouse(t)
	if err := clickhouse.Migrate(t.Context(), db.Conn, clickhouse.Options{Database: db.Database}); err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, q := range []string{
		`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, generation, version) VALUES
			('c1', 'n0', '2026-11-30 08:00:00', '2026-11-30 12:00:00', 'old', 1, 1), ('c1', 'n0', '2026-11-30 12:00:00', '2200-01-01', 'new', 2, 1),
			('c1', 'n1', '2026-11-30 08:00:00', '2026-11-30 12:00:00', 'old', 1, 1), ('c1', 'n1', '2026-11-30 12:00:00', '2200-01-01', 'new', 2, 1)`,
		`INSERT INTO node_facts (cluster, node, source, valid_from, valid_to, gpus_present, gpus_healthy, revision, version) VALUES
			('c1', 'n0', 'slurm', '2026-11-30 08:00:00', '2200-01-01', 4, 4, 1, 1), ('c1', 'n1', 'slurm', '2026-11-30 08:00:00', '2026-11-30 12:00:00', 4, 4, 1, 1),
			('c1', 'n1', 'slurm', '2026-11-30 12:00:00', '2200-01-01', 4, 3, 2, 1)`,
		`INSERT INTO node_events (kafka_partition, kafka_offset, loaded_at, cluster, node, source, reservation, gpu_model, observed_at, revision) VALUES
			(0, 1, '2026-11-30 10:30:00', 'c1', 'n1', 'slurm', 'team-a', 'GB200', '2026-11-30 10:30:00', 1), (0, 2, '2026-11-30 12:30:00', 'c1', 'n1', 'slurm', '', 'GB300', '2026-11-30 12:30:00', 2)`,
		`INSERT INTO placements (cluster, job_id, attempt, valid_from, valid_to, nodes, node_gpus, version) VALUES
			('c1', 'early', 'r0', '2026-11-30 10:00:00', '2026-11-30 12:00:00', ['n0'], [4], 1), ('c1', 'late', 'r0', '2026-11-30 12:00:00', '2200-01-01', ['n0'], [2], 1)`,
		`INSERT INTO attempts (cluster, job_id, attempt, user, name, state, start, end, expected_end, checkpoint, checkpoint_every_ms, version) VALUES
			('c1', 'early', 'r0', 'u', 'n', 'completed', '2026-11-30 10:00:00', '2026-11-30 12:00:00', '2026-11-30 14:00:00', '2026-11-30 11:45:00', 900000, 1),
			('c1', 'late', 'r0', 'u', 'n', 'running', '2026-11-30 12:00:00', NULL, '2026-11-30 18:00:00', NULL, NULL, 1)`,
		// Three runs had ended by eleven, and a fourth, much longer, after it.
		`INSERT INTO attempts (cluster, job_id, attempt, user, name, state, start, end, version)
			SELECT 'c1', concat('past', toString(number)), 'r0', 'u', 'n', 'completed', toDateTime('2026-11-30 01:00:00'), toDateTime('2026-11-30 04:00:00') + 60 * number, 1 FROM numbers(3)`,
		`INSERT INTO attempts (cluster, job_id, attempt, user, name, state, start, end, version) VALUES
			('c1', 'past9', 'r0', 'u', 'n', 'completed', '2026-11-30 01:00:00', '2026-11-30 12:30:00', 1)`,
	} {
		if err := db.Conn.Exec(t.Context(), q); err != nil {
			t.Fatalf("%v in:\n%s", err, q)
		}
	}
	f, err := New(DefaultConfig(), Deps{Conn: db.Conn, Log: &empty{}, Now: func() time.Time { return noon.Add(time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	then := noon.Add(-time.Hour)
	v, err := f.Past(t.Context(), "c1", then)
	if err != nil {
		t.Fatal(err)
	}
	node := func(v *View, name string) (domain string, usable, used int32) {
		n, ok := v.Snapshot.Topology.Node(name)
		if !ok {
			t.Fatalf("%s has no place", name)
		}
		return v.Snapshot.Topology.Domains[v.Snapshot.Topology.Nodes[n].Domain].ID, v.Snapshot.Usable(n), v.Snapshot.Used(n)
	}
	domain, usable, used := node(v, "n0")
	if domain != "old" || usable != 4 || used != 4 {
		t.Errorf("at eleven n0 was in %s, %d usable and %d used, want old, 4 and 4", domain, usable, used)
	}
	if _, usable, _ = node(v, "n1"); usable != 4 || v.Snapshot.Topology.Generation != 1 || v.Snapshot.Topology.Domains[0].Model != "" {
		t.Errorf("at eleven n1 had %d usable GPUs in generation %d, of %q; want all 4 in generation 1, and no model that both nodes share", usable, v.Snapshot.Topology.Generation, v.Snapshot.Topology.Domains[0].Model)
	}
	if free := v.Snapshot.View().Free[0]; free != 0 {
		t.Errorf("at eleven %d nodes were free to anybody, want none: one was held, one reserved", free)
	}
	h := v.Snapshot.Holders(0)[0]
	// The three that had ended took three hours; the limit is that of today.
	if h.Job != "early" || h.End != then.Add(2*time.Hour+time.Minute).Unix() || h.Late != noon.Add(2*time.Hour).Unix() || h.Saved != 0 || h.SaveEvery != 0 {
		t.Errorf("got %+v, want the job of then, its end by the runs that had ended by then, and no checkpoint of later", h)
	}
	if age, known := v.Age(noon); age != 0 || !known || v.AsOf() != then || v.TopologyLag(noon) != 0 {
		t.Errorf("age %s %v, as of %s", age, known, v.AsOf())
	}
	if seconds, _ := v.Usual("u", "n"); seconds != 3*3600+60 {
		t.Errorf("usual were %d s", seconds)
	}
	if v, err = f.Past(t.Context(), "c1", noon.Add(40*time.Minute)); err != nil {
		t.Fatal(err)
	}
	domain, _, used = node(v, "n0")
	if _, usable, _ = node(v, "n1"); domain != "new" || used != 2 || usable != 3 || v.Snapshot.Holders(0)[0].Job != "late" || v.Snapshot.Topology.Generation != 2 {
		t.Errorf("after noon n0 was in %s with %d used, and n1 had %d usable", domain, used, usable)
	}
	if _, err := f.Past(t.Context(), "c1", noon.Add(-12*time.Hour)); !errors.Is(err, ErrUnknown) {
		t.Errorf("before anything was known: got %v", err)
	}
}

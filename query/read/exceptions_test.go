package read

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

// migrated gives a reader whose now is noon over a migrated database holding what the statements insert.
func migrated(t testing.TB, statements ...string) *Reader {
	t.Helper()
	server := testenv.ClickHouse(t)
	ctx := context.Background()
	if err := clickhouse.Migrate(ctx, server.Conn, clickhouse.Options{Database: server.Database}); err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements {
		if err := server.Conn.Exec(ctx, statement); err != nil {
			t.Fatalf("%v in\n%s", err, statement)
		}
	}
	return New(server.Conn, func() time.Time { return noon })
}

// TestExceptionsAreWhatDoesNotFit has one job of its own for each thing that does not fit, and beside it one that does.
func TestExceptionsAreWhatDoesNotFit(t *testing.T) {
	type job struct {
		state, started, end, limit string
		seq                        int
		nodes                      []string
		gpus                       int
		before                     []string // nodes of the placement before
	}
	jobs := map[string]job{
		"in order":                          {state: "running", started: "09:00", nodes: []string{"fine"}, gpus: 4},
		"completing for an hour":            {state: "completing", started: "09:00", nodes: []string{"c1"}, gpus: 4},
		"completing again, after a requeue": {state: "completing", started: "11:30", nodes: []string{"c3"}, gpus: 4},
		"completing for a minute":           {state: "completing", started: "09:00", nodes: []string{"c2"}, gpus: 4},
		"on a node that is down":            {state: "running", started: "09:00", nodes: []string{"ok1", "down"}, gpus: 4},
		"on a node down for a minute":       {state: "running", started: "09:00", nodes: []string{"down-now"}, gpus: 4},
		"on a node that is to fail":         {state: "running", started: "09:00", nodes: []string{"failing"}, gpus: 4},
		"on a node that drains to sleep":    {state: "running", started: "09:00", nodes: []string{"sleepy"}, gpus: 4},
		"on a node not ready":               {state: "running", started: "09:00", nodes: []string{"unready"}, gpus: 4},
		"on a node that drains":             {state: "running", started: "09:00", nodes: []string{"drain"}, gpus: 4},
		"one of two on the same GPUs":       {state: "running", started: "09:00", nodes: []string{"twice"}, gpus: 3},
		"the other on the same GPUs":        {state: "running", started: "10:00", nodes: []string{"twice"}, gpus: 2},
		"one of two that share a node":      {state: "running", started: "09:00", nodes: []string{"shared"}, gpus: 2},
		"the other that shares a node":      {state: "running", started: "09:00", nodes: []string{"shared"}, gpus: 2},
		"on a node that changed racks":      {state: "running", started: "09:00", nodes: []string{"moved"}, gpus: 4},
		"on a node gone silent":             {state: "running", started: "09:00", nodes: []string{"mute"}, gpus: 4},
		"placed after the rack changed":     {state: "running", started: "11:00", nodes: []string{"moved2"}, gpus: 4},
		"on a node that became known":       {state: "running", started: "09:00", nodes: []string{"appeared"}, gpus: 4},
		"with a node exchanged":             {state: "running", started: "11:00", seq: 1, nodes: []string{"keep", "fresh"}, before: []string{"keep", "broken"}, gpus: 4},
		"that gave a node back":             {state: "running", started: "11:00", seq: 1, nodes: []string{"keep2"}, before: []string{"keep2", "back"}, gpus: 4},
		"an hour over its limit":            {state: "running", started: "09:00", limit: "11:00", nodes: []string{"over"}, gpus: 4},
		"a minute over its limit":           {state: "running", started: "09:00", limit: "11:59", nodes: []string{"over2"}, gpus: 4},
		"gone without a word":               {state: "vanished", started: "09:00", end: "11:30", nodes: []string{"gone"}, gpus: 4},
		"gone without a word, yesterday":    {state: "vanished", started: "01:00", end: "02:00", nodes: []string{"gone2"}, gpus: 4},
		"ended as it should":                {state: "completed", started: "09:00", end: "11:30", nodes: []string{"done"}, gpus: 4},
		"on a node nobody tells state of":   {state: "running", started: "09:00", nodes: []string{"silent"}, gpus: 4},
	}
	day := func(at string) string { return "'2026-11-29 " + at + ":00'" }
	list := func(names []string) string { return "['" + strings.Join(names, "', '") + "']" }
	statements := []string{
		`INSERT INTO placement_events (loaded_at, cluster, job_id, state, observed_at, revision) VALUES
			('2026-11-29 11:30:00', 'c', 'completing for an hour', 'completing', '2026-11-29 11:00:00', 1), ('2026-11-29 11:30:00', 'c', 'completing for an hour', 'completing', '2026-11-29 11:30:00', 2),
			('2026-11-29 10:05:00', 'c', 'completing again, after a requeue', 'completing', '2026-11-29 10:00:00', 1), ('2026-11-29 11:59:55', 'c', 'completing again, after a requeue', 'completing', '2026-11-29 11:59:55', 2),
			('2026-11-29 11:59:00', 'c', 'completing for a minute', 'completing', '2026-11-29 11:59:00', 1)`,
		`INSERT INTO node_states (cluster, node, valid_from, valid_to, gpus_present, gpus_usable, schedulable, state_raw, reason, version)
			SELECT 'c', arrayJoin(['fine', 'c1', 'c2', 'ok1', 'shared', 'twice', 'moved', 'moved2']), '2026-11-01', '2200-01-01', 4, 4, true, 'ALLOCATED', '', 1`,
		`INSERT INTO node_states (cluster, node, valid_from, valid_to, gpus_present, gpus_usable, schedulable, state_raw, reason, version) VALUES
			('c', 'down', '2026-11-29 11:00:00', '2200-01-01', 4, 4, false, 'DOWN,NOT_RESPONDING', 'Not responding', 1), ('c', 'down-now', '2026-11-29 11:59:00', '2200-01-01', 4, 4, false, 'DOWN', '', 1),
			('c', 'failing', '2026-11-29 11:00:00', '2200-01-01', 4, 4, false, 'ALLOCATED,FAIL', '', 1), ('c', 'sleepy', '2026-11-29 11:00:00', '2200-01-01', 4, 4, false, 'MIXED,DRAIN,POWERING_DOWN', '', 1),
			('c', 'unready', '2026-11-29 11:00:00', '2200-01-01', 4, 4, false, 'NotReady,cordoned', '', 1),
			('c', 'drain', '2026-11-29 11:00:00', '2200-01-01', 4, 4, false, 'ALLOCATED,DRAIN', 'ecc', 1), ('c', 'c1', '2026-11-02', '2200-01-01', 4, 4, true, 'MIXED', '', 2)`,
		`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, version) VALUES
			('c', 'moved', '2026-11-01', '2026-11-29 10:00:00', 'a', 1), ('c', 'moved', '2026-11-29 10:00:00', '2200-01-01', 'b', 1),
			('c', 'mute', '2026-11-01', '2026-11-29 10:00:00', 'a', 1), ('c', 'mute', '2026-11-29 10:00:00', '2200-01-01', '', 1),
			('c', 'moved2', '2026-11-01', '2026-11-29 10:00:00', 'a', 1), ('c', 'moved2', '2026-11-29 10:00:00', '2200-01-01', 'b', 1),
			('c', 'appeared', '2026-11-01', '2026-11-29 10:00:00', '', 1), ('c', 'appeared', '2026-11-29 10:00:00', '2200-01-01', 'b', 1)`,
	}
	for name, j := range jobs {
		end, limit, until := "NULL", "NULL", "'2200-01-01'"
		if j.end != "" {
			end, until = day(j.end), day(j.end)
		}
		if j.limit != "" {
			limit = day(j.limit)
		}
		if j.before != nil {
			statements = append(statements, fmt.Sprintf(`INSERT INTO placements (cluster, job_id, attempt, seq, valid_from, valid_to, nodes, node_gpus, gpus, version) VALUES
				('c', '%s', 'r0', %d, '2026-11-29 08:00:00', %s, %s, [4, 4], 8, 1)`, name, j.seq-1, day(j.started), list(j.before)))
		}
		counts := strings.TrimSuffix(strings.Repeat(fmt.Sprint(j.gpus)+", ", len(j.nodes)), ", ")
		statements = append(statements,
			fmt.Sprintf(`INSERT INTO attempts (cluster, job_id, attempt, name, user, account, queue, service_class, state, start, end, end_earliest, expected_end, gpus, version)
				VALUES ('c', '%s', 'r0', 'train', 'ada', 'ml', 'gpu', 'training', '%s', %s, %s, %s, %s, 4, 1)`, name, j.state, day(j.started), end, end, limit),
			fmt.Sprintf(`INSERT INTO placements (cluster, job_id, attempt, seq, valid_from, valid_to, nodes, node_gpus, gpus, version) VALUES ('c', '%s', 'r0', %d, %s, %s, %s, [%s], 4, 1)`,
				name, j.seq, day(j.started), until, list(j.nodes), counts))
	}
	// A probe job may sit where it likes.
	statements = append(statements,
		`INSERT INTO attempts (cluster, job_id, attempt, state, probe, start, gpus, version) VALUES ('c', 'a probe', 'r0', 'running', true, '2026-11-29 09:00:00', 4, 1)`,
		`INSERT INTO placements (cluster, job_id, attempt, valid_from, valid_to, nodes, node_gpus, gpus, probe, version) VALUES ('c', 'a probe', 'r0', '2026-11-29 09:00:00', '2200-01-01', ['down', 'fine'], [4, 4], 4, true, 1)`)
	r := migrated(t, statements...)
	got, err := r.Exceptions(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, e := range got.Exceptions {
		seen[e.JobID] += strings.TrimSpace(fmt.Sprint(e.Kind, " ", strings.Join(e.Nodes, ","), " ", e.Since.Format("15:04"), " ", e.Detail))
		if e.Severity == "" || e.Meaning == "" || e.Account != "ml" || e.Queue != "gpu" {
			t.Errorf("got %+v: who and what to do is not told", e)
		}
	}
	want := map[string]string{
		"completing for an hour":         "completing_long c1 11:00",
		"on a node that is down":         "node_down down 11:00 DOWN,NOT_RESPONDING: Not responding",
		"on a node that is to fail":      "node_draining failing 11:00 ALLOCATED,FAIL",
		"on a node that drains to sleep": "node_draining sleepy 11:00 MIXED,DRAIN,POWERING_DOWN",
		"on a node not ready":            "node_down unready 11:00 NotReady,cordoned",
		"on a node that drains":          "node_draining drain 11:00 ALLOCATED,DRAIN: ecc",
		"one of two on the same GPUs":    "overbooked twice 10:00 5 GPUs held of 4",
		"the other on the same GPUs":     "overbooked twice 10:00 5 GPUs held of 4",
		"on a node that changed racks":   "domain_changed moved 10:00 a -> b",
		"with a node exchanged":          "node_replaced fresh 11:00 in place of broken",
		"an hour over its limit":         "past_limit over 11:00",
		"gone without a word":            "vanished  11:30 ended between 2026-11-29 11:30:00.000 and 2026-11-29 11:30:00.000",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got, err := r.Exceptions(t.Context(), "elsewhere"); err != nil || len(got.Exceptions) != 0 {
		t.Errorf("another cluster: got %d, %v", len(got.Exceptions), err)
	}
	if !slices.IsSortedFunc(got.Exceptions, func(a, b Exception) int { return a.Since.Compare(b.Since) }) {
		t.Error("the longest does not come first")
	}
}

// TestExceptionsOfOneClusterDoNotHideThoseOfAnother has more of one kind in a busy cluster than are listed, all older than the
// one elsewhere.
func TestExceptionsOfOneClusterDoNotHideThoseOfAnother(t *testing.T) {
	const many = 6000
	insert := func(cluster, start, limit string, n int) []string {
		return []string{
			fmt.Sprintf(`INSERT INTO attempts (cluster, job_id, attempt, state, start, expected_end, gpus, version)
				SELECT '%s', toString(number), 'r0', 'running', '2026-11-29 %s:00', '2026-11-29 %s:00', 4, 1 FROM numbers(%d)`, cluster, start, limit, n),
			fmt.Sprintf(`INSERT INTO placements (cluster, job_id, attempt, valid_from, valid_to, nodes, node_gpus, gpus, version)
				SELECT '%s', toString(number), 'r0', '2026-11-29 %s:00', '2200-01-01', [toString(number)], [4], 4, 1 FROM numbers(%d)`, cluster, start, n),
		}
	}
	r := migrated(t, append(insert("busy", "08:00", "09:00", many), insert("quiet", "10:00", "11:00", 1)...)...)
	quiet, err := r.Exceptions(t.Context(), "quiet")
	if err != nil {
		t.Fatal(err)
	}
	if len(quiet.Exceptions) != 1 {
		t.Errorf("got %d exceptions of the quiet cluster, want 1", len(quiet.Exceptions))
	}
	all, err := r.Exceptions(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	want := []ExceptionTotal{{"busy", "past_limit", many, exceptionsMost}, {"quiet", "past_limit", 1, 1}}
	if diff := cmp.Diff(want, all.Totals); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// stuckConn is a store that does not answer until it is let go.
type stuckConn struct {
	driver.Conn
	asked, letGo chan struct{}
}

func (c stuckConn) Select(context.Context, any, string, ...any) error {
	c.asked <- struct{}{}
	<-c.letGo
	return errors.New("the store is stuck")
}

func TestWhoWaitsForAnothersExceptionsMayGiveUp(t *testing.T) {
	stuck := stuckConn{asked: make(chan struct{}, 2), letGo: make(chan struct{})}
	r := New(stuck, func() time.Time { return noon })
	first := make(chan error, 1)
	go func() {
		_, err := r.Exceptions(t.Context(), "")
		first <- err
	}()
	<-stuck.asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	second := make(chan error, 1)
	go func() {
		_, err := r.Exceptions(ctx, "")
		second <- err
	}()
	select {
	case err := <-second:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that it was called off", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it still waits for the store that another asks")
	}
	close(stuck.letGo)
	if err := <-first; err == nil {
		t.Error("a stuck store is no error")
	}
}

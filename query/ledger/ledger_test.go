package ledger

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

// TestAnswersAreGradedByWhatBecameOfTheirJobs stores answers as the service does and the attempts and verdicts of their
// jobs, and asks for the grades.
func TestAnswersAreGradedByWhatBecameOfTheirJobs(t *testing.T) {
	db, ctx := testenv.ClickHouse(t), t.Context()
	if err := clickhouse.Migrate(ctx, db.Conn, clickhouse.Options{Database: db.Database}); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	l, err := New(DefaultConfig(), Deps{Write: db.Conn, Read: db.Conn, Log: slog.New(slog.DiscardHandler), Registry: reg, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	run := func(job, user, name string, start, seconds int, outcome string, domains ...string) {
		t.Helper()
		from := noon.Add(time.Duration(start) * time.Second)
		if err := db.Exec(ctx, fmt.Sprintf(`INSERT INTO attempts (cluster, job_id, attempt, user, name, requested_gpus, submit, start, end, state, version)
			VALUES ('c1', '%s', 'r0', '%s', '%s', 16, '%s', '%[4]s', '%[5]s', 'completed', 1)`, job, user, name,
			from.Format(time.DateTime), from.Add(time.Duration(seconds)*time.Second).Format(time.DateTime))); err != nil {
			t.Fatal(err)
		}
		list := "["
		for i, d := range domains {
			if i > 0 {
				list += ","
			}
			list += "'" + d + "'"
		}
		if err := db.Exec(ctx, fmt.Sprintf(`INSERT INTO verdicts (cluster, job_id, attempt, seq, outcome, domains, domains_used, version)
			VALUES ('c1', '%s', 'r0', 0, '%s', %s], %d, 1)`, job, outcome, list, len(domains))); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(id, job, name string, domains ...string) Answer {
		a := Answer{AskedAt: noon, Cluster: "c1", AdviceID: id, Caller: "api", JobID: job, User: "u", JobName: name, GPUs: 16,
			Recommendation: "start rank 1", WaitS: ptr(uint32(0)), Domains: domains}
		if len(domains) > 1 {
			a.SlowdownLow, a.SlowdownHigh = ptr(float32(1)), ptr(float32(1.5))
		}
		return a
	}
	run("1", "u", "as advised", 10, 60, "one_domain", "a")
	run("2", "u", "elsewhere", 10, 60, "spill", "b", "a")
	for i := range 3 { // what a split is measured against
		run(fmt.Sprint("w", i), "u", "split", 5, 100, "one_domain", "a")
	}
	run("3", "u", "split", 10, 120, "spill", "b", "a")
	run("4", "u", "told", 300, 60, "spill", "c", "b")
	for i := range 3 { // a node each whose domain nobody knows: neither as advised nor a run of one domain
		run(fmt.Sprint("p", i), "u", "split", 5, 10_000, "unknown", "a")
	}
	for i := range 3 { // of another size, which says nothing of how long 16 GPUs take
		run(fmt.Sprint("l", i), "u", "split", 5, 10, "one_domain", "a")
	}
	if err := db.Exec(ctx, `INSERT INTO attempts SELECT * REPLACE (64 AS requested_gpus, 2 AS version) FROM attempts WHERE startsWith(job_id, 'l')`); err != nil {
		t.Fatal(err)
	}
	if err := db.Exec(ctx, `INSERT INTO verdicts SELECT * REPLACE (1 AS unknown_nodes, 2 AS version) FROM verdicts WHERE startsWith(job_id, 'p')`); err != nil {
		t.Fatal(err)
	}
	l.Add(answer("A6", "p0", "split", "a"))
	l.Add(answer("A1", "1", "as advised", "a"))
	l.Add(answer("A2", "", "elsewhere", "a")) // found by user, name and size
	l.Add(answer("A3", "3", "split", "a", "b"))
	l.Add(answer("A4", "", "", "b", "c")) // found by feedback
	refused := answer("A5", "5", "no opinion")
	refused.Code = "stale_snapshot"
	l.Add(refused)
	elsewhere := answer("A7", "", "") // of a cluster that is not there
	elsewhere.Cluster, elsewhere.Code = "made-up", "unknown_cluster"
	l.Add(elsewhere)
	if !l.Tell(Feedback{ToldAt: noon, Cluster: "c1", AdviceID: "A4", JobID: "4", Slowdown: ptr(float32(2))}) {
		t.Fatal("there was room for feedback")
	}
	ended, stop := context.WithCancel(ctx)
	stop()
	if err := l.Run(ended); err != nil { // stores what is left
		t.Fatal(err)
	}
	probe(t, db)
	got, err := l.Grades(ctx, "", noon.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	want := []Grade{{Cluster: "c1", Answered: 5, Refused: 1, Started: 5, Followed: 3, Spilled: 3, FollowedSpilled: 2, OnTime: 4, Measured: 2, Inside: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	l.measure(ctx)
	if n := metric(t, reg, "spillway_advise_interval_share"); n != 0.5 {
		t.Errorf("the metric says that a share of %g is inside, want 0.5", n)
	}
}

// probe tells the probe's cluster all that the tables hold: nothing of it may show.
func probe(t *testing.T, db *testenv.Server) {
	t.Helper()
	for _, table := range []string{"attempts", "verdicts", "job_traffic", "advice_ledger"} {
		if err := db.Exec(t.Context(), fmt.Sprintf("INSERT INTO %[1]s SELECT * REPLACE ('%[2]s' AS cluster) FROM %[1]s", table, event.ProbeCluster)); err != nil {
			t.Fatal(err)
		}
	}
}

// metric is the sum of a metric's series.
func metric(t *testing.T, reg *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestAFullQueueDropsAndCounts(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Queue = 1
	reg := prometheus.NewRegistry()
	l, err := New(cfg, Deps{Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	l.Add(Answer{})
	l.Add(Answer{})
	if n := metric(t, reg, "spillway_advise_ledger_dropped_total"); n != 1 {
		t.Errorf("%g rows were counted as dropped, want 1", n)
	}
}

// TestSplitsOfThePastGiveTheSpeedBetweenDomains stores jobs whose splits took as long as a network of 25 GB/s makes them.
func TestSplitsOfThePastGiveTheSpeedBetweenDomains(t *testing.T) {
	db, ctx := testenv.ClickHouse(t), t.Context()
	if err := clickhouse.Migrate(ctx, db.Conn, clickhouse.Options{Database: db.Database}); err != nil {
		t.Fatal(err)
	}
	l, err := New(DefaultConfig(), Deps{Write: db.Conn, Read: db.Conn, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	run := func(job string, seconds int, parts string, used int) {
		t.Helper()
		for _, sql := range []string{
			fmt.Sprintf(`INSERT INTO attempts (cluster, job_id, attempt, user, name, requested_gpus, submit, start, end, state, version)
				VALUES ('c1', '%s', 'r0', 'u', 'moe', 16, '2026-11-29 10:00:00', '2026-11-29 10:00:00', addSeconds(toDateTime64('2026-11-29 10:00:00', 3), %d), 'completed', 1)`, job, seconds),
			fmt.Sprintf(`INSERT INTO verdicts (cluster, job_id, attempt, seq, outcome, domain_gpus, domains_used, domains_min, version)
				VALUES ('c1', '%s', 'r0', 0, '%s', %s, %d, 1, 1)`, job, map[bool]string{true: "spill", false: "one_domain"}[used > 1], parts, used),
		} {
			if err := db.Exec(ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 3 {
		job := fmt.Sprint("w", i)
		run(job, 1000, "[16]", 1)
		// 120 GB/s of a GPU in one direction: both directions are counted together.
		if err := db.Exec(ctx, fmt.Sprintf(`INSERT INTO job_traffic (cluster, job_id, attempt, seq, minute, nvlink_bytes, nvlink_gpu_seconds, version)
			VALUES ('c1', '%s', 'r0', 0, '2026-11-29 10:00:00', 240e9 * 960, 960, 1)`, job)); err != nil {
			t.Fatal(err)
		}
	}
	slow := advise.Links{Domain: 900, Cluster: 25}
	for i, parts := range [][]int32{{8, 8}, {12, 4}, {15, 1}} {
		p := make([]advise.Part, len(parts))
		for k, n := range parts {
			p[k] = advise.Part{Domain: int32(k), Nodes: n}
		}
		in := slow.Predict(nil, p, 1, 16, advise.Traffic{Rate: 120, Share: -1})
		run(fmt.Sprint("s", i), int(1000*(in.High+0.01)), fmt.Sprintf("[%d,%d]", parts[0], parts[1]), 2) // beyond what 50 GB/s allows
	}
	// Of nodes that nobody knows the domain of, domains_used is a lower bound: no run of one domain, and no split to compare.
	for _, job := range []string{"u1", "u2", "u3", "u4"} {
		run(job, 3000, "[12]", 1)
	}
	run("u5", 5000, "[8,4]", 2)
	if err := db.Exec(ctx, `INSERT INTO verdicts SELECT * REPLACE (1 AS unknown_nodes, 2 AS version) FROM verdicts WHERE startsWith(job_id, 'u')`); err != nil {
		t.Fatal(err)
	}
	probe(t, db)
	fits, err := l.Calibrate(ctx, "", noon.Add(-24*time.Hour), advise.DefaultLinks())
	if err != nil || len(fits) != 1 {
		t.Fatalf("got %+v, %v", fits, err)
	}
	if f := fits[0]; f.Cluster != "c1" || f.Calibration.Jobs != 3 || f.Calibration.Before != 0 || f.Calibration.After != 1 || f.Calibration.Cluster > 30 {
		t.Errorf("got %+v, want all three splits outside the interval at 50 GB/s, inside at about 25 or less", f)
	}
}

// hanging answers no question.
type hanging struct{ driver.Conn }

func (hanging) Select(ctx context.Context, _ any, _ string, _ ...any) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestGradingThatHangsHoldsNoAnswersUp(t *testing.T) {
	db := testenv.ClickHouse(t)
	if err := clickhouse.Migrate(t.Context(), db.Conn, clickhouse.Options{Database: db.Database}); err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Every, cfg.Grade = time.Hour, 20*time.Millisecond
	reg := prometheus.NewRegistry()
	l, err := New(cfg, Deps{Write: db.Conn, Read: hanging{db.Conn}, Log: slog.New(slog.DiscardHandler), Registry: reg, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	l.gradeWithin = 20 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	defer func() { stop(); <-done }()
	for n := range 3 { // each is sent before the next grading asks
		l.Add(Answer{AskedAt: noon, Cluster: "c1", AdviceID: fmt.Sprint("A", n)})
		testenv.Eventually(t, 10*time.Second, func() error {
			if got := metric(t, reg, "spillway_advise_ledger_stored_total"); got != float64(n+1) {
				return fmt.Errorf("%g answers are stored, want %d", got, n+1)
			}
			return nil
		})
	}
}

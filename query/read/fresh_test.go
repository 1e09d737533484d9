package read

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/advise"
)

// stored puts one more record, of job 9 of alpha, into the raw table; no pass has judged it.
func stored(t *testing.T, r *Reader, offset int, loaded time.Time) {
	t.Helper()
	err := r.conn.Exec(t.Context(), fmt.Sprintf(`INSERT INTO placement_events (kafka_partition, kafka_offset, loaded_at, cluster, job_id, scheduler, source, state, observed_at)
		VALUES (0, %d, '%[2]s', 'alpha', '9', 'slurm', 'slurm.squeue', 'running', '%[2]s')`, offset, loaded.UTC().Format("2006-01-02 15:04:05")))
	if err != nil {
		t.Fatal(err)
	}
}

// TestEveryAnswerTellsThatRecordsWait: an answer over facts that no pass has judged must not look complete.
func TestEveryAnswerTellsThatRecordsWait(t *testing.T) {
	ctx := context.Background()
	day := noon.Add(-24 * time.Hour)
	answers := map[string]func(r *Reader, cluster string) (Freshness, error){
		"slots": func(r *Reader, c string) (Freshness, error) {
			a, err := r.Slots(ctx, c, 64)
			return a.Freshness, err
		},
		"domains": func(r *Reader, c string) (Freshness, error) {
			a, err := r.DomainsNow(ctx, c)
			return a.Freshness, err
		},
		"one domain": func(r *Reader, c string) (Freshness, error) {
			a, err := r.DomainAt(ctx, c, "rack01", noon)
			return a.Freshness, err
		},
		"spills": func(r *Reader, c string) (Freshness, error) {
			a, err := r.Spills(ctx, SpillFilter{Cluster: c, Since: day, Until: noon, Limit: 1})
			return a.Freshness, err
		},
		"a job": func(r *Reader, c string) (Freshness, error) {
			a, err := r.Job(ctx, c, "7")
			return a.Freshness, err
		},
		"the map": func(r *Reader, c string) (Freshness, error) {
			a, err := r.MapNow(ctx, c)
			return a.Freshness, err
		},
		"the report": func(r *Reader, c string) (Freshness, error) {
			a, err := r.Report(ctx, c, day, noon, 64, advise.DefaultLinks())
			return a.Freshness, err
		},
		"exceptions": func(r *Reader, c string) (Freshness, error) {
			a, err := r.Exceptions(ctx, c)
			return a.Freshness, err
		},
		"what was asked": func(r *Reader, c string) (Freshness, error) {
			a, err := r.Asked(ctx, c, day, noon)
			return a.Freshness, err
		},
	}
	r := seeded(t)
	for name, ask := range answers {
		if f, err := ask(r, "alpha"); err != nil || !f.Complete {
			t.Errorf("%s: got %+v %v; a record stored ten seconds ago may still wait", name, f, err)
		}
	}
	stored(t, r, 2, noon.Add(-11*time.Second))
	later := New(r.conn, r.now)
	for name, ask := range answers {
		f, err := ask(later, "alpha")
		if err != nil || f.Complete || len(f.Gaps) != 1 || !strings.Contains(f.Gaps[0], "rows of placement_events of alpha wait to be judged since 2026-11-29T11:59:49Z") {
			t.Errorf("%s: got %+v %v, want the one gap told", name, f, err)
		}
		if f, err := ask(later, "beta"); err != nil || strings.Contains(strings.Join(f.Gaps, "\n"), "judged") {
			t.Errorf("%s of beta: got %+v %v, want nothing of what waits in alpha", name, f, err)
		}
	}
	got, err := later.Status(ctx)
	if err != nil || len(got.Unjudged) != 1 || got.Unjudged[0].Rows != 2 || !strings.Contains(strings.Join(got.Freshness.Gaps, "\n"), "wait to be judged") {
		t.Errorf("status: got %+v %v, want two rows", got, err)
	}
}

// TestWhatPassesLeftIsFoundAsLongAsTheyStandStill: nothing was stored since, so only the oldest records tell it.
func TestWhatPassesLeftIsFoundAsLongAsTheyStandStill(t *testing.T) {
	r := seeded(t)
	stopped := noon.Add(-7 * time.Hour)
	for _, q := range []string{
		"TRUNCATE TABLE placement_events",
		fmt.Sprintf("INSERT INTO pass_progress (pass, raw_table, kafka_partition, next_offset, version) VALUES ('judge', 'placement_events', 0, 2, %d)", stopped.UnixMicro()),
	} {
		if err := r.conn.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if f, err := r.freshness(t.Context(), "alpha"); err != nil || !f.Complete {
		t.Errorf("got %+v %v; nothing waits", f, err)
	}
	stored(t, r, 1, stopped.Add(-time.Minute)) // judged
	stored(t, r, 2, stopped.Add(time.Hour))
	f, err := New(r.conn, r.now).freshness(t.Context(), "alpha")
	if err != nil || f.Complete || !strings.Contains(strings.Join(f.Gaps, "\n"), "1 rows of placement_events of alpha wait to be judged since 2026-11-29T06:00:00Z") {
		t.Errorf("got %+v %v, want what has waited for six hours", f, err)
	}
}

// TestWhatWaitsIsAskedForBehindTheCaller: once for all answers of some seconds.
func TestWhatWaitsIsAskedForBehindTheCaller(t *testing.T) {
	r := seeded(t)
	at := noon
	r.now = func() time.Time { return at }
	complete := func() bool {
		t.Helper()
		told, err := r.reports(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(told.late) == 0
	}
	if !complete() {
		t.Fatal("a record stored ten seconds ago may still wait")
	}
	at = noon.Add(backlogEvery - time.Second)
	if !complete() {
		t.Error("what is remembered is new enough: nothing is to be asked")
	}
	at = noon.Add(backlogEvery)
	complete() // asks, and does not wait for it
	testenv.Eventually(t, 10*time.Second, func() error {
		if complete() {
			return fmt.Errorf("a record that has waited for %s is not told", Grace+backlogEvery)
		}
		return nil
	})
	if err := r.conn.Exec(t.Context(), "INSERT INTO pass_progress (pass, raw_table, kafka_partition, next_offset, version) VALUES ('judge', 'placement_events', 0, 2, 2)"); err != nil {
		t.Fatal(err)
	}
	if at = at.Add(backlogAtMost); !complete() {
		t.Error("what is remembered is too old: the caller waits for what is so")
	}
}

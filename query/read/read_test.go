package read

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// noon is when every question of these tests is asked.
var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// seeded gives a reader over a migrated database holding testdata/seed.sql.
func seeded(t testing.TB) *Reader {
	t.Helper()
	server := testenv.ClickHouse(t)
	ctx := context.Background()
	if err := clickhouse.Migrate(ctx, server.Conn, clickhouse.Options{Database: server.Database}); err != nil {
		t.Fatal(err)
	}
	seed, err := os.ReadFile("testdata/seed.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range strings.Split(string(seed), ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if err := server.Conn.Exec(ctx, statement); err != nil {
			t.Fatalf("%v in\n%s", err, statement)
		}
	}
	return New(server.Conn, func() time.Time { return noon })
}

func TestEveryQuestionAgainstTheSchema(t *testing.T) {
	r := seeded(t)
	ctx := context.Background()

	t.Run("an id in two clusters asks which", func(t *testing.T) {
		if _, err := r.Job(ctx, "", "7"); !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), "beta") {
			t.Errorf("got %v, want ErrAmbiguous naming the clusters", err)
		}
	})
	t.Run("an unknown job is not found", func(t *testing.T) {
		if _, err := r.Job(ctx, "", "404"); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
	})
	t.Run("a requeued job has two runs, the newest verdict each, and no withdrawn run", func(t *testing.T) {
		job, err := r.Job(ctx, "alpha", "7")
		if err != nil {
			t.Fatal(err)
		}
		if len(job.Attempts) != 2 || job.Attempts[0].Attempt != 1 || job.Attempts[1].Attempt != 0 {
			t.Fatalf("got %+v, want runs 1 and 0", job.Attempts)
		}
		if v := job.Attempts[0].Verdict; v == nil || v.Outcome != "one_domain" || v.MembershipGeneration != 4 {
			t.Errorf("run 1: got %+v, want the version 2 verdict one_domain", v)
		}
		if v := job.Attempts[1].Verdict; v == nil || *v.Cause != "policy" || v.To == nil {
			t.Errorf("run 0: got %+v, want a closed spill by policy", v)
		}
		if got := job.Attempts[0].Placements[0]; got.To != nil || got.Nodes[0].GPUs != nil || len(got.Nodes[0].GPUIndex) != 2 {
			t.Errorf("placement of run 1: got %+v, want open, GPUs unknown, two indices", got)
		}
		if _, err := job.Pick(5); !errors.Is(err, ErrNotFound) {
			t.Errorf("picking run 5: got %v, want ErrNotFound", err)
		}
	})
	t.Run("spills list neither old versions nor probe jobs nor the unknown", func(t *testing.T) {
		page, err := r.Spills(ctx, SpillFilter{Since: noon.Add(-24 * time.Hour), Until: noon, Limit: 10, BySeverity: true})
		if err != nil {
			t.Fatal(err)
		}
		if page.Total != 1 || len(page.Spills) != 1 || page.Spills[0].JobID != "7" || page.Spills[0].Attempt != 0 {
			t.Errorf("got %+v, want run 0 of job 7 alone", page)
		}
		page, err = r.Spills(ctx, SpillFilter{Since: noon.Add(-24 * time.Hour), Until: noon, Limit: 10, Running: true})
		if err != nil || len(page.Spills) != 0 {
			t.Errorf("running: got %+v %v, want none", page, err)
		}
	})
	t.Run("slots follow the newest minute of each domain", func(t *testing.T) {
		slots, err := r.Slots(ctx, "alpha", 4)
		if err != nil {
			t.Fatal(err)
		}
		want := []DomainSlot{
			{Cluster: "alpha", Domain: "rack02", Slots: 16, GPUsFree: 64, Usable: 64},
			{Cluster: "alpha", Domain: "rack01", Slots: 1, GPUsFree: 8, Probe: 4, Stranded: 4, Usable: 72},
		}
		if diff := cmp.Diff(want, slots.Domains); diff != "" || slots.Total != 17 {
			t.Errorf("total %d, -want +got:\n%s", slots.Total, diff)
		}
		slots, err = r.Slots(ctx, "alpha", 60) // not counted when the row was written: 15 wholly free nodes
		if err != nil || slots.Total != 1 {
			t.Errorf("60 GPUs: got %+v %v, want 1", slots, err)
		}
		if _, err = r.Slots(ctx, "alpha", 3); !errors.Is(err, ErrNotFound) {
			t.Errorf("3 GPUs: got %v, want ErrNotFound listing the sizes", err)
		}
		if _, err = r.Slots(ctx, "nowhere", 4); !errors.Is(err, ErrNotFound) {
			t.Errorf("a cluster that nobody has told of: got %v, want ErrNotFound", err)
		}
	})
	t.Run("a slot above any domain does not fit", func(t *testing.T) {
		if slots, err := r.Slots(ctx, "", 73); err != nil || slots.Total != 0 {
			t.Errorf("got %+v %v, want 0", slots, err)
		}
	})
	t.Run("domains as they stood earlier", func(t *testing.T) {
		got, err := r.DomainsAt(ctx, "alpha", noon.Add(-90*time.Minute))
		if err != nil || len(got.Domains) != 2 || got.Domains[0].GPUsHeld != 60 {
			t.Errorf("got %+v %v, want rack01 with 60 held", got, err)
		}
	})
	t.Run("one domain with its nodes and jobs", func(t *testing.T) {
		got, err := r.DomainAt(ctx, "alpha", "rack01", noon)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Nodes) != 1 || got.Nodes[0].Node != "n1" || *got.Nodes[0].GPUsUsable != 4 {
			t.Errorf("nodes: got %+v", got.Nodes)
		}
		if len(got.Jobs) != 2 || got.Jobs[0].JobID != "7" || *got.Jobs[0].GPUsHere != 64 {
			t.Errorf("jobs: got %+v, want 7 then 8", got.Jobs)
		}
		if _, err := r.DomainAt(ctx, "", "rack01", noon); !errors.Is(err, ErrAmbiguous) {
			t.Errorf("without cluster: got %v, want ErrAmbiguous", err)
		}
		if _, err := r.DomainAt(ctx, "", "rack99", noon); !errors.Is(err, ErrNotFound) {
			t.Errorf("unknown: got %v, want ErrNotFound", err)
		}
	})
	t.Run("topology health names what is unknown, missing and in conflict", func(t *testing.T) {
		got, err := r.TopologyHealth(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Conflicts) != 1 || got.Freshness.Complete || len(got.Missing) != 1 || got.Missing[0].Node != "n3" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("status tells rows that wait, dead letters and failing sources", func(t *testing.T) {
		got, err := r.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Unjudged) != 1 || got.Unjudged[0].Rows != 1 || len(got.DeadLetters) != 1 {
			t.Errorf("got %+v", got)
		}
		if got.Freshness.Complete || !strings.Contains(strings.Join(got.Freshness.Gaps, "\n"), "authentication failure") {
			t.Errorf("data: got %+v, want the failing source named", got.Freshness)
		}
	})
	t.Run("outcomes give every run that started, unknown as null", func(t *testing.T) {
		got, err := r.Outcomes(ctx, 100)
		if err != nil || len(got) != 4 {
			t.Fatalf("got %d %v, want 4", len(got), err)
		}
		if o := got[0]; o.JobID != "7" || o.Attempt != 0 || *o.Shape["rack02"] != 4 || *o.Outcome != "spill" {
			t.Errorf("first: got %+v", o)
		}
		if o := got[3]; o.Cluster != "beta" || o.DomainsUsed != nil || *o.UnknownNodes != 1 || o.Cause != nil || o.End != nil {
			t.Errorf("beta: got %+v", o)
		}
	})
}

func TestExplainPutsTheCauseFirst(t *testing.T) {
	r := seeded(t)
	ctx := context.Background()
	for name, test := range map[string]struct {
		cluster, job string
		attempt      int32
		first, has   string
	}{
		"a spill by policy":       {"alpha", "7", 0, "Spilled by policy", "--segment=16"},
		"an in-domain run":        {"alpha", "7", 1, "No spill", "segment=16; met"},
		"a job that waits":        {"alpha", "9", -1, "Not started", "128 GPUs"},
		"an unknown membership":   {"beta", "7", -1, "Cannot say", "neither a spill nor"},
		"the speeds have a basis": {"alpha", "7", 0, "Spilled", "18x, by the configured link speeds"},
	} {
		t.Run(name, func(t *testing.T) {
			job, err := r.Job(ctx, test.cluster, test.job)
			if err != nil {
				t.Fatal(err)
			}
			a, err := job.Pick(test.attempt)
			if err != nil {
				t.Fatal(err)
			}
			e := Explain(job, a, advise.DefaultLinks())
			all := strings.Join(e.Lines, "\n")
			if !strings.HasPrefix(e.Lines[0], test.first) || !strings.Contains(all, test.has) || len(e.Lines) < 3 || len(e.Lines) > 8 {
				t.Errorf("want it to begin %q and hold %q in three to eight lines, got\n%s", test.first, test.has, all)
			}
			if strings.Contains(all, "%!") || strings.Contains(all, "<nil>") {
				t.Errorf("a format went wrong:\n%s", all)
			}
		})
	}
}

// TestAWithdrawnMinuteIsNoLongerTheNewest follows the copy in memory over a row that is taken back.
func TestAWithdrawnMinuteIsNoLongerTheNewest(t *testing.T) {
	server := testenv.ClickHouse(t)
	ctx := t.Context()
	if err := clickhouse.Migrate(ctx, server, clickhouse.Options{Database: server.Database}); err != nil {
		t.Fatal(err)
	}
	put := func(minute string, free, version, deleted int) {
		t.Helper()
		err := server.Exec(ctx, fmt.Sprintf(`INSERT INTO domain_capacity (cluster, domain, minute, nodes, nodes_usable, nodes_free, gpus, gpus_usable,
			gpus_free, slot_sizes, slots, gpus_basis, version, is_deleted) VALUES ('c', 'd', '2026-11-29 %s:00', 18, 18, 1, 72, 72, %d, [1], [1], 'exact', %d, %d)`,
			minute, free, version, deleted))
		if err != nil {
			t.Fatal(err)
		}
	}
	clock := noon
	r := New(server, func() time.Time { return clock })
	free := func() uint32 {
		t.Helper()
		clock = clock.Add(time.Minute) // older than a caller may be given
		domains, err := r.DomainsNow(ctx, "c")
		if err != nil || len(domains.Domains) != 1 {
			t.Fatalf("%v, %v", domains, err)
		}
		return domains.Domains[0].GPUsFree
	}
	put("10:00", 40, 1, 0)
	put("11:00", 8, 2, 0)
	for _, step := range []struct {
		does func()
		want uint32
	}{
		{func() {}, 8},
		{func() { put("11:00", 8, 3, 1) }, 40},
		{func() {}, 40}, // the row of the last version is seen again
		{func() { put("11:30", 12, 3, 0) }, 12},
		{func() { put("11:30", 12, 4, 1) }, 40},
		{func() { put("11:45", 16, 5, 0) }, 16},
	} {
		step.does()
		if got := free(); got != step.want {
			t.Errorf("%d GPUs are free, want %d", got, step.want)
		}
	}
}

func TestAJobTakenBackInAnotherClusterIsNoPartOfTheAnswer(t *testing.T) {
	r := seeded(t)
	for _, statement := range []string{
		`INSERT INTO attempts (cluster, job_id, attempt, number, start, version, is_deleted) VALUES
			('alpha', '11', 'r0', 0, '2026-11-29 10:00:00', 1, 0), ('alpha', '11', 'r1', 0, '2026-11-29 11:00:00', 1, 0),
			('alpha', '11', 'r2', 0, NULL, 1, 0), ('beta', '11', 'r0', 0, '2026-11-29 10:00:00', 1, 0), ('beta', '11', 'r0', 0, '2026-11-29 10:00:00', 2, 1)`,
		`INSERT INTO placements (cluster, job_id, attempt, seq, nodes, version, is_deleted) VALUES
			('alpha', '11', 'r0', 1, ['n2'], 1, 0), ('alpha', '11', 'r0', 0, ['n1'], 1, 0), ('alpha', '11', 'r0', 2, ['n3'], 1, 1), ('beta', '11', 'r0', 0, ['n9'], 1, 0)`,
		`INSERT INTO verdicts (cluster, job_id, attempt, seq, outcome, version, is_deleted) VALUES
			('alpha', '11', 'r0', 0, 'one_domain', 1, 0), ('alpha', '11', 'r0', 1, 'spill', 1, 0), ('alpha', '11', 'r0', 1, 'spill', 2, 1), ('beta', '11', 'r0', 1, 'spill', 1, 0)`,
	} {
		if err := r.conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, cluster := range []string{"", "alpha"} {
		job, err := r.Job(t.Context(), cluster, "11")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range job.Attempts {
			got = append(got, a.Key)
			for _, p := range a.Placements {
				got = append(got, p.Nodes[0].Node)
				if p.Verdict != nil {
					got = append(got, p.Verdict.Outcome)
				}
			}
		}
		if diff := cmp.Diff([]string{"r2", "r1", "r0", "n1", "one_domain", "n2"}, got); diff != "" || job.Cluster != "alpha" {
			t.Errorf("cluster %q: %s, -want +got:\n%s", cluster, job.Cluster, diff)
		}
	}
	if _, err := r.Job(t.Context(), "beta", "11"); !errors.Is(err, ErrNotFound) {
		t.Errorf("in beta: got %v, want ErrNotFound", err)
	}
}

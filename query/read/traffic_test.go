package read

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/query/advise"
)

func TestTrafficStandsWithTheVerdict(t *testing.T) {
	r := seeded(t)
	ctx := context.Background()
	day := SpillFilter{Since: noon.Add(-24 * time.Hour), Until: noon, Limit: 10}

	t.Run("a job tells what its counters say of each verdict", func(t *testing.T) {
		job, err := r.Job(ctx, "alpha", "7")
		if err != nil {
			t.Fatal(err)
		}
		if got := job.Attempts[0].Verdict.Traffic; got == nil || got.Evidence != "silent_fallback" || *got.ScaleOutGBs != 60 || got.OutlierNodes[0] != "n9" {
			t.Errorf("run 1: %+v, want a silent fallback at 60 GB/s", got)
		}
		if got := job.Attempts[1].Verdict.Traffic; got == nil || got.Evidence != "confirmed" || *got.NVLinkGBs != 150 {
			t.Errorf("run 0: %+v, want the newest word, confirmed", got)
		}
		e := strings.Join(Explain(job, job.Attempts[0], advise.DefaultLinks()).Lines, "\n")
		if !strings.Contains(e, "silent fallback") || !strings.Contains(e, "0.1 GB/s over NVLink and 60 GB/s") || !strings.Contains(e, "n9") {
			t.Errorf("explained as\n%s", e)
		}
	})
	t.Run("no counters are neither good nor bad", func(t *testing.T) {
		job, err := r.Job(ctx, "beta", "7")
		if err != nil {
			t.Fatal(err)
		}
		if got := job.Attempts[0].Verdict.Traffic; got != nil {
			t.Errorf("got %+v, want null", got)
		}
		if e := strings.Join(Explain(job, job.Attempts[0], advise.DefaultLinks()).Lines, "\n"); !strings.Contains(e, "not measured") {
			t.Errorf("explained as\n%s", e)
		}
	})
	t.Run("what runs is counted by what its traffic says, as long as its placement holds", func(t *testing.T) {
		for _, left := range []string{ // by a pass over counters that stopped before the job did
			"INSERT INTO traffic_evidence (cluster, job_id, attempt, seq, valid_from, valid_to, evidence, version) VALUES ('alpha', 'gone', 'r0', 0, '2026-11-29 11:00:00', '2200-01-01 00:00:00', 'silent_fallback', 1)",
			"INSERT INTO placements (cluster, job_id, attempt, seq, valid_from, valid_to, version) VALUES ('alpha', 'gone', 'r0', 0, '2026-11-29 11:00:00', '2026-11-29 11:30:00', 2)",
		} {
			if err := r.conn.Exec(ctx, left); err != nil {
				t.Fatal(err)
			}
		}
		want := []RunningTraffic{{Cluster: "alpha", ServiceClass: "training", Evidence: "silent_fallback", Placements: 1}, {Cluster: "beta", ServiceClass: "training", Evidence: "unknown", Placements: 1}}
		got, err := r.RunningTraffic(ctx)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v\n-want +got:\n%s", err, diff)
		}
	})
	t.Run("spills are chosen by what their traffic says", func(t *testing.T) {
		for says, want := range map[string]int{"": 1, "confirmed": 1, "contradicted": 0, "unknown": 0} {
			f := day
			f.Traffic = says
			page, err := r.Spills(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Spills) != want {
				t.Errorf("%q: %d spills, want %d", says, len(page.Spills), want)
			}
			if want == 1 && (page.Spills[0].Verdict.Traffic == nil || page.Spills[0].Verdict.Traffic.Evidence != "confirmed") {
				t.Errorf("%q: %+v", says, page.Spills[0].Verdict.Traffic)
			}
		}
	})
	t.Run("silent fallbacks are listed though they are no spills", func(t *testing.T) {
		f := day
		f.Traffic = "silent_fallback"
		page, err := r.Spills(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Spills) != 1 || page.Spills[0].Attempt != 1 || page.Spills[0].Verdict.Outcome != "one_domain" {
			t.Errorf("got %+v, want run 1 of job 7", page.Spills)
		}
	})
	t.Run("a run's traffic by time and by node", func(t *testing.T) {
		got, err := r.JobTraffic(ctx, "alpha", "7", 0, time.Time{}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Steps) != 2 || *got.Steps[0].NVLinkGBs != 100 || *got.Steps[0].ScaleOutGBs != 50 || *got.Steps[1].NVLinkGBs != 200 || got.Steps[1].ScaleOutGBs != nil {
			t.Errorf("steps %+v", got.Steps)
		}
		if len(got.Nodes) != 2 || got.Nodes[0].Node != "n2" || len(got.Nodes[0].GPUNVLink) != 2 || got.Nodes[0].ScaleOutGBs != nil {
			t.Fatalf("nodes %+v", got.Nodes)
		}
		if math.Round(*got.Nodes[0].NVLinkGBs) != 25 || *got.Nodes[0].GPUNVLink[1] <= *got.Nodes[0].GPUNVLink[0] || math.Round(*got.Nodes[1].ScaleOutGBs) != 50 {
			t.Errorf("nodes %v %v %v", *got.Nodes[0].NVLinkGBs, *got.Nodes[0].GPUNVLink[1], *got.Nodes[1].ScaleOutGBs)
		}
		got, err = r.JobTraffic(ctx, "beta", "7", -1, time.Time{}, time.Time{})
		if err != nil || len(got.Steps) != 0 || len(got.Nodes) != 0 {
			t.Errorf("no counters: %+v %v", got, err)
		}
	})
	t.Run("of a placement that runs on, what its counters said before they stopped is unknown now", func(t *testing.T) {
		if err := r.conn.Exec(ctx, `INSERT INTO traffic_evidence (cluster, job_id, attempt, seq, valid_from, valid_to, evidence, nvlink_bytes_per_second, scale_out_bytes_per_second, last_minute, version) VALUES
			('alpha', '7', 'r1', 0, '2026-11-29 11:05:00', '2200-01-01 00:00:00', 'silent_fallback', 1e8, 60e9, '2026-11-29 11:40:00', 9),
			('alpha', '7', 'r0', 0, '2026-11-29 10:00:00', '2026-11-29 11:00:00', 'confirmed', 1e11, 50e9, '2026-11-29 10:31:00', 9)`); err != nil {
			t.Fatal(err)
		}
		got, err := r.RunningTraffic(ctx)
		if err != nil || len(got) != 2 || got[0].Evidence != "unknown" {
			t.Errorf("running: %+v %v", got, err)
		}
		for says, want := range map[string]int{"silent_fallback": 0, "confirmed": 1} {
			f := day
			f.Traffic = says
			page, err := r.Spills(ctx, f)
			if err != nil || len(page.Spills) != want {
				t.Errorf("%s: %+v %v, want %d", says, page.Spills, err, want)
			}
		}
		job, err := r.Job(ctx, "alpha", "7")
		if err != nil {
			t.Fatal(err)
		}
		if got := job.Attempts[0].Verdict.Traffic; got == nil || got.Evidence != "unknown" || *got.Reason != "counters_stopped" || *got.ScaleOutGBs != 60 {
			t.Errorf("the run that goes on: %+v", got)
		}
		if got := job.Attempts[1].Verdict.Traffic; got == nil || got.Evidence != "confirmed" {
			t.Errorf("the run that is over: %+v", got)
		}
	})
}

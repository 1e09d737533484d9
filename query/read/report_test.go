package read

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/query/advise"
)

func near(a, b float64) bool { return math.Abs(a-b) < 0.02 }

func TestReportCountsWhatWasExposedAndSaysWhatItDoesNotKnow(t *testing.T) {
	r := seeded(t)
	ctx := context.Background()
	if err := r.conn.Exec(ctx, "TRUNCATE TABLE traffic_evidence"); err != nil {
		t.Fatal(err)
	}
	got, err := r.Report(ctx, "", noon.Add(-2*time.Hour), noon, 64, advise.DefaultLinks())
	if err != nil {
		t.Fatal(err)
	}
	// Run 0 of job 7 spilled for one hour on 64 GPUs, run 1 ran 55 minutes in one domain, beta's job one hour on 8 GPUs
	// nobody can judge; the probe job counts nowhere.
	total := got.Total
	if total.Placements != 3 || total.Spilled != 1 || total.Unknown != 1 || !near(total.ExposedGPUHours, 64) ||
		!near(total.GPUHours, 64+64*55./60+8) || !near(total.UnknownGPUHours, 8) {
		t.Errorf("got %+v", total)
	}
	if total.LostMost != nil || total.LostLeast != nil || !near(total.UnmeasuredGPUHours, 64) {
		t.Errorf("got %+v, want lost unknown and all exposed hours without a basis", total)
	}
	if !strings.Contains(strings.Join(got.Basis, "\n"), "unknown, not zero") {
		t.Errorf("the basis does not say that lost is unknown: %v", got.Basis)
	}
	if len(got.Causes) != 1 || *got.Causes[0].Cause != "policy" || got.Causes[0].Placements != 1 {
		t.Errorf("causes: got %+v", got.Causes)
	}
	if len(got.Worst) != 1 || got.Worst[0].JobID != "7" || got.Worst[0].Attempt != 0 || !near(*got.Worst[0].ExposedGPUHours, 64) {
		t.Errorf("worst: got %+v", got.Worst)
	}
	if got.Accounts[0].Account != "ml-pre" {
		t.Errorf("first account: got %+v", got.Accounts[0])
	}
	if len(got.Changes) == 0 || !strings.HasPrefix(got.Changes[0], "policy, 100 %") {
		t.Errorf("changes: got %v", got.Changes)
	}
}

func TestReportSharesStrandedGPUsByWhoHeldTheRest(t *testing.T) {
	r := seeded(t)
	got, err := r.Report(context.Background(), "alpha", noon.Add(-2*time.Hour), noon, 64, advise.DefaultLinks())
	if err != nil {
		t.Fatal(err)
	}
	// rack01 had 12 free for 65 minutes and 8 for 55, none a slot of 64: 20.3 GPU-hours. rack02's 64 free are one slot.
	s := got.Stranded
	if want := 12*65./60 + 8*55./60; math.Abs(s.StrandedGPUHours-want) > 1 || !near(s.FreeGPUHours-s.StrandedGPUHours, 128) {
		t.Errorf("got %+v, want about %.1f stranded and 128 more free", s, want)
	}
	// Nobody but ml-pre held anything of rack01 while it was judged, five minutes between its runs apart.
	a := got.Accounts[0]
	if a.Account != "ml-pre" || math.Abs(a.StrandedGPUHours+s.EmptyGPUHours-s.StrandedGPUHours) > 0.02 || s.EmptyGPUHours > 2 {
		t.Errorf("got %+v and nobody %.2f of %.2f", a, s.EmptyGPUHours, s.StrandedGPUHours)
	}
	// After both runs ended nobody held anything of rack01, and what is stranded there is nobody's.
	later := New(r.conn, func() time.Time { return noon })
	if err := r.conn.Exec(context.Background(), `INSERT INTO verdicts (cluster, job_id, attempt, seq, valid_from, valid_to, outcome, gpus, domains, domain_gpus, version)
		VALUES ('alpha', '7', 'r1', 0, '2026-11-29 11:05:00', '2026-11-29 11:10:00', 'one_domain', 64, ['rack01'], [64], 100),
		('alpha', '8', 'r0', 0, '2026-11-29 11:00:00', '2026-11-29 11:10:00', 'spill', 8, ['rack01', 'rack02'], [4, 4], 100)`); err != nil {
		t.Fatal(err)
	}
	nobody, err := later.Report(context.Background(), "alpha", noon.Add(-30*time.Minute), noon, 64, advise.DefaultLinks())
	if err != nil || nobody.Stranded.EmptyGPUHours != nobody.Stranded.StrandedGPUHours || !near(nobody.Stranded.StrandedGPUHours, 4) {
		t.Errorf("nobody: got %+v %v, want 8 GPUs for half an hour", nobody.Stranded, err)
	}
	// Of whole nodes every free one is a slot of 4.
	whole, err := r.Report(context.Background(), "alpha", noon.Add(-2*time.Hour), noon, 4, advise.DefaultLinks())
	if err != nil || whole.Stranded.StrandedGPUHours > 5 {
		t.Errorf("slots of 4: got %+v %v", whole.Stranded, err)
	}
}

func TestReportBoundsTheLossWhereTrafficWasMeasured(t *testing.T) {
	r := seeded(t)
	ctx := context.Background()
	// 50 GB/s both directions = 25 GB/s one way: half of the scale-out link's time, less the eighteenth NVLink would take.
	if err := r.conn.Exec(ctx, `INSERT INTO traffic_evidence (cluster, job_id, attempt, seq, evidence, seconds, scale_out_bytes_per_second, version)
		VALUES ('alpha', '7', 'r0', 0, 'confirmed', 9000, 50e9, 1000)`); err != nil {
		t.Fatal(err)
	}
	measured := func() ReportUse {
		t.Helper()
		got, err := r.Report(ctx, "alpha", noon.Add(-2*time.Hour), noon, 64, advise.DefaultLinks())
		if err != nil {
			t.Fatal(err)
		}
		return got.Total
	}
	if got := measured(); got.LostMost == nil || *got.LostLeast != 0 || !near(*got.LostMost, 64*0.5*(1-1./18)) || got.UnmeasuredGPUHours != 0 {
		t.Errorf("got %+v", got)
	}
	// Half of the hour was measured: the other half is unknown, and not taken to be like it.
	if err := r.conn.Exec(ctx, `INSERT INTO traffic_evidence (cluster, job_id, attempt, seq, evidence, seconds, scale_out_bytes_per_second, version)
		VALUES ('alpha', '7', 'r0', 0, 'confirmed', 1800, 50e9, 1001)`); err != nil {
		t.Fatal(err)
	}
	if got := measured(); !near(*got.LostMost, 32*0.5*(1-1./18)) || !near(got.UnmeasuredGPUHours, 32) {
		t.Errorf("half measured: got %+v", got)
	}
	// Measured for too short a time to say anything is not measured.
	if err := r.conn.Exec(ctx, `INSERT INTO traffic_evidence (cluster, job_id, attempt, seq, evidence, reason, scale_out_bytes_per_second, version)
		VALUES ('alpha', '7', 'r0', 0, 'unknown', 'too_short', 50e9, 1002)`); err != nil {
		t.Fatal(err)
	}
	if got := measured(); got.LostMost != nil || !near(got.UnmeasuredGPUHours, 64) {
		t.Errorf("too short: got %+v", got)
	}
}

func TestReportOfNothing(t *testing.T) {
	r := seeded(t)
	ctx := context.Background()
	got, err := r.Report(ctx, "", noon.Add(-1000*time.Hour), noon.Add(-999*time.Hour), 64, advise.DefaultLinks())
	if err != nil || got.Total.Placements != 0 || len(got.Changes) != 0 || got.Accounts == nil {
		t.Errorf("got %+v %v", got, err)
	}
	if _, err := r.Report(ctx, "", noon.Add(time.Hour), noon.Add(2*time.Hour), 64, advise.DefaultLinks()); !errors.Is(err, ErrNotFound) {
		t.Errorf("the future: got %v", err)
	}
}

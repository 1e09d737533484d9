package read

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestComparisonWithEarlierRuns asks of one run in a series by the same user and name how it sits against the one before.
func TestComparisonWithEarlierRuns(t *testing.T) {
	type run struct {
		id, start, end, state string
		gpus, used, excess    int
		balance               float64
		outcome               string
		unknown               int // nodes of unknown domain: used and excess are the least they can be
	}
	series := []run{
		{"1", "01:00", "02:00", "completed", 64, 1, 0, 1, "one_domain", 0},
		{"2", "02:00", "03:10", "completed", 64, 1, 0, 1, "one_domain", 0},
		{"3", "03:00", "05:00", "completed", 64, 3, 2, 0.25, "spill", 0},
		{"4", "05:00", "06:00", "completed", 128, 2, 0, 1, "minimal_spread", 0},
		{"5", "06:00", "08:00", "completed", 64, 2, 1, 0.5, "spill", 0},
		{"6", "08:00", "", "running", 64, 2, 1, 0.8, "spill", 0},
		{"7", "09:00", "", "running", 64, 2, 1, 0.75, "spill", 0},
		{"8", "10:00", "", "running", 64, 0, 0, 0, "unknown", 0},
		{"9", "11:00", "", "running", 64, 1, 0, 1, "one_domain", 0},
		{"10", "11:20", "", "running", 64, 2, 1, 0.5, "spill", 1},
		{"11", "11:40", "", "running", 64, 1, 0, 1, "one_domain", 0},
	}
	var statements []string
	for _, s := range series {
		end := "NULL"
		if s.end != "" {
			end = "'2026-11-29 " + s.end + ":00'"
		}
		used, excess := fmt.Sprint(s.used), fmt.Sprint(s.excess)
		if s.outcome == "unknown" {
			used, excess = "NULL", "NULL"
		}
		statements = append(statements,
			fmt.Sprintf(`INSERT INTO attempts (cluster, job_id, attempt, name, user, state, submit, start, end, gpus, version)
				VALUES ('c', '%s', 'r0', 'train', 'ada', '%s', '2026-11-29 %s:00', '2026-11-29 %s:00', %s, %d, 1)`, s.id, s.state, s.start, s.start, end, s.gpus),
			fmt.Sprintf(`INSERT INTO placements (cluster, job_id, attempt, valid_from, valid_to, nodes, gpus, version)
				VALUES ('c', '%s', 'r0', '2026-11-29 %s:00', ifNull(%s, '2200-01-01'), ['n'], %d, 1)`, s.id, s.start, end, s.gpus),
			fmt.Sprintf(`INSERT INTO verdicts (cluster, job_id, attempt, valid_from, valid_to, outcome, gpus, domains_used, domains_min, excess_domains, balance, unknown_nodes, version)
				VALUES ('c', '%s', 'r0', '2026-11-29 %s:00', '2200-01-01', '%s', %d, %s, 1, %s, %g, %d, 1)`, s.id, s.start, s.outcome, s.gpus, used, excess, s.balance, s.unknown))
	}
	statements = append(statements,
		// Another user's run of the same name is other work; a run without a name is comparable to none.
		`INSERT INTO attempts (cluster, job_id, attempt, name, user, state, start, end, gpus, version) VALUES ('c', '20', 'r0', 'train', 'bob', 'completed', '2026-11-29 02:30:00', '2026-11-29 02:40:00', 64, 1)`,
		`INSERT INTO attempts (cluster, job_id, attempt, name, user, state, start, gpus, version) VALUES ('c', '21', 'r0', '', 'ada', 'running', '2026-11-29 02:30:00', 64, 1)`,
		// Renamed while it waited: other work than it was at first.
		`INSERT INTO attempts (cluster, job_id, attempt, name, user, state, start, gpus, version) VALUES ('c', '22', 'r0', 'train', 'ada', 'running', '2026-11-29 02:30:00', 64, 1)`,
		`INSERT INTO attempts (cluster, job_id, attempt, name, user, state, start, gpus, version) VALUES ('c', '22', 'r0', 'renamed', 'ada', 'running', '2026-11-29 02:30:00', 64, 2)`,
		// Longer ago than the comparison looks back.
		`INSERT INTO attempts (cluster, job_id, attempt, name, user, state, start, gpus, version) VALUES ('c', '23', 'r0', 'rare', 'ada', 'completed', '2026-08-01 00:00:00', 64, 1),
			('c', '24', 'r0', 'rare', 'ada', 'running', '2026-11-29 11:00:00', 64, 1)`)
	r := migrated(t, statements...)
	for id, want := range map[string]struct{ word, line string }{
		"1":  {"", "First of its kind"},
		"2":  {"same", "Same placement as last time: 1 domain; job 1 of 2026-11-29 01:00:00Z had 1 domain."},
		"3":  {"worse", "Placed worse than last time: 3 domains where 1 would do, balance 0.25; job 2"},
		"4":  {"", "no earlier run of 128 GPUs"},
		"5":  {"better", "Placed better than last time: 2 domains where 1 would do, balance 0.50; job 3"},
		"6":  {"better", "balance 0.80; job 5"},
		"7":  {"same", "job 6"},
		"8":  {"", "Cannot say: this run has no verdict"},
		"9":  {"better", "1 domain; job 7"}, // not against job 8, of which nothing can be said
		"10": {"", "Cannot say: the NVLink domain of 1 node is not known"},
		"11": {"same", "1 domain; job 9"}, // not against job 10, of which only the least is known
		"24": {"", "First of its kind"},
		"21": {"", "do not tell the job's name"},
	} {
		got, err := r.Compare(t.Context(), "", id, -1)
		if err != nil {
			t.Fatal(err)
		}
		word := ""
		if got.Placement != nil {
			word = *got.Placement
		}
		if text := strings.Join(got.Lines, "\n"); word != want.word || !strings.Contains(text, want.line) {
			t.Errorf("job %s: got %q and\n%s\nwant %q and %q", id, word, text, want.word, want.line)
		}
		for _, e := range got.Earlier {
			if e.JobID == "20" || e.JobID == "22" || e.JobID == id {
				t.Errorf("job %s is held against %s", id, e.JobID)
			}
		}
	}
	five, err := r.Compare(t.Context(), "c", "5", 0)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(five.Lines, "\n"), "1.71 times as long as the usual of 2") {
		t.Errorf("job 5 ran two hours where 60 and 70 minutes are usual; it says %q", five.Lines)
	}
	if _, err := r.Compare(t.Context(), "", "404", -1); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestOccupancyOfADomainOverATime(t *testing.T) {
	r := seeded(t)
	hour := func(h int) time.Time { return time.Date(2026, 11, 29, h, 0, 0, 0, time.UTC) }
	got, err := r.Occupancy(t.Context(), "alpha", "rack01", hour(10), hour(12), 100)
	if err != nil {
		t.Fatal(err)
	}
	var stays []string
	for _, s := range got.Stays {
		to := "still"
		if s.To != nil {
			to = s.To.Format("15:04")
		}
		stays = append(stays, fmt.Sprintf("%s.%d %s-%s %d %v", s.JobID, s.Attempt, s.From.Format("15:04"), to, *s.GPUsHere, s.Probe))
	}
	if diff := cmp.Diff([]string{"7.1 11:05-still 64 false", "8.0 11:00-still 4 true", "7.0 10:00-11:00 60 false"}, stays); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// 60 GPUs for an hour and 64 for 55 minutes; the probe's are nobody's.
	if len(got.Accounts) != 1 || got.Accounts[0].Account != "ml-pre" || int(got.Accounts[0].GPUHours*10) != 1186 || got.Accounts[0].Jobs != 2 {
		t.Errorf("got %+v", got.Accounts)
	}
	early, err := r.Occupancy(t.Context(), "alpha", "rack01", hour(10), hour(11), 100)
	if err != nil || len(early.Stays) != 1 || early.Stays[0].Attempt != 0 {
		t.Errorf("until 11: got %+v, %v", early, err)
	}
	cut, err := r.Occupancy(t.Context(), "alpha", "rack01", hour(10), hour(12), 1)
	if err != nil || len(cut.Stays) != 1 || cut.Total != 3 {
		t.Errorf("cut: got %+v, %v", cut, err)
	}
	if _, err := r.Occupancy(t.Context(), "", "rack01", hour(10), hour(12), 1); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("rack01 is in two clusters: got %v", err)
	}
	if _, err := r.Occupancy(t.Context(), "", "rack99", hour(10), hour(12), 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestAskedByQueue(t *testing.T) {
	r := migrated(t,
		`INSERT INTO attempts (cluster, job_id, attempt, queue, state, probe, start, version) SELECT 'c', toString(number), 'r0', if(number < 6, 'big', 'small'), 'running', number = 7, '2026-11-29 10:00:00', 1 FROM numbers(8)`,
		`INSERT INTO verdicts (cluster, job_id, attempt, valid_from, valid_to, outcome, domains_used, excess_domains, intent, intent_met, version) VALUES
			('c', '0', 'r0', '2026-11-29 10:00:00', '2200-01-01', 'one_domain', 1, 0, 'preferred domain', true, 1), ('c', '1', 'r0', '2026-11-29 10:00:00', '2200-01-01', 'spill', 3, 2, 'preferred domain', NULL, 1),
			('c', '2', 'r0', '2026-11-29 10:00:00', '2200-01-01', 'spill', 2, 1, 'preferred domain', NULL, 1), ('c', '3', 'r0', '2026-11-29 10:00:00', '2200-01-01', 'unknown', NULL, NULL, 'preferred domain', NULL, 1),
			('c', '4', 'r0', '2026-11-29 10:00:00', '2200-01-01', 'minimal_spread', 2, 0, 'segment=16', true, 1), ('c', '5', 'r0', '2026-11-29 10:00:00', '2200-01-01', 'spill', 2, 0, 'segment=4', false, 1),
			('c', '6', 'r0', '2026-11-29 10:00:00', '2200-01-01', 'one_domain', 1, 0, 'none', NULL, 1), ('c', '7', 'r0', '2026-11-29 10:00:00', '2200-01-01', 'spill', 2, 1, 'none', NULL, 1)`,
		// What began before the time by its newest word is not of this time.
		`INSERT INTO attempts (cluster, job_id, attempt, queue, state, start, version) VALUES ('c', '9', 'r0', 'small', 'running', '2026-11-28 10:00:00', 1)`,
		`INSERT INTO verdicts (cluster, job_id, attempt, valid_from, valid_to, outcome, domains_used, excess_domains, intent, version) VALUES ('c', '9', 'r0', '2026-11-29 10:00:00', '2200-01-01', 'spill', 2, 1, 'none', 1)`,
		`INSERT INTO verdicts (cluster, job_id, attempt, valid_from, valid_to, outcome, domains_used, excess_domains, intent, version) VALUES ('c', '9', 'r0', '2026-11-28 10:00:00', '2200-01-01', 'spill', 2, 1, 'none', 2)`)
	got, err := r.Asked(t.Context(), "", noon.Add(-24*time.Hour), noon)
	if err != nil {
		t.Fatal(err)
	}
	mean, none := 1.5, 0.0
	want := []AskedRow{
		{Cluster: "c", Queue: "big", Asked: "preferred domain", Placements: 4, Kept: 1, Wider: 2, Unknown: 1, Excess: &mean},
		{Cluster: "c", Queue: "big", Asked: "segment", Placements: 2, Kept: 1, BySize: 1, Wider: 1, Broken: 1, Excess: &none},
		{Cluster: "c", Queue: "small", Asked: "none", Placements: 1, Kept: 1},
	}
	if diff := cmp.Diff(want, got.Rows); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestViewsByWhatTheSchedulerGoesBy has a cluster whose scheduler reads node labels, one with Slurm's topology beside labels
// that nobody schedules by, and one whose scheduler tells no topology.
func TestViewsByWhatTheSchedulerGoesBy(t *testing.T) {
	r := migrated(t,
		`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, source, version)
			SELECT arrayJoin(['kube', 'slurm', 'mute']), 'n', '2026-11-01', '2200-01-01', 'u1', 'nvml', 1`,
		`INSERT INTO node_states (cluster, node, valid_from, valid_to, gpus_present, gpus_usable, schedulable, version)
			SELECT arrayJoin(['kube', 'slurm', 'mute']), 'n', '2026-11-01', '2200-01-01', 4, 4, true, 1`,
		`INSERT INTO membership_events (loaded_at, cluster, node, source, removed, observed_at, revision) VALUES
			('2026-11-01', 'kube', 'n', 'gfd_label', false, '2026-11-01', 1), ('2026-11-01', 'slurm', 'n', 'gfd_label', false, '2026-11-01', 1), ('2026-11-01', 'slurm', 'n', 'slurm_topology', false, '2026-11-01', 1),
			('2026-11-01', 'mute', 'n', 'nvml', false, '2026-11-01', 1), ('2026-11-01', 'mute', 'n', 'cloud_label', false, '2026-11-01', 1), ('2026-11-02', 'mute', 'n', 'cloud_label', true, '2026-11-02', 2)`,
		`INSERT INTO topology_conflicts (cluster, node, source_a, domain_a, source_b, domain_b, valid_from, valid_to, version)
			SELECT arrayJoin(['kube', 'slurm']), 'n', 'nvml', 'u1', 'gfd_label', 'u2', '2026-11-29 10:00:00', '2200-01-01', 1`)
	got, err := r.Views(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, d := range got.Differences {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s | %s", d.Cluster, d.Kind, d.Node, d.Scheduler, d.Spillway))
	}
	if diff := cmp.Diff([]string{"kube domain n: gfd_label: u2 | nvml: u1"}, lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"mute"}, got.NotCompared); diff != "" {
		t.Errorf("not compared: -want +got:\n%s", diff)
	}
}

func TestViewsOfTheSchedulerAndOurs(t *testing.T) {
	r := migrated(t,
		`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, levels, source, version)
			SELECT 'c', arrayJoin(['same', 'drained', 'busy', 'planned', 'planned-busy', 'extra']), '2026-11-01', '2200-01-01', 'u1', map('rack', 'rack01'), 'nvml', 1`,
		`INSERT INTO node_states (cluster, node, valid_from, valid_to, gpus_present, gpus_usable, schedulable, state_raw, reason, version) VALUES
			('c', 'same', '2026-11-01', '2200-01-01', 4, 4, true, 'IDLE', '', 1), ('c', 'drained', '2026-11-01', '2200-01-01', 4, 4, false, 'IDLE,DRAIN', 'ecc', 1),
			('c', 'busy', '2026-11-01', '2200-01-01', 4, 4, false, 'ALLOCATED,DRAIN', '', 1), ('c', 'planned', '2026-11-01', '2200-01-01', 4, 4, true, 'IDLE,PLANNED', '', 1),
			('c', 'planned-busy', '2026-11-01', '2200-01-01', 4, 4, true, 'ALLOCATED', '', 1), ('c', 'lost', '2026-11-01', '2200-01-01', 4, 4, true, 'IDLE', '', 1)`,
		`INSERT INTO placements (cluster, job_id, attempt, valid_from, valid_to, nodes, gpus, version) VALUES ('c', '1', 'r0', '2026-11-29 10:00:00', '2200-01-01', ['busy', 'planned-busy'], 8, 1)`,
		`INSERT INTO attempts (cluster, job_id, attempt, state, planned_start, planned_nodes, version) VALUES
			('c', '2', 'r0', 'pending', '2026-11-29 13:00:00', ['planned', 'planned-busy'], 1), ('c', '3', 'r0', 'pending', '2026-11-29 11:00:00', ['same'], 1), ('c', '4', 'r0', 'running', '2026-11-29 13:00:00', ['same'], 1)`,
		`INSERT INTO topology_conflicts (cluster, node, source_a, domain_a, source_b, domain_b, valid_from, valid_to, version) VALUES
			('c', 'same', 'nvml', 'u1', 'slurm_topology', 'rack02', '2026-11-29 10:00:00', '2200-01-01', 1), ('c', 'busy', 'nvml', 'u1', 'gfd', 'u2', '2026-11-29 10:00:00', '2200-01-01', 1)`)
	got, err := r.Views(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, d := range got.Differences {
		lines = append(lines, fmt.Sprintf("%s %s: %s | %s", d.Kind, d.Node, d.Scheduler, d.Spillway))
		if d.Domain != "" && (d.Label == nil || *d.Label != "rack01") {
			t.Errorf("%s has no label", d.Node)
		}
	}
	want := []string{
		"domain same: slurm_topology: rack02 | nvml: u1",
		"kept_out drained: IDLE,DRAIN: ecc | 4 GPUs, held by nobody",
		"not_in_scheduler extra: not known | in u1 by nvml",
		"not_in_topology lost: IDLE | no NVLink domain is known",
		"planned planned: kept for job 2 from 2026-11-29 13:00:00 | free now",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

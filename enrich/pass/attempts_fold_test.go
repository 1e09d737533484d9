package pass

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/schemas/event"
)

var nothingTold = price{priority: unknownPriority, preemptible: -1, checkpointEvery: -1, restartTakes: -1}

// randomJob are what several sources say of the runs of one job: some know the run's id, some only its start.
func randomJob(rng *rand.Rand) []record {
	var out []record
	het := rng.IntN(6) == 0
	start := day
	for restart := range int64(1 + rng.IntN(3)) {
		start += int64(1+rng.IntN(100)) * 60_000
		end := start + int64(rng.IntN(50))*60_000
		for range 1 + rng.IntN(6) {
			r := record{cluster: "c", jobID: "1", scheduler: "slurm", source: []string{"slurm.squeue", "slurm.sacct", "slurm.jobcomp"}[rng.IntN(3)],
				restart: -1, arrayTask: -1, requestedGPUs: -1, requestedNodes: -1, gpus: -1, segment: -1, switches: -1, mode: "none",
				state: []int8{1, 2, 2, 2, 4, 5, 12}[rng.IntN(7)]}
			r.observed = start + int64(rng.IntN(60))*60_000
			r.revision = uint64(r.observed) * 1000
			if rng.IntN(2) == 0 {
				r.restart = restart
			}
			if rng.IntN(3) == 0 && !het {
				r.runID = "S" + strconv.FormatInt(restart, 10)
			}
			r.price = []price{nothingTold, {2, 1, start + 500, start + 1000, 60_000, 5000}, {-2, 0, 0, 0, -1, -1}}[rng.IntN(3)]
			if r.state != int8(event.State_PENDING) {
				r.start = start
			}
			if event.State(r.state).Ended() && rng.IntN(4) > 0 {
				r.end = end
			}
			if rng.IntN(2) == 0 {
				r.gpus = 8
			}
			if het {
				r.component = strconv.Itoa(rng.IntN(2))
			}
			if rng.IntN(3) > 0 {
				r.nodes = [][]string{{"n1", "n2"}, {"n1", "n3"}, {"n2"}}[rng.IntN(3)]
				r.partial = rng.IntN(4) == 0
				for range r.nodes {
					r.nodeGPUs = append(r.nodeGPUs, []int32{-1, 4}[rng.IntN(2)])
					r.nodePods = append(r.nodePods, [][]string{nil, {"ml/a"}, {"ml/b", "ml/a"}}[rng.IntN(3)])
				}
			}
			if rng.IntN(4) == 0 {
				r.name = "job" + strconv.Itoa(rng.IntN(3))
			}
			out = append(out, r)
		}
	}
	for i := range out {
		out[i].offset = int64(i)
	}
	return out
}

// TestFoldIsOrderFree: the same records in any order, some of them twice, make the same rows; and the rows keep the
// rules that every reader relies on.
func TestFoldIsOrderFree(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		records := randomJob(rng)
		want := foldJob(slices.Clone(records))
		for range 4 {
			again := append(slices.Clone(records), records[rng.IntN(len(records))])
			rng.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
			for i := range again {
				again[i].offset = int64(i) // as they arrive
			}
			got := foldJob(again)
			if !reflect.DeepEqual(got.attempts, want.attempts) || !reflect.DeepEqual(got.placements, want.placements) {
				t.Fatalf("seed %d: the order of records matters:\n%s%s", seed, cmp.Diff(want.attempts, got.attempts, cmp.AllowUnexported(attemptRow{}, price{})),
					cmp.Diff(want.placements, got.placements, cmp.AllowUnexported(placementRow{})))
			}
		}
		keys := map[string]bool{}
		for _, a := range want.attempts {
			if keys[a.attempt] {
				t.Fatalf("seed %d: two attempts have the key %q", seed, a.attempt)
			}
			keys[a.attempt] = true
			if a.end != 0 && a.end < a.start {
				t.Fatalf("seed %d: attempt %s ends before it starts", seed, a.attempt)
			}
		}
		for i, p := range want.placements {
			if p.to < p.from || len(p.nodes) == 0 || len(p.nodeGPUs) != len(p.nodes) || len(p.gpuIndex) != len(p.nodes) ||
				len(p.nodePods) != 0 && len(p.nodePods) != len(p.nodes) {
				t.Fatalf("seed %d: placement %+v", seed, p)
			}
			if p.seq > 0 && want.placements[i-1].to > p.from {
				t.Fatalf("seed %d: placements overlap: %+v, %+v", seed, want.placements[i-1], p)
			}
		}
	}
}

// TestWhatItTakesToMoveARunIsKept: as it was last told, field by field, and without judging the run anew.
func TestWhatItTakesToMoveARunIsKept(t *testing.T) {
	s := newStore(t)
	revision := uint64(0)
	tell := func(job string, change func(*event.Placement)) {
		revision++
		r := &event.Placement{Cluster: "c", JobId: job, Scheduler: "slurm", Source: "slurm.squeue", State: event.State_RUNNING, Restart: new(uint32(0)),
			StartMs: &day, ObservedAtMs: day, Revision: revision, Placements: []*event.NodePlacement{{Node: "a1", Gpus: new(uint32(4))}}}
		change(r)
		s.feed(r)
	}
	kept := func(job string) (text string) {
		t.Helper()
		if err := s.Conn.QueryRow(context.Background(), `SELECT arrayStringConcat(arrayMap(x -> ifNull(x, '?'), [toString(priority), toString(preemptible),
			toString(toUnixTimestamp64Milli(preemptible_from)), toString(toUnixTimestamp64Milli(checkpoint)), toString(checkpoint_every_ms), toString(restart_ms)]), ' ')
			FROM attempts WHERE job_id = ? ORDER BY version DESC LIMIT 1`, job).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	saved, exempt, later := strconv.FormatInt(day+60_000, 10), strconv.FormatInt(day+30_000, 10), strconv.FormatInt(day+90_000, 10)
	for _, step := range []struct {
		name string
		tell func(*event.Placement)
		want string
	}{
		{"nothing told", func(*event.Placement) {}, "? ? ? ? ? ?"},
		{"all told, 0 and false among it", func(p *event.Placement) {
			p.Priority, p.Preemptible, p.CheckpointMs, p.CheckpointEveryMs, p.RestartMs = new(int64(0)), new(false), new(day+60_000), new(int64(1000)), new(int64(0))
			p.PreemptibleMs = new(day + 30_000)
		}, "0 false " + exempt + " " + saved + " 1000 0"},
		{"nothing told again", func(*event.Placement) {}, "0 false " + exempt + " " + saved + " 1000 0"},
		{"a part told again", func(p *event.Placement) { p.Priority, p.Preemptible = new(int64(-7)), new(true) }, "-7 true " + exempt + " " + saved + " 1000 0"},
		{"exempt for longer", func(p *event.Placement) { p.PreemptibleMs = new(day + 90_000) }, "-7 true " + later + " " + saved + " 1000 0"},
	} {
		tell("1", step.tell)
		stats := s.once()
		if got := kept("1"); got != step.want {
			t.Errorf("%s: got %s, want %s", step.name, got, step.want)
		}
		if step.name != "nothing told" && stats.Touched != 0 {
			t.Errorf("%s: judged anew: %+v", step.name, stats)
		}
	}
	rows := s.count("SELECT count() FROM attempts")
	s.forget() // what is in memory: the rows are read from the table again
	tell("1", func(p *event.Placement) { p.Priority = new(int64(-7)) })
	s.once()
	if n := s.count("SELECT count() FROM attempts"); n != rows {
		t.Errorf("told again what is stored: %d rows were written", n-rows)
	}
}

// TestPodsOfANodeAreKept: all that a run is told to hold a node through, of each run its own, and without an end of them. A run
// that is told of without pods has none.
func TestPodsOfANodeAreKept(t *testing.T) {
	s := newStore(t)
	revision := uint64(0)
	tell := func(job, run string, start int64, nodes ...*event.NodePlacement) {
		revision++
		s.feed(&event.Placement{Cluster: "c", JobId: job, Scheduler: "kubernetes", Source: "kubernetes", State: event.State_RUNNING, RunId: run,
			StartMs: &start, ObservedAtMs: start, Revision: revision, Placements: nodes})
	}
	node := func(name string, pods ...string) *event.NodePlacement {
		return &event.NodePlacement{Node: name, Pods: pods}
	}
	stored := func() (text []string) {
		t.Helper()
		if err := s.Conn.QueryRow(context.Background(), `SELECT groupArray(concat(job_id, ' ', attempt, ' ', toString(seq), ' ', toString(nodes), ' ', toString(node_pods)))
			FROM (SELECT * FROM placements WHERE is_deleted = 0 ORDER BY job_id, attempt, seq, version DESC LIMIT 1 BY job_id, attempt, seq)`).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, step := range []struct {
		name string
		tell func()
		want []string
	}{
		{"two nodes, one through two pods", func() {
			tell("1", "u1", day, node("n1", "ml/a-1", "ml/a-0"), node("n2", "ml/a-2"))
			tell("2", "", day, node("n1"), node("n2"))
		}, []string{"1 u1 0 ['n1','n2'] [['ml/a-0','ml/a-1'],['ml/a-2']]", "2 @1767225600 0 ['n1','n2'] []"}},
		{"another pod takes the place of one", func() { tell("1", "u1", day, node("n1", "ml/a-1", "ml/a-3"), node("n2")) },
			[]string{"1 u1 0 ['n1','n2'] [['ml/a-0','ml/a-1','ml/a-3'],['ml/a-2']]", "2 @1767225600 0 ['n1','n2'] []"}},
		{"the next run has pods of its own", func() { tell("1", "u2", day+60_000, node("n2", "ml/a-0"), node("n3")) },
			[]string{"1 u1 0 ['n1','n2'] [['ml/a-0','ml/a-1','ml/a-3'],['ml/a-2']]", "1 u2 0 ['n2','n3'] [['ml/a-0'],[]]", "2 @1767225600 0 ['n1','n2'] []"}},
	} {
		step.tell()
		s.once()
		if diff := cmp.Diff(step.want, stored()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	rows := s.count("SELECT count() FROM placements")
	s.forget() // what is in memory: the rows are read from the table again
	tell("1", "u2", day+60_000, node("n2", "ml/a-0"), node("n3"))
	s.once()
	if n := s.count("SELECT count() FROM placements"); n != rows {
		t.Errorf("told again what is stored: %d rows were written", n-rows)
	}
}

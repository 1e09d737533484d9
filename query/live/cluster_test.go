package live

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func ptr[T any](v T) *T { return &v }

// small is a cluster of two domains with three nodes of four GPUs each.
func small(t *testing.T) *cluster {
	t.Helper()
	c := newCluster("c1")
	var specs []advise.NodeSpec
	for d := range 2 {
		for n := range 3 {
			specs = append(specs, advise.NodeSpec{Name: fmt.Sprintf("d%dn%d", d, n), Domain: fmt.Sprintf("d%d", d), GPUs: 4})
		}
	}
	topo, err := advise.NewTopology(1, nil, specs)
	if err != nil {
		t.Fatal(err)
	}
	c.state = advise.NewState(topo)
	return c
}

// told builds a record of job 7 in a state, with nodes.
func record(state event.State, revision uint64, nodes ...string) *event.Placement {
	p := &event.Placement{
		Cluster: "c1", Scheduler: "slurm", JobId: "7", Source: "slurm.squeue", State: state, Revision: revision,
		StartMs: ptr(int64(1_700_000_000_000)), Restart: ptr(uint32(0)), User: "u", Name: "n",
	}
	for _, n := range nodes {
		p.Placements = append(p.Placements, &event.NodePlacement{Node: n, Gpus: ptr(uint32(4))})
	}
	return p
}

func edit(p *event.Placement, fn func(*event.Placement)) *event.Placement { fn(p); return p }

func TestRunsHoldWhatTheNewestRecordOfTheNewestRunSays(t *testing.T) {
	running, done, vanished := event.State_RUNNING, event.State_COMPLETED, event.State_VANISHED
	for name, test := range map[string]struct {
		records []*event.Placement
		held    string // used GPUs by node
	}{
		"a run holds its nodes":                  {[]*event.Placement{record(running, 1, "d0n0", "d0n1")}, "[4 4 0 0 0 0]"},
		"its end frees them":                     {[]*event.Placement{record(running, 1, "d0n0"), record(done, 2)}, "[0 0 0 0 0 0]"},
		"an end told first stays":                {[]*event.Placement{record(done, 2), record(running, 1, "d0n0")}, "[0 0 0 0 0 0]"},
		"told twice is told once":                {[]*event.Placement{record(running, 1, "d0n0"), record(running, 1, "d0n0")}, "[4 0 0 0 0 0]"},
		"a node is replaced":                     {[]*event.Placement{record(running, 1, "d0n0"), record(running, 2, "d1n0")}, "[0 0 0 4 0 0]"},
		"an older record comes late":             {[]*event.Placement{record(running, 2, "d1n0"), record(running, 1, "d0n0")}, "[0 0 0 4 0 0]"},
		"completing still holds":                 {[]*event.Placement{record(running, 1, "d0n0"), record(event.State_COMPLETING, 2, "d0n0")}, "[4 0 0 0 0 0]"},
		"a record without nodes takes none away": {[]*event.Placement{record(running, 1, "d0n0"), record(running, 2)}, "[4 0 0 0 0 0]"},
		"lost sight of, and seen again":          {[]*event.Placement{record(running, 1, "d0n0"), record(vanished, 2), record(running, 3, "d0n0")}, "[4 0 0 0 0 0]"},
		"the end of an earlier run ends no later one": {[]*event.Placement{
			edit(record(running, 5, "d1n1"), func(p *event.Placement) { p.Restart, p.StartMs = ptr(uint32(1)), ptr(int64(1_700_000_900_000)) }),
			record(done, 6),
		}, "[0 0 0 0 4 0]"},
		"back in the queue": {[]*event.Placement{record(running, 1, "d0n0"),
			edit(record(event.State_PENDING, 2), func(p *event.Placement) { p.Restart, p.StartMs = ptr(uint32(1)), nil })}, "[0 0 0 0 0 0]"},
		"a prolog tells its own node, another adds one": {[]*event.Placement{
			edit(record(running, 1, "d0n0"), func(p *event.Placement) { p.Partial, p.Source = true, "slurm.prolog" }),
			edit(record(running, 2, "d0n1"), func(p *event.Placement) { p.Partial, p.Source = true, "slurm.prolog" }),
		}, "[4 4 0 0 0 0]"},
		"GPUs told in all are shared evenly": {[]*event.Placement{edit(record(running, 1, "d0n0", "d0n1"), func(p *event.Placement) {
			p.Gpus = ptr(uint32(4))
			for _, n := range p.Placements {
				n.Gpus = nil
			}
		})}, "[2 2 0 0 0 0]"},
		"GPUs that nobody tells are the whole node": {[]*event.Placement{edit(record(running, 1, "d0n2"), func(p *event.Placement) { p.Placements[0].Gpus = nil })}, "[0 0 4 0 0 0]"},
		"components of one job hold together": {[]*event.Placement{
			edit(record(running, 1, "d0n0"), func(p *event.Placement) { p.Component = "7" }),
			edit(record(running, 1, "d1n0"), func(p *event.Placement) { p.Component = "8" }),
		}, "[4 0 0 4 0 0]"},
		"a probe job holds nothing that counts": {[]*event.Placement{edit(record(running, 1, "d0n0"), func(p *event.Placement) { p.Probe = true })}, "[0 0 0 0 0 0]"},
		"a node that is not known":              {[]*event.Placement{record(running, 1, "d0n0", "elsewhere")}, "[4 0 0 0 0 0]"},
	} {
		t.Run(name, func(t *testing.T) {
			c := small(t)
			for _, p := range test.records {
				c.placement(p, 1_700_000_100)
			}
			snap := c.state.Publish(1)
			var got []int32
			for n := range snap.Topology.Nodes {
				got = append(got, snap.Used(int32(n)))
			}
			if fmt.Sprint(got) != test.held {
				t.Errorf("held %v, want %s", got, test.held)
			}
		})
	}
}

func TestNodesGiveWhatTheStrictestSourceSays(t *testing.T) {
	c := small(t)
	say := func(source string, fn func(*event.Node)) {
		r := &event.Node{Cluster: "c1", Node: "d0n0", Source: source, Revision: 1}
		fn(r)
		c.node(r)
	}
	usable := func() int32 { return c.state.Publish(1).Usable(0) }
	say("slurm", func(r *event.Node) { r.GpusPresent, r.Schedulable = ptr(uint32(4)), ptr(true) })
	if usable() != 4 {
		t.Errorf("got %d usable, want 4", usable())
	}
	say("dcgm", func(r *event.Node) { r.GpusPresent, r.GpusHealthy = ptr(uint32(4)), ptr(uint32(3)) })
	if usable() != 3 {
		t.Errorf("a broken GPU: got %d usable, want 3", usable())
	}
	say("slurm", func(r *event.Node) { r.Schedulable, r.Revision = ptr(false), 2 })
	if usable() != 0 {
		t.Errorf("drained: got %d usable, want none", usable())
	}
	say("slurm", func(r *event.Node) { r.Schedulable = ptr(true) }) // revision 1: late
	if usable() != 0 {
		t.Errorf("a late record: got %d usable, want none", usable())
	}
	say("dcgm", func(r *event.Node) { r.Removed, r.Revision = true, 3 })
	say("slurm", func(r *event.Node) { r.Removed, r.Revision = true, 3 })
	if usable() != 0 {
		t.Errorf("removed by all: got %d usable, want none", usable())
	}
}

func TestEndsAreCorrectedByWhatTheSameUserRanBefore(t *testing.T) {
	h := history{}
	for _, s := range []int32{100, 50, 200, 150, 400} {
		h = h.add(s)
	}
	for name, test := range map[string]struct{ start, limit, now, want int64 }{
		"the median of the past, not the limit":     {1000, 3600, 1000, 1150},
		"one that has outlived most, by the longer": {1000, 3600, 1120, 1200},
		"too few that lasted longer: the limit":     {1000, 3600, 1180, 4600},
		"too few and no limit: nobody can say":      {1000, 0, 1180, 0},
		"never beyond the limit":                    {1000, 60, 1000, 1060},
	} {
		if got := h.end(test.start, test.limit, test.now); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
	if got := (history{}).end(10, 20, 11); got != 30 {
		t.Errorf("without a past: got %d, want the limit", got)
	}
	var twenty history
	for s := int32(100); s <= 2000; s += 100 {
		twenty = twenty.add(s)
	}
	for name, test := range map[string]struct {
		past                    history
		start, limit, now, want int64
	}{
		"nine of ten runs had ended":                 {twenty, 1000, 3600, 1000, 2800},
		"of those that lasted as long as this one":   {twenty, 1000, 3600, 1950, 2900},
		"never beyond the limit":                     {twenty, 1000, 600, 1000, 1600},
		"too few that lasted longer: the limit":      {twenty, 1000, 3600, 2150, 4600},
		"three runs are no basis, the limit is":      {h, 1000, 3600, 1000, 4600},
		"three runs are no basis, nor is no limit":   {h, 1000, 0, 1000, 0},
		"a run that has outlived all, and no limit":  {twenty, 1000, 0, 9000, 0},
		"a run that seems to start in the future":    {twenty, 1000, 0, 900, 2800},
		"a run that has gone on for longer than can": {twenty, 0, 0, 1 << 40, 0},
	} {
		if got := test.past.late(test.start, test.limit, test.now); got != test.want {
			t.Errorf("the 90th percentile: %s: got %d, want %d", name, got, test.want)
		}
	}
}

func TestOnlyNewsOfAPlaceMakesThePictureOld(t *testing.T) {
	c := small(t)
	m := &event.Membership{Cluster: "c1", Node: "d0n0", Source: "slurm_topology", ObservedAtMs: 1,
		Levels: []*event.Level{{Level: "domain", Value: "d0"}}}
	if c.membership(m) {
		t.Error("the domain it is in is no news")
	}
	m.ObservedAtMs, m.Revision = 2, 2
	if c.membership(m) {
		t.Error("said again is no news")
	}
	m.Levels[0].Value = "d1"
	if !c.membership(m) {
		t.Error("another domain is news")
	}
}

func TestAHoldTellsWhatItWouldCostToMoveIt(t *testing.T) {
	c := small(t)
	start := int64(1_700_000_000)
	c.placement(edit(record(event.State_RUNNING, 1, "d0n0", "d0n1"), func(p *event.Placement) {
		p.Priority, p.Preemptible, p.RestartMs, p.CheckpointEveryMs = ptr(int64(7)), ptr(true), ptr(int64(300_000)), ptr(int64(1_800_000))
	}), start)
	want := func(h *advise.Hold, restart, saved, every int64) {
		t.Helper()
		if h == nil || h.Priority == nil || *h.Priority != 7 || !h.Preemptible || h.Restart != restart || h.Saved != saved || h.SaveEvery != every {
			t.Errorf("got %+v, want priority 7, preemptible, restart %d, saved %d, every %d", h, restart, saved, every)
		}
	}
	key := runKey("7", "")
	want(c.state.Holding(key), 300, start, 1800)
	again := edit(record(event.State_RUNNING, 1, "d0n0", "d0n1"), func(p *event.Placement) { p.Priority = ptr(int64(7)) })
	if c.placement(again, start) {
		t.Error("the same priority told again is no change")
	}
	silent := small(t)
	silent.placement(record(event.State_RUNNING, 1, "d0n0"), start)
	if h := silent.state.Holding(key); h == nil || h.Priority != nil {
		t.Errorf("got %+v, want a priority that is not known", h)
	}
	// A source that does not tell changes nothing of it; one that tells of a checkpoint does.
	c.placement(edit(record(event.State_RUNNING, 2, "d0n0"), func(p *event.Placement) { p.Source = "slurm.rest" }), start)
	want(c.state.Holding(key), 300, start, 1800)
	c.placement(edit(record(event.State_RUNNING, 3, "d0n0"), func(p *event.Placement) { p.CheckpointMs = ptr((start + 600) * 1000) }), start)
	want(c.state.Holding(key), 300, start+600, 1800)
	// From when on it may be ended is kept likewise, and never early.
	if !c.placement(edit(record(event.State_RUNNING, 4, "d0n0"), func(p *event.Placement) { p.PreemptibleMs = ptr(start*1000 + 900_001) }), start) {
		t.Error("when it may be ended is a change")
	}
	c.placement(record(event.State_RUNNING, 5, "d0n0"), start)
	if h := c.state.Holding(key); h.PreemptibleFrom != start+901 {
		t.Errorf("may be ended from %d, want %d", h.PreemptibleFrom, start+901)
	}
}

func TestModelsOfNodesBecomeThatOfTheirDomain(t *testing.T) {
	c := newCluster("c1")
	c.models = map[string]string{"a1": "gb200", "a2": "gb200", "b1": "gb200", "b2": "gb300"}
	var rows []memberRow
	for _, n := range []string{"a1", "a2", "b1", "b2", "c1"} {
		rows = append(rows, memberRow{Cluster: "c1", Node: n, Domain: n[:1], Generation: 1})
		c.capacity[n] = []capacity{{source: "slurm", present: 4, healthy: 4, allocatable: 4, schedulable: 1}}
	}
	topology, err := c.topology(rows)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"gb200", "", ""} {
		if got := topology.Domains[i].Model; got != want {
			t.Errorf("domain %s: model %q, want %q", topology.Domains[i].ID, got, want)
		}
	}
}

func TestAChangeOfMembershipThatWaitsMakesTheTopologyOld(t *testing.T) {
	seen := time.Unix(1_700_000_000, 0)
	if lag := (&View{}).TopologyLag(seen); lag != 0 {
		t.Errorf("nothing waits: %s", lag)
	}
	if lag := (&View{behind: seen}).TopologyLag(seen.Add(40 * time.Second)); lag != 40*time.Second {
		t.Errorf("got %s, want 40s", lag)
	}
	log := slog.New(slog.DiscardHandler)
	old := &session{feed: &Feed{log: log}, clusters: map[string]*cluster{}}
	next := &session{clusters: map[string]*cluster{}, moved: map[int]int64{}, unfolded: map[cell][]change{}}
	old.unfolded = map[cell][]change{{"c1", 0}: {{10, seen}, {20, seen.Add(time.Second)}}, {"c1", 1}: {{5, seen.Add(2 * time.Second)}}}
	next.inherit(old, map[offsetKey]int64{{"membership_events", 0}: 11, {"membership_events", 1}: 6})
	if waits := next.unfolded[cell{"c1", 0}]; len(next.unfolded) != 1 || len(waits) != 1 || waits[0].offset != 20 {
		t.Errorf("got %+v, want the one change that the passes have not folded", next.unfolded)
	}
}

func TestChangesThatPileUpAreFewAndTheirLagIsNeverShort(t *testing.T) {
	seen := time.Unix(1_700_000_000, 0)
	var all []change
	const n = 10_000
	for i := range n {
		if all = lacks(all, change{int64(i), seen.Add(time.Duration(i) * time.Second)}); len(all) > mostChanges {
			t.Fatalf("%d are kept apart, want %d at most", len(all), mostChanges)
		}
	}
	for done := range int64(n) { // as a pass folds on
		i := slices.IndexFunc(all, func(c change) bool { return done <= c.offset })
		if i < 0 || all[i].at.After(seen.Add(time.Duration(done)*time.Second)) {
			t.Fatalf("change %d waits, and the lag is counted from a later one", done)
		}
	}
	if last := all[len(all)-1]; last.offset != n-1 {
		t.Errorf("the newest kept ends at %d, want %d", last.offset, n-1)
	}
}

package advise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFragment(t *testing.T) {
	s := NewState(cluster(t, []int32{4, 4, 4}, 4))
	hold(t, s, "a", 100, 0, 1, 2) // domain 0: one free
	hold(t, s, "b", 50, 4, 5)     // domain 1: two free
	hold(t, s, "c", 0, 8, 9)      // domain 2: two free, no estimate
	v := s.View()
	f, models := Fragment(&v, []Gang{{Nodes: 2, Weight: 1}, {Nodes: 4, Weight: 1}}, 10)
	want := Fragmentation{
		FreeNodes: 5, Largest: 2,
		Slots: []int32{5, 2, 0, 0}, Ideal: []int32{5, 2, 1, 1}, Cliff: []float64{1, 1, 0, 0},
		Stranded: []int32{0, 4, 20, 20}, Drain: []int64{0, 0, 50, 50},
		External: 0.5, PhiNodes: 3, Phi: 0.6,
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
	if len(models) != 1 || models[0].Model == nil || *models[0].Model != "GB200" || models[0].Domains != 3 || models[0].GPUsPerNode != 4 || !reflect.DeepEqual(models[0].Fragmentation, f) {
		t.Errorf("got %+v, want all of it under the one model", models)
	}
	if e := Entropy(v.Free); e <= 0.9 || e >= 1 {
		t.Errorf("entropy %v of 1, 2 and 2", e)
	}
	if e := Entropy([]int32{0, 9}); e != 0 {
		t.Errorf("entropy %v of one domain", e)
	}
	// Overdue: the end was at 50, now it is 60.
	if f, _ := Fragment(&v, nil, 60); f.Drain[3] != 60+OverdueGrace && f.Drain[3] != 100 {
		t.Errorf("drain %d of an overdue job", f.Drain[3])
	}
}

// hold puts a whole-node attempt on nodes.
func hold(t *testing.T, s *State, key string, end int64, nodes ...int32) *Hold {
	t.Helper()
	h := &Hold{Key: key, Job: key, End: end, Unsaved: 3600, Restart: 0}
	for _, n := range nodes {
		h.Nodes = append(h.Nodes, Share{Node: n, GPUs: 4})
	}
	if err := s.Hold(h); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestEarliestIsTheFirstSecond: the search finds what trying every end does, with every strategy and bound of domains.
func TestEarliestIsTheFirstSecond(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	var p Plan
	for range 150 {
		state := random(t, rng, 1+rng.IntN(10))
		v := state.View()
		now := int64(500 + rng.IntN(3000))
		for _, s := range Strategies(Options{Links: DefaultLinks()}) {
			a := randomAsk(rng)
			a.MaxWait = math.MaxInt32 // a strategy that gives up waiting at a time of its own is tested apart
			a.Duration, a.Shared, a.Waited = 0, 0, 0
			at, ok := Earliest(s, &v, &a, now, &p)
			want, found := int64(0), false
			for _, end := range append([]int64{now, now + OverdueGrace}, slices.Concat(v.order...)...) {
				if end < now || end == Never || found && end >= want {
					continue
				}
				then := v
				then.Free = make([]int32, len(v.Free))
				for d := range v.Free {
					then.Free[d] = v.FreeBy(d, now, end)
				}
				if s.Place(&then, &a, &p); p.Outcome == Placed {
					want, found = end, true
				}
			}
			if ok != found || ok && at != want {
				t.Fatalf("%s: %d %v, want %d %v, for %+v", s.Name(), at, ok, want, found, a)
			}
		}
	}
}

// TestEarliestFindsAStartThatLaterIsNone: where one node more makes first-fit need a domain more than is allowed.
func TestEarliestFindsAStartThatLaterIsNone(t *testing.T) {
	for name, test := range map[string]struct {
		last int64 // end of the job that is left in the first domain; 0 for none
		want int64
	}{
		"and then is one again": {20_000, 2000},
		"and never is one more": {0, 2000},
	} {
		s := NewState(cluster(t, []int32{3, 3, 3}, 4))
		hold(t, s, "a", 2500, 0)
		hold(t, s, "b", test.last, 1, 2)
		hold(t, s, "c", 2000, 3, 4, 5, 6, 7, 8)
		v, p := s.View(), Plan{}
		a := Ask{Nodes: 6, GPUsPerNode: 4, Mode: Preferred, MaxDomains: 2}
		if at, ok := Earliest(FirstFit{}, &v, &a, 1000, &p); !ok || at != test.want || len(p.Parts) != 2 {
			t.Errorf("%s: starts at %d %v in %v, want %d in two domains", name, at, ok, p.Parts, test.want)
		}
		// What the search would miss if it halved the time.
		if at, ok := halved(FirstFit{}, &v, &a, 1000, &p); ok && at == test.want {
			t.Errorf("%s: halving finds it too: the test proves nothing", name)
		}
	}
}

// TestEarliestIsWhatHalvingAllOfTheTimeFinds: where the search begins makes no difference, whoever asks and whatever is kept
// for others. (Strategies that are not steady are not halved under MaxDomains.)
func TestEarliestIsWhatHalvingAllOfTheTimeFinds(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 44))
	c := DefaultConfig()
	found := map[string]int{}
	for range 1500 {
		state := random(t, rng, 1+rng.IntN(10))
		nodes := state.Topology.Nodes
		for range rng.IntN(8) {
			state.Reserve(rng.Int32N(int32(len(nodes))), [...]string{"team-a", "team-b"}[rng.IntN(2)])
		}
		snap := state.Publish(1000)
		r := Request{GPUs: 4, Tenant: [...]string{"", "team-a"}[rng.IntN(2)], ExclusiveDomain: rng.IntN(4) == 0}
		for range rng.IntN(6) {
			r.ExcludeNodes = append(r.ExcludeNodes, nodes[rng.IntN(len(nodes))].Name)
		}
		q := question{c: &c, s: snap, r: &r, now: int64(500 + rng.IntN(3000))}
		var err error
		if q.a, err = c.ask(snap.Topology, &r); err != nil {
			t.Fatal(err)
		}
		var kept []Kept
		for n := range int32(len(nodes)) {
			if rng.IntN(12) == 0 {
				kept = append(kept, Kept{Node: n, Until: q.now + 1 + rng.Int64N(900)})
			}
		}
		q.narrow(kept)
		for _, s := range Strategies(Options{Links: DefaultLinks()}) {
			a := randomAsk(rng)
			if _, steady := s.(Steady); !steady {
				a.MaxDomains = 0
			}
			at, ok := Earliest(s, &q.v, &a, q.now, &q.p)
			shape := fmt.Sprint(q.p.Outcome, q.p.Parts)
			want, placed := halved(s, &q.v, &a, q.now, &q.p)
			if ok != placed || ok && (at != want || shape != fmt.Sprint(q.p.Outcome, q.p.Parts)) {
				t.Fatalf("%s: %d %v %s, halving finds %d %v %v, for %+v at %d of %+v", s.Name(), at, ok, shape, want, placed, q.p.Parts, a, q.now, r)
			}
			if ok && at > q.now {
				found[s.Name()]++
			}
		}
	}
	for _, s := range Strategies(Options{Links: DefaultLinks()}) {
		if found[s.Name()] < 50 {
			t.Errorf("%s has to wait %d times only: the test proves little", s.Name(), found[s.Name()])
		}
	}
}

// halved looks for the earliest start between now and the last end.
func halved(s Strategy, v *View, a *Ask, now int64, p *Plan) (at int64, ok bool) {
	try := func(at int64) bool {
		then, ask := *v, *a
		then.Free = make([]int32, len(v.Free))
		for d := range v.Free {
			if v.closed == nil || !v.closed[d] {
				then.Free[d] = max(v.FreeBy(d, now, at)-v.withheld(d), v.Free[d])
			}
		}
		ask.Waited += at - now
		s.Place(&then, &ask, p)
		return p.Outcome == Placed
	}
	lo, hi := now, now+OverdueGrace
	for _, t := range slices.Concat(v.order...) {
		if t != Never {
			hi = max(hi, t)
		}
	}
	if try(lo) {
		return lo, true
	}
	if !try(hi) {
		return 0, false
	}
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; try(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi, try(hi)
}

// TestEarliestCountsReservedNodesOnce: those that are kept for the asker are free already.
func TestEarliestCountsReservedNodesOnce(t *testing.T) {
	s := NewState(cluster(t, []int32{4}, 4))
	hold(t, s, "a", 5000, 0, 1)
	s.Reserve(2, "team-a")
	s.Reserve(3, "team-a")
	c := DefaultConfig()
	resp, err := c.Advise(s.Publish(1000), &Request{GPUs: 16, Tenant: "team-a", SparesPerDomain: new(int)}, time.Unix(1000, 0))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Recommendation != "wait for rank 1" || resp.Candidates[0].WaitS != 4000 {
		t.Errorf("got %q %+v, want to wait until both nodes that are held come free", resp.Recommendation, resp.Candidates)
	}
}

// TestWhyASplitStartsNow: what it says is of the shape that starts, not of the one that it would have had to wait for.
func TestWhyASplitStartsNow(t *testing.T) {
	s := NewState(cluster(t, []int32{4, 4}, 4))
	hold(t, s, "a", 5000, 0, 1)
	hold(t, s, "b", 9000, 4, 5)
	c := DefaultConfig()
	resp, err := c.Advise(s.Publish(1000), &Request{GPUs: 16, Mode: Unconstrained, Class: "train", SparesPerDomain: new(int)}, time.Unix(1000, 0))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Recommendation != "start rank 1" || len(resp.Candidates) != 2 || len(resp.Candidates[0].Domains) != 2 || resp.Why[0] != "no domain has it free" {
		t.Errorf("got %q because %q with %d candidates, want the split now and why", resp.Recommendation, resp.Why, len(resp.Candidates))
	}
}

// TestEarliestBoundsTheWait: a job that would rather wait starts split when its wait is over.
func TestEarliestBoundsTheWait(t *testing.T) {
	s := NewState(cluster(t, []int32{4, 4}, 4))
	hold(t, s, "a", 90_000, 0, 1)
	hold(t, s, "b", 90_000, 4, 5)
	v := s.View()
	a := Ask{Nodes: 4, GPUsPerNode: 4, Mode: Preferred, Traffic: Traffic{Pattern: AllToAll, Share: 0.1}, Waited: 100, MaxWait: 400}
	var p Plan
	at, ok := Earliest(NewBounded(DefaultLinks()), &v, &a, 1000, &p)
	if !ok || at != 1300 || len(p.Parts) != 2 {
		t.Errorf("starts at %d %v in %v, want 1300 in two domains", at, ok, p.Parts)
	}
}

// TestPlanRoomIsCheapest compares the chosen plan with every subset of jobs of each domain.
func TestPlanRoomIsCheapest(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 52))
	plans := 0
	for range 300 {
		s := NewState(cluster(t, []int32{6, 6, 6}, 4))
		for d := range int32(3) {
			for n := d * 6; n < d*6+6; {
				width := 1 + rng.Int32N(3)
				h := &Hold{Key: string('a' + n), Job: string('a' + n), Unsaved: int64(rng.IntN(9000)), Restart: 60, Preemptible: true, Priority: new(rng.Int64N(3))}
				for k := n; k < min(d*6+6, n+width); k++ {
					h.Nodes = append(h.Nodes, Share{Node: k, GPUs: 4})
				}
				if rng.IntN(8) == 0 {
					h.Priority = nil // nobody tells
				}
				if rng.IntN(3) > 0 {
					if err := s.Hold(h); err != nil {
						t.Fatal(err)
					}
				}
				n += width
			}
		}
		snap := s.Publish(10_000)
		v := snap.View()
		need := 3 + rng.Int32N(4)
		got := PlanRoom(snap, &v, need, new(int64(1)))
		best := math.Inf(1)
		for d := range int32(3) {
			if v.Free[d] >= need {
				continue // that domain needs no room made
			}
			holds := snap.Holders(d)
			for set := range 1 << len(holds) {
				cost, nodes, may := 0.0, v.Free[d], true
				for i, h := range holds {
					if set>>i&1 == 1 {
						c, _ := h.cost(10_000)
						cost, nodes, may = cost+c, nodes+int32(len(h.Nodes)), may && h.Priority != nil && *h.Priority <= 1
					}
				}
				if may && nodes >= need {
					best = min(best, cost)
				}
			}
		}
		switch {
		case got == nil && !math.IsInf(best, 1):
			t.Fatalf("no plan, one costs %v", best)
		case got != nil && math.Abs(got.CostGPUHours-best) > 0.05:
			t.Fatalf("plan %+v costs %v, %v is possible", got, got.CostGPUHours, best)
		case got != nil:
			plans++
			for _, m := range got.Moves {
				if m.To == m.From {
					t.Fatalf("a move to where it is: %+v", m)
				}
			}
		}
	}
	if plans < 100 {
		t.Fatalf("only %d plans: the test proves little", plans)
	}
}

// TestPlanRoomKeepsJobsTogether: jobs that share a node leave together, and one that may not be ended stays.
func TestPlanRoomKeepsJobsTogether(t *testing.T) {
	s := NewState(cluster(t, []int32{2, 2}, 4))
	for key, sh := range map[string]Share{"a": {0, 1}, "b": {0, 2}, "c": {2, 4}, "d": {3, 4}} {
		if err := s.Hold(&Hold{Key: key, Job: key, Nodes: []Share{sh}, Unsaved: -1, Restart: -1, Preemptible: key == "a" || key == "b"}); err != nil {
			t.Fatal(err)
		}
	}
	snap := s.Publish(0)
	v := snap.View()
	m := PlanRoom(snap, &v, 2, nil)
	if m == nil || len(m.Moves) != 2 || m.Opens != "nvl-0000" || m.CostKnown || m.Moves[0].To != "" {
		t.Errorf("plan %+v, want a and b to end and a cost that is assumed", m)
	}
}

func TestOnlyKnownPrioritiesMakeRoomForAKnownOne(t *testing.T) {
	for name, test := range map[string]struct {
		holds, asks *int64
		moves       bool
	}{
		"a lower priority moves":                   {new(int64(1)), new(int64(2)), true},
		"an equal one moves":                       {new(int64(0)), new(int64(0)), true},
		"a higher one stays":                       {new(int64(1)), new(int64(0)), false},
		"an unknown one stays":                     {nil, new(int64(5)), false},
		"any moves where the asker gives none":     {new(int64(9)), nil, true},
		"an unknown one for one that is not given": {nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewState(cluster(t, []int32{2, 2}, 4))
			for node := range int32(2) {
				key := string('a' + node)
				if err := s.Hold(&Hold{Key: key, Job: key, Nodes: []Share{{node, 4}}, Preemptible: true, Priority: test.holds, Restart: -1, Unsaved: -1}); err != nil {
					t.Fatal(err)
				}
			}
			for node := range int32(2) { // the other domain is held for good
				key := string('y' + node)
				if err := s.Hold(&Hold{Key: key, Job: key, Nodes: []Share{{node + 2, 4}}}); err != nil {
					t.Fatal(err)
				}
			}
			snap := s.Publish(0)
			v := snap.View()
			m := PlanRoom(snap, &v, 2, test.asks)
			if (m != nil) != test.moves {
				t.Fatalf("got %+v, want a plan: %v", m, test.moves)
			}
			if m != nil && m.Moves[0].Priority != test.holds {
				t.Errorf("a move tells priority %v, want %v", m.Moves[0].Priority, test.holds)
			}
		})
	}
}

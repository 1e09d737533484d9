package advise

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// cluster builds a topology of domains with these sizes, in racks of four domains per block.
func cluster(t testing.TB, sizes []int32, gpus int) *Topology {
	t.Helper()
	var specs []NodeSpec
	for d, size := range sizes {
		for n := range size {
			specs = append(specs, NodeSpec{
				Name: fmt.Sprintf("d%04d-n%02d", d, n), Domain: fmt.Sprintf("nvl-%04d", d), Model: "GB200", GPUs: gpus,
				Path: []string{"spine", fmt.Sprintf("block-%d", d/4)},
			})
		}
	}
	topo, err := NewTopology(7, []string{"spine", "block"}, specs)
	if err != nil {
		t.Fatal(err)
	}
	return topo
}

// random fills a cluster with holds and faults.
func random(t testing.TB, rng *rand.Rand, domains int) *State {
	t.Helper()
	sizes := make([]int32, domains)
	for i := range sizes {
		sizes[i] = 18
		if rng.IntN(8) == 0 {
			sizes[i] = int32(1 + rng.IntN(18))
		}
	}
	s := NewState(cluster(t, sizes, 4))
	n := len(s.Topology.Nodes)
	for i := 0; i < n; {
		width := 1 + rng.IntN(12)
		h := &Hold{Key: fmt.Sprint("a", i), Job: fmt.Sprint("job", i), Start: 1, End: 1000 + rng.Int64N(100_000), Unsaved: rng.Int64N(3600), Restart: 60}
		if rng.IntN(10) == 0 {
			h.End = 0
		}
		if h.End > 0 && rng.IntN(4) > 0 {
			h.Late = h.End + h.End/2
		}
		h.Probe = rng.IntN(20) == 0
		h.Preemptible = rng.IntN(2) == 0
		for k := i; k < min(n, i+width); k++ {
			h.Nodes = append(h.Nodes, Share{Node: int32(k), GPUs: 4})
		}
		if rng.IntN(3) == 0 {
			h.Nodes = []Share{{Node: int32(i), GPUs: 1 + rng.Int32N(3)}}
		}
		if rng.IntN(3) > 0 {
			if err := s.Hold(h); err != nil {
				t.Fatal(err)
			}
		}
		i += width
	}
	for range n / 30 {
		s.SetUsable(rng.Int32N(int32(n)), [...]int32{0, 0, 3}[rng.IntN(3)])
	}
	return s
}

func randomAsk(rng *rand.Rand) Ask {
	a := Ask{
		GPUsPerNode: 4, Nodes: 1 + rng.Int32N(60), Mode: [...]Mode{Required, Preferred, Unconstrained}[rng.IntN(3)],
		MaxDomains: rng.Int32N(5), Spares: rng.Int32N(4), Waited: rng.Int64N(100_000), Duration: rng.Int64N(20_000), MaxWait: rng.Int64N(50_000) - 1,
		Traffic: Traffic{Pattern: [...]Pattern{AllReduce, AllToAll, PatternNone, PatternUnknown}[rng.IntN(4)], Share: rng.Float64()/4 - 0.05},
	}
	if rng.IntN(3) == 0 {
		a.Segment = 1 + rng.Int32N(16)
		a.Nodes = a.Segment * (1 + rng.Int32N(6))
	}
	if rng.IntN(5) == 0 {
		a.Nodes, a.Segment, a.Shared = 1, 0, 1+rng.Int32N(3)
	}
	return a
}

// TestEveryStrategyKeepsTheRules holds each listed strategy to the rules of the Strategy interface, on random clusters.
func TestEveryStrategyKeepsTheRules(t *testing.T) {
	for _, o := range []Options{{Links: DefaultLinks()}, {Links: DefaultLinks(), BlockSizes: []int32{16}}, {Links: DefaultLinks(), BlockSizes: []int32{16, 32, 64}}} {
		for _, s := range Strategies(o) {
			t.Run(fmt.Sprint(s.Name(), o.BlockSizes), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, 2))
				var plan, again Plan
				placed := 0
				for range 60 {
					state := random(t, rng, 1+rng.IntN(24))
					v := state.View()
					for range 60 {
						a := randomAsk(rng)
						s.Place(&v, &a, &plan)
						if problem := broken(&v, &a, &plan); problem != "" {
							t.Fatalf("%s: %s for %+v: %+v, free %v", s.Name(), problem, a, plan.Parts, v.Free)
						}
						s.Place(&v, &a, &again)
						if fmt.Sprint(again.Parts, again.Outcome) != fmt.Sprint(plan.Parts, plan.Outcome) {
							t.Fatalf("%s: asked twice, answered %v and %v", s.Name(), plan.Parts, again.Parts)
						}
						if plan.Outcome == Placed {
							placed++
						}
					}
				}
				if placed < 500 {
					t.Fatalf("only %d asks were placed: the test proves little", placed)
				}
			})
		}
	}
}

// broken names the first rule that a plan breaks; "" for none.
func broken(v *View, a *Ask, p *Plan) string {
	if p.Outcome == NoFit {
		if len(p.Parts) > 0 {
			return "parts without a fit"
		}
		return ""
	}
	if a.Shared > 0 {
		if len(p.Parts) != 1 || p.Parts[0].Nodes != 1 {
			return "a shared job is not on one node"
		}
		return ""
	}
	sum := int32(0)
	seen := map[int32]bool{}
	for _, part := range p.Parts {
		sum += part.Nodes
		size := v.Topology.Domains[part.Domain].Count
		switch {
		case part.Nodes < 1:
			return "an empty part"
		case seen[part.Domain]:
			return "a domain twice"
		case part.Nodes > v.Free[part.Domain]:
			return "more than is free"
		case size > a.Spares && part.Nodes > size-a.Spares:
			return "spare nodes taken"
		case a.Segment > 0 && part.Nodes%a.Segment != 0:
			return "a broken segment"
		}
		seen[part.Domain] = true
	}
	switch {
	case sum != a.Nodes:
		return "not the nodes asked"
	case a.Mode == Required && a.Segment == 0 && len(p.Parts) > 1:
		return "required crosses"
	case a.MaxDomains > 0 && len(p.Parts) > max(1, int(a.MaxDomains)):
		return "too many domains"
	}
	return ""
}

// TestNoStrategySplitsWhatOneDomainHolds: all but first-fit, which knows no topology, and kueue-least-free, which begins at
// the widest level, take one domain where one has room.
func TestNoStrategySplitsWhatOneDomainHolds(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var p Plan
	for range 100 {
		state := random(t, rng, 1+rng.IntN(24))
		v := state.View()
		for range 30 {
			a := randomAsk(rng)
			a.Segment, a.Shared = 0, 0
			sum, most := p.survey(&v, &a)
			if most < a.Nodes || sum < a.Nodes {
				continue
			}
			for _, s := range Strategies(Options{Links: DefaultLinks(), BlockSizes: []int32{18}}) {
				if s.Name() == "first-fit" || s.Name() == "kueue-least-free" {
					continue
				}
				if s.Place(&v, &a, &p); p.Outcome != Placed || len(p.Parts) != 1 {
					t.Fatalf("%s answers %v %v for %d nodes where a domain has %d free", s.Name(), p.Outcome, p.Parts, a.Nodes, most)
				}
			}
		}
	}
}

// TestBalancedIsFair: no other way to share over the same number of domains has a larger smallest part.
func TestBalancedIsFair(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		n := 2 + rng.IntN(4)
		state := NewState(cluster(t, make18(n), 4))
		v := state.View()
		free := make([]int32, n)
		for i := range free {
			free[i] = rng.Int32N(19)
		}
		v.Free = free
		a := Ask{Nodes: 2 + rng.Int32N(40), GPUsPerNode: 4, Mode: Preferred}
		var p Plan
		sum, most := p.survey(&v, &a)
		if sum < a.Nodes {
			continue
		}
		p.sort(n, most)
		m := p.fewest(a.Nodes)
		if m < 2 {
			continue
		}
		p.balanced(&a, m)
		got, _ := shape(p.Parts, 1)
		if problem := broken(&v, &a, &p); p.Outcome == Placed && problem != "" {
			t.Fatal(problem)
		}
		if want := fairest(free, a.Nodes, m); got != want || len(p.Parts) != m {
			t.Fatalf("free %v, %d nodes over %d: smallest part %d of %v, %d is possible", free, a.Nodes, m, got, p.Parts, want)
		}
	}
}

func make18(n int) []int32 {
	sizes := make([]int32, n)
	for i := range sizes {
		sizes[i] = 18
	}
	return sizes
}

// fairest is the largest smallest part of any way to share nodes over exactly m domains.
func fairest(free []int32, nodes int32, m int) int32 {
	for k := nodes / int32(m); k > 0; k-- {
		count, room := 0, int32(0)
		top := append([]int32(nil), free...)
		for range m { // the m largest
			best := -1
			for i, n := range top {
				if n >= k && (best < 0 || n > top[best]) {
					best = i
				}
			}
			if best < 0 {
				break
			}
			count++
			room += top[best]
			top[best] = -1
		}
		if count == m && room >= nodes {
			return k
		}
	}
	return 0
}

// TestPlaceAllocatesNothing: a question costs no memory once the plan has grown to the cluster.
func TestPlaceAllocatesNothing(t *testing.T) {
	state := random(t, rand.New(rand.NewPCG(9, 9)), 200)
	v := state.View()
	rng := rand.New(rand.NewPCG(9, 10))
	asks := make([]Ask, 64)
	for i := range asks {
		asks[i] = randomAsk(rng)
	}
	for _, s := range Strategies(Options{Links: DefaultLinks()}) {
		var p Plan
		place := func() {
			for i := range asks {
				s.Place(&v, &asks[i], &p)
			}
		}
		place()
		if n := testing.AllocsPerRun(10, place); n > 0 {
			t.Errorf("%s: %v allocations in %d questions", s.Name(), n, len(asks))
		}
	}
}

// TestEveryStrategyHasCases: adding one means a line in the list and a file of cases.
func TestEveryStrategyHasCases(t *testing.T) {
	names := map[string]bool{}
	for _, s := range Strategies(Options{Links: DefaultLinks()}) {
		if names[s.Name()] {
			t.Errorf("two strategies are called %q", s.Name())
		}
		names[s.Name()] = true
		if n := len(cases(t, s.Name())); n < 4 {
			t.Errorf("testdata/%s.txtar has %d cases: write at least 4", s.Name(), n)
		}
		if found, ok := Named(s.Name(), Options{Links: DefaultLinks()}); !ok || found.Name() != s.Name() {
			t.Errorf("Named does not find %q", s.Name())
		}
	}
	if _, ok := Named("no such", Options{}); ok {
		t.Error("Named finds a strategy that does not exist")
	}
}

// TestSameSnapshotSameBytes: the response is a function of snapshot, request and time alone.
func TestSameSnapshotSameBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 20 {
		state := random(t, rng, 12)
		snap := state.Publish(1000)
		c := DefaultConfig()
		for range 10 {
			r := Request{GPUs: 4 * (1 + rng.IntN(40)), Class: "train-moe", DurationS: 3600, Preempt: "plan"}
			one, two := adviceJSON(t, &c, snap, &r), adviceJSON(t, &c, snap, &r)
			if !bytes.Equal(one, two) {
				t.Fatalf("two answers:\n%s\n%s", one, two)
			}
		}
	}
}

package advise

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestWhatIsSaidOfThePastIsWhatIsSaidOfNow: both measure the same free nodes alike.
func TestWhatIsSaidOfThePastIsWhatIsSaidOfNow(t *testing.T) {
	rng := rand.New(rand.NewPCG(71, 72))
	mix := DefaultConfig().Mix
	for range 100 {
		sizes := make([]int32, 1+rng.IntN(6))
		for i := range sizes {
			sizes[i] = 1 + rng.Int32N(18)
		}
		s := NewState(cluster(t, sizes, 4))
		for n := range int32(len(s.Topology.Nodes)) {
			if rng.IntN(2) == 0 {
				s.SetUsable(n, 0)
			}
		}
		v := s.View()
		now, _ := Fragment(&v, mix, 100)
		size := int32(len(now.Slots))
		past := Measure(v.Free, size, mix)
		want := Measures{FreeNodes: now.FreeNodes, Largest: now.Largest, ByNodes: now.Slots, Cliff: now.Cliff, External: now.External, Phi: now.Phi}
		if diff := cmp.Diff(want, past, cmpopts.IgnoreUnexported(Measures{})); diff != "" {
			t.Fatalf("%v of %v: %s", v.Free, sizes, diff)
		}
	}
}

// TestASlotIsOfOneModel: free nodes of two models never make one slot, and each model has its own figures.
func TestASlotIsOfOneModel(t *testing.T) {
	var specs []NodeSpec
	for domain, model := range map[string]string{"g1": "GB200", "g2": "GB200", "h1": "H100", "h2": "H100", "x": ""} {
		for n := range 4 {
			gpus := 4
			if model == "H100" {
				gpus = 8
			}
			if domain == "x" && n > 1 {
				continue
			}
			specs = append(specs, NodeSpec{Name: fmt.Sprint(domain, n), Domain: domain, Model: model, GPUs: gpus})
		}
	}
	topo, err := NewTopology(1, nil, specs)
	if err != nil {
		t.Fatal(err)
	}
	s := NewState(topo)
	for _, name := range []string{"g11", "g12", "g13", "g20", "g21", "h10", "h11", "h12"} { // free: 1 and 2, 1 and 4, 2
		n, _ := topo.Node(name)
		if err := s.Hold(&Hold{Key: name, Job: name, Nodes: []Share{{n, topo.Nodes[n].GPUs}}, End: 50}); err != nil {
			t.Fatal(err)
		}
	}
	view := s.View()
	all, models := Fragment(&view, []Gang{{Nodes: 2, Weight: 1}}, 10)
	gb, h := "GB200", "H100"
	want := []ModelFragmentation{
		{Model: &gb, GPUsPerNode: 4, Domains: 2, Fragmentation: Fragmentation{FreeNodes: 3, Largest: 2,
			Slots: []int32{3, 1, 0, 0}, Ideal: []int32{3, 1, 1, 0}, Cliff: []float64{1, 1, 0, 1}, Stranded: []int32{0, 4, 12, 12}, Drain: []int64{0, 0, 50, 50},
			External: 1 - 2./3, PhiNodes: 1, Phi: 1. / 3}},
		{Model: &h, GPUsPerNode: 8, Domains: 2, Fragmentation: Fragmentation{FreeNodes: 5, Largest: 4,
			Slots: []int32{5, 2, 1, 1}, Ideal: []int32{5, 2, 1, 1}, Cliff: []float64{1, 1, 1, 1}, Stranded: []int32{0, 8, 8, 8}, Drain: []int64{0, 0, 0, 0},
			External: 0, PhiNodes: 1, Phi: 1. / 5}},
		{GPUsPerNode: 4, Domains: 1, Fragmentation: Fragmentation{FreeNodes: 2, Largest: 2,
			Slots: []int32{2, 1}, Ideal: []int32{2, 1}, Cliff: []float64{1, 1}, Stranded: []int32{0, 0}, Drain: []int64{0, 0}}},
	}
	if diff := cmp.Diff(want, models, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Error(diff)
	}
	// Together ten nodes are free: two full domains and a half, had they been of one model.
	if diff := cmp.Diff(Fragmentation{FreeNodes: 10, Largest: 4, Slots: []int32{10, 4, 1, 1}, Ideal: []int32{10, 4, 2, 1}, Cliff: []float64{1, 1, .5, 1},
		Stranded: []int32{0, 12, 28, 28}, Drain: []int64{0, 0, 0, 0}, External: 0, PhiNodes: 2, Phi: .2}, all); diff != "" {
		t.Error(diff)
	}
}

// TestATenantHasItsOwnFreeNodes: what is reserved for it is free to it, in all that is counted, and to nobody else.
func TestATenantHasItsOwnFreeNodes(t *testing.T) {
	s := NewState(cluster(t, []int32{4, 4}, 4))
	for _, n := range []int32{0, 1, 4} {
		s.Reserve(n, "team-a")
	}
	s.Reserve(5, "team-b")
	hold(t, s, "1", 90, 4)
	snap := s.Publish(10)
	for tenant, want := range map[string]struct {
		free, largest int32
		drain         int64 // of four nodes
		slots         int32 // of two nodes
	}{
		"":       {4, 2, -1, 2},
		"team-a": {6, 4, 0, 3},
		"team-b": {5, 3, -1, 2},
		"other":  {4, 2, -1, 2},
	} {
		v := new(Config).ViewFor(snap, "", tenant)
		f, _ := Fragment(&v, nil, 10)
		if f.FreeNodes != want.free || f.Largest != want.largest || f.Drain[3] != want.drain {
			t.Errorf("%q: got %+v, want %+v", tenant, f, want)
		}
		slots := int32(0)
		for _, d := range new(Config).Slots(snap, 8, "", tenant) {
			slots += d.Slots
		}
		if slots != want.slots || slots != f.Slots[1] {
			t.Errorf("%q: %d slots of two nodes, %d by the other count, want %d", tenant, slots, f.Slots[1], want.slots)
		}
	}
}

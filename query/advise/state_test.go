package advise

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recount counts a state's figures the slow way, from the holds.
func recount(s *State) (free, healthy, held, probed []int32) {
	d := len(s.Topology.Domains)
	free, healthy, held, probed = make([]int32, d), make([]int32, d), make([]int32, d), make([]int32, d)
	for n, node := range s.Topology.Nodes {
		used, probe := int32(0), int32(0)
		for _, h := range s.holds {
			for _, sh := range h.Nodes {
				if sh.Node == int32(n) && h.Probe {
					probe += sh.GPUs
				} else if sh.Node == int32(n) {
					used += sh.GPUs
				}
			}
		}
		whole := int32(s.usable[n]) == node.GPUs
		if whole {
			healthy[node.Domain]++
		}
		if used > 0 {
			held[node.Domain]++
		}
		if whole && used == 0 && s.tenant[n] == 0 {
			free[node.Domain]++
			if probe > 0 {
				probed[node.Domain]++
			}
		}
	}
	return free, healthy, held, probed
}

// TestStateCountsWhatHoldsSay drives a state at random and recounts it after each change.
func TestStateCountsWhatHoldsSay(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	s := NewState(cluster(t, []int32{18, 4, 18, 1}, 4))
	nodes := int32(len(s.Topology.Nodes))
	var busy, asTheyWere []string
	var published []*Snapshot
	for step := range 2000 {
		switch rng.IntN(5) {
		case 0, 1:
			key := fmt.Sprint("k", rng.IntN(40))
			h := &Hold{Key: key, Job: key, End: rng.Int64N(500), Probe: rng.IntN(4) == 0}
			for range 1 + rng.IntN(6) {
				n := rng.Int32N(nodes)
				taken := slices.ContainsFunc(h.Nodes, func(sh Share) bool { return sh.Node == n })
				if !taken && int32(s.used[n])+int32(s.probes[n]) == 0 {
					h.Nodes = append(h.Nodes, Share{Node: n, GPUs: 1 + rng.Int32N(4)})
				}
			}
			if len(h.Nodes) > 0 {
				if err := s.Hold(h); err != nil {
					t.Fatal(err)
				}
				busy = append(busy, key)
			}
		case 2:
			if len(busy) > 0 {
				s.Release(busy[rng.IntN(len(busy))])
			}
		case 3:
			s.SetUsable(rng.Int32N(nodes), [...]int32{0, 2, 4, 9}[rng.IntN(4)])
		case 4:
			s.Reserve(rng.Int32N(nodes), [...]string{"", "", "team-a"}[rng.IntN(3)])
		}
		free, healthy, held, probed := recount(s)
		counted := make([]int32, len(s.usage))
		for d, u := range s.usage {
			counted[d] = u.probed
		}
		got, want := [][]int32{s.free, s.healthy, s.held, counted}, [][]int32{free, healthy, held, probed}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("step %d: %s", step, diff)
		}
		v := s.View()
		for d := range s.Topology.Domains {
			if n := v.FreeBy(d, 0, 0); n != s.free[d] {
				t.Fatalf("step %d, domain %d: %d free by the ends, %d by the count", step, d, n, s.free[d])
			}
		}
		if rng.IntN(3) > 0 {
			continue
		}
		snap := s.Publish(int64(step))
		if !reflect.DeepEqual(snap.counts, s.counts) {
			t.Fatalf("step %d: published %+v of %+v", step, snap.counts, s.counts)
		}
		whole := usage{}
		for n := range nodes {
			held, down := s.used[n] > 0, s.usable[n] == 0
			whole.held += one(held)
			whole.estimated += one(held && s.freeAt[n] != Never)
			whole.down += one(down)
			whole.busy += one(held && !down)
			whole.lame += one(!held && !down && !s.whole(s.Topology, int32(n)))
		}
		if snap.usage != whole || snap.Held != int(whole.held) || snap.Estimated != int(whole.estimated) {
			t.Fatalf("step %d: published %+v, counted %+v", step, snap.usage, whole)
		}
		published = append(published, snap)
		asTheyWere = append(asTheyWere, fmt.Sprint(snap.counts, snap.usage, snap.byDom, snap.tenants))
	}
	for i, snap := range published {
		if fmt.Sprint(snap.counts, snap.usage, snap.byDom, snap.tenants) != asTheyWere[i] {
			t.Fatalf("snapshot %d changed after it was published", snap.Seq)
		}
	}
}

func one(is bool) int32 {
	if is {
		return 1
	}
	return 0
}

// TestSnapshotsDoNotChange: readers use snapshots without a lock while the writer goes on. Run it with -race.
func TestSnapshotsDoNotChange(t *testing.T) {
	s := NewState(cluster(t, []int32{18, 18, 18}, 4))
	s.Publish(0)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var p Plan
			a := Ask{Nodes: 4, GPUsPerNode: 4, Mode: Preferred, MaxWait: -1}
			for {
				snap := s.Current()
				v := snap.View()
				sum, holders := int32(0), 0
				for d := range v.Free {
					sum += v.Free[d]
					holders += len(snap.Holders(int32(d)))
				}
				if int(sum) != 54-4*holders {
					t.Errorf("snapshot %d: %d nodes free with %d holders of 4", snap.Seq, sum, holders)
					return
				}
				NewBounded(DefaultLinks()).Place(&v, &a, &p)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 3000 {
		key := fmt.Sprint(rng.IntN(12))
		if !s.Release(key) {
			d := s.Topology.Domains[rng.IntN(3)]
			slot := d.First + 4*rng.Int32N(4)
			if s.used[slot] == 0 {
				h := &Hold{Key: key, Job: key}
				for n := slot; n < slot+4; n++ {
					h.Nodes = append(h.Nodes, Share{Node: n, GPUs: 4})
				}
				if err := s.Hold(h); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.Publish(int64(i))
	}
	close(done)
	wg.Wait()
}

func TestTopologyRefusesWhatItCannotMean(t *testing.T) {
	ok := NodeSpec{Name: "a", Domain: "d", GPUs: 4, Path: []string{"s"}}
	with := func(edit func(*NodeSpec)) NodeSpec { n := ok; edit(&n); return n }
	for name, c := range map[string]struct {
		specs []NodeSpec
		want  string
	}{
		"a node without GPUs":       {[]NodeSpec{with(func(n *NodeSpec) { n.GPUs = 0 })}, "give 1 to 16"},
		"a node twice":              {[]NodeSpec{ok, ok}, "list each node once"},
		"a path of the wrong depth": {[]NodeSpec{with(func(n *NodeSpec) { n.Path = nil })}, "name every level"},
		"two models in one domain":  {[]NodeSpec{ok, with(func(n *NodeSpec) { n.Name, n.Model = "b", "H100" })}, "disagrees"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewTopology(1, []string{"spine"}, c.specs); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestUnknownIsNeverEqual: domains without a known block share none.
func TestUnknownIsNeverEqual(t *testing.T) {
	topo, err := NewTopology(1, []string{"block"}, []NodeSpec{
		{Name: "a", Domain: "1", GPUs: 4, Path: []string{""}}, {Name: "b", Domain: "2", GPUs: 4, Path: []string{""}},
		{Name: "c", Domain: "3", GPUs: 4, Path: []string{"x"}}, {Name: "d", Domain: "4", GPUs: 4, Path: []string{"x"}},
		{Name: "e", GPUs: 4, Path: []string{"x"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := topo.Common([]Part{{0, 1}, {1, 1}}); got != -1 {
		t.Errorf("two unknown blocks are taken for one: level %d", got)
	}
	if got := topo.Common([]Part{{2, 1}, {3, 1}}); got != 0 {
		t.Errorf("one block is not seen: level %d", got)
	}
	if diff := cmp.Diff([]string{"e"}, topo.Unknown); diff != "" {
		t.Error(diff)
	}
}

func TestHoldRefusesStrangeNodes(t *testing.T) {
	s := NewState(cluster(t, []int32{2}, 4))
	for _, sh := range []Share{{Node: 2, GPUs: 4}, {Node: -1, GPUs: 4}, {Node: 0, GPUs: 5}, {Node: 0, GPUs: 0}} {
		if err := s.Hold(&Hold{Key: "x", Nodes: []Share{sh}}); err == nil {
			t.Errorf("a share %+v was taken", sh)
		}
	}
}

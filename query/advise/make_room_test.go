package advise

import (
	"fmt"
	"testing"
	"time"
)

// TestJobsMakeRoomOnlyWhereTheyMayGo: not in nodes that are kept for the asker, nor in those of another GPU model.
func TestJobsMakeRoomOnlyWhereTheyMayGo(t *testing.T) {
	for name, test := range map[string]struct {
		reserve bool
		model   string
		to      string
	}{
		"free nodes of the same model": {false, "GB200", "b"},
		"nodes kept for the asker":     {true, "GB200", ""},
		"another model":                {false, "H100", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var specs []NodeSpec
			for i := range 3 {
				specs = append(specs, NodeSpec{Name: fmt.Sprint("a", i), Domain: "a", GPUs: 4, Model: "GB200"})
			}
			for i := range 2 {
				specs = append(specs, NodeSpec{Name: fmt.Sprint("b", i), Domain: "b", GPUs: 4, Model: test.model})
			}
			topo, err := NewTopology(1, nil, specs)
			if err != nil {
				t.Fatal(err)
			}
			s := NewState(topo)
			held, _ := topo.Node("a0")
			if err := s.Hold(&Hold{Key: "7", Job: "7", Nodes: []Share{{held, 4}}, End: 9_000, Preemptible: true, Unsaved: -1, Restart: -1}); err != nil {
				t.Fatal(err)
			}
			if test.reserve {
				for _, node := range []string{"b0", "b1"} {
					n, _ := topo.Node(node)
					s.Reserve(n, "team")
				}
			}
			c := DefaultConfig()
			got, err := c.Advise(s.Publish(100), &Request{GPUs: 12, Tenant: "team", Mode: Required, Preempt: "plan"}, time.Unix(100, 0))
			if err != nil {
				t.Fatal(err)
			}
			if m := got.MakeRoom; m == nil || len(m.Moves) != 1 || m.Moves[0].To != test.to {
				t.Errorf("got %+v, want job 7 to go to %q", m, test.to)
			}
		})
	}
}

// TestWhoMayNotBeEndedYetIsNoVictimBefore: three domains of two nodes, each held by one job that has nowhere else to go.
func TestWhoMayNotBeEndedYetIsNoVictimBefore(t *testing.T) {
	const now = 10_000
	type held struct {
		from      int64 // 0 = may be ended now
		never     bool
		nodes     int32 // of two; 0 = both
		saveEvery int64
	}
	for name, test := range map[string]struct {
		holds  [3]held
		opens  string
		before int64 // when the plan begins; 0 = now
		cost   float64
	}{
		"whose time is over may be ended now":                     {[3]held{{from: now}, {never: true}, {never: true}}, "nvl-0000", 0, 4},
		"a dearer one that may be ended now goes first":           {[3]held{{from: now + 60, saveEvery: 1000}, {}, {from: now + 60, saveEvery: 1000}}, "nvl-0001", 0, 4},
		"where nobody may yet, the one that may soonest":          {[3]held{{from: now + 900}, {from: now + 300}, {never: true}}, "nvl-0001", now + 300, 8 * 2100 / 3600.},
		"of those that may at once the cheapest":                  {[3]held{{from: now + 300}, {from: now + 300, saveEvery: 500}, {from: now + 300}}, "nvl-0001", now + 300, 8 * 600 / 3600.},
		"one that may never be ended is no matter of time":        {[3]held{{never: true, from: now + 60}, {never: true}, {never: true}}, "", 0, 0},
		"who can go on elsewhere goes now, exempt or not":         {[3]held{{from: now + 900, nodes: 1}, {never: true, nodes: 1}, {never: true}}, "nvl-0000", 0, 2},
		"of exempt and never endable ones in turn, the soonest":   {[3]held{{never: true}, {from: now + 300}, {from: now + 200}}, "nvl-0002", now + 200, 8 * 2000 / 3600.},
		"the same instant and price: the first domain, each time": {[3]held{{from: now + 300}, {from: now + 300}, {from: now + 300}}, "nvl-0000", now + 300, 8 * 2100 / 3600.},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewState(cluster(t, []int32{2, 2, 2}, 4))
			for d, h := range test.holds {
				hold := &Hold{Key: fmt.Sprint(d), Job: fmt.Sprint(d), Start: now - 1200, Saved: now - 1200, SaveEvery: h.saveEvery, Restart: 600,
					Preemptible: !h.never, PreemptibleFrom: h.from}
				for n := range int32(2) {
					if h.nodes == 0 || n < h.nodes {
						hold.Nodes = append(hold.Nodes, Share{Node: int32(2*d) + n, GPUs: 4})
					}
				}
				if err := s.Hold(hold); err != nil {
					t.Fatal(err)
				}
			}
			snap := s.Publish(now)
			v := snap.View()
			m := PlanRoom(snap, &v, 2, nil)
			if test.opens == "" {
				if m != nil {
					t.Fatalf("got %+v, want no plan", m)
				}
				return
			}
			if m == nil || m.Opens != test.opens || len(m.Moves) != 1 {
				t.Fatalf("got %+v, want %s to be opened by one move", m, test.opens)
			}
			before := int64(0)
			if m.NotBefore != nil {
				before = m.NotBefore.Unix()
			}
			if before != test.before || (m.Moves[0].NotBefore != nil) != (test.before != 0) {
				t.Errorf("begins at %d, want %d: %+v", before, test.before, m)
			}
			if m.CostGPUHours != round(test.cost, 2) || !m.CostKnown {
				t.Errorf("costs %v, want %v", m.CostGPUHours, round(test.cost, 2))
			}
		})
	}
}

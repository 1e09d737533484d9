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

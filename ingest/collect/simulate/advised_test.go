package simulate

import (
	"slices"
	"testing"

	"github.com/spillway-io/spillway/schemas/event"
)

// TestAnAdvisedPartitionGoesWhereItIsTold asks a stand-in advisor and looks where jobs of the advised half land.
func TestAnAdvisedPartitionGoesWhereItIsTold(t *testing.T) {
	cluster := DefaultCluster()
	cluster.Racks, cluster.DegradedRacks, cluster.NodeMTBF, cluster.ProbeEvery = 8, 0, 0, 0
	cluster.Partitions = []Partition{{Name: "flat", Policy: PolicyFlat}, {Name: "advised", Policy: PolicyAdvised}}
	s := newSim(1, cluster, clock{Speed: 1}, 1)
	p := s.parts[1]
	last := p.pool.first + len(p.pool.free) - 18 // the first node of the partition's last rack
	asked := 0
	answer := func(q Question) Answer {
		asked++
		if len(q.Elsewhere) != 4*18 || slices.Contains(q.Elsewhere, s.fleet.name[last]) {
			t.Errorf("the question names %d nodes of other partitions, want 72", len(q.Elsewhere))
		}
		return Answer{Opinion: true, Nodes: slices.Clone(s.fleet.name[last : last+2])}
	}
	place := func(gpus int) []int {
		return s.choose(p, &job{ID: 7, Part: 1, GPUs: gpus, Limit: 1000, State: event.State_PENDING})
	}
	if got := place(8); !slices.Equal(got, []int{p.pool.first, p.pool.first + 1}) || asked != 0 {
		t.Errorf("nobody advises: got %v, want the first free nodes", got)
	}
	s.ask = answer
	if got := place(8); !slices.Equal(got, []int{last, last + 1}) || asked != 1 {
		t.Errorf("got %v, want the nodes advised", got)
	}
	p.pool.set(last, 0)
	if got := place(8); !slices.Equal(got, []int{last + 1, last + 2}) {
		t.Errorf("a node was taken since: got %v, want another of its rack", got)
	}
	for n := last; n < last+17; n++ {
		p.pool.set(n, 0)
	}
	if got := place(8); got != nil {
		t.Errorf("the rack is full: got %v, want to ask again", got)
	}
	s.ask = func(Question) Answer { return Answer{Opinion: true} }
	if got := place(8); got != nil {
		t.Errorf("told to wait: got %v", got)
	}
	s.ask = func(Question) Answer { return Answer{} }
	if got := place(8); !slices.Equal(got, []int{p.pool.first, p.pool.first + 1}) {
		t.Errorf("no opinion: got %v, want the first free nodes", got)
	}
}

package advise

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		now := Fragment(&v, mix, 100)
		size := int32(len(now.Slots))
		past := Measure(v.Free, size, mix)
		want := Measures{FreeNodes: now.FreeNodes, Largest: now.Largest, ByNodes: now.Slots, Cliff: now.Cliff, External: now.External, Phi: now.Phi}
		if diff := cmp.Diff(want, past); diff != "" {
			t.Fatalf("%v of %v: %s", v.Free, sizes, diff)
		}
	}
}

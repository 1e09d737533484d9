package advise

// KueueLeastFree chooses as Kueue's topology-aware scheduling does for a gang that asks for slices at the level of domains
// (of its segment, or of one pod) and for nothing wider, with its LeastFreeCapacity: at the widest level the group with the
// fewest free nodes that suffice and, where none does, those with the fewest one after the other; at each level below
// always those with the fewest one after the other. Where domains are the widest level it keeps large slots whole at the
// price of many small parts; where a level is wider it does so even if a domain could hold all. (A gang that asks for
// nothing at all is placed by the names of nodes: FirstFit. A test compares both with Kueue 0.17.)
type KueueLeastFree struct{}

// Name is "kueue-least-free".
func (KueueLeastFree) Name() string { return "kueue-least-free" }

// Place implements Strategy.
func (KueueLeastFree) Place(v *View, a *Ask, p *Plan) {
	t := v.Topology
	need, sum := p.pods(v, a)
	if !a.allowed(2) {
		_, width := p.gather(t, len(t.groups))
		if g := p.single(width, need); g >= 0 {
			p.one(a, int(t.ranked[g]))
		}
		return
	}
	if sum < need {
		return
	}
	for level := range len(t.groups) + 1 {
		p.choose(a, t, level, need, true)
	}
	p.settle(a, 0)
}

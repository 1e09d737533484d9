package advise

// KueueLeastFree is Kueue's LeastFreeCapacity at the level of domains, as proposed for gangs that ask for nothing: the
// domain with the fewest free nodes that suffice and, where none does, the domains with the fewest free nodes one after
// the other. It keeps large slots whole at the price of many small parts.
type KueueLeastFree struct{}

// Name is "kueue-least-free".
func (KueueLeastFree) Name() string { return "kueue-least-free" }

// Place implements Strategy.
func (KueueLeastFree) Place(v *View, a *Ask, p *Plan) {
	if a.Shared > 0 {
		p.share(v, a, false)
		return
	}
	sum, most := p.survey(v, a)
	need := a.needs()
	if d := p.tightest(len(v.Free), need, false); d >= 0 {
		p.one(a, d)
		return
	}
	if sum < need || !a.allowed(2) {
		return
	}
	p.sort(len(v.Free), most)
	for i := len(p.sorted) - 1; i >= 0 && need > 0; {
		// Equals are sorted by index: go through each run of them forwards.
		n, first := p.units[p.sorted[i]], i
		for first > 0 && p.units[p.sorted[first-1]] == n {
			first--
		}
		for _, d := range p.sorted[first : i+1] {
			if need == 0 {
				break
			}
			take := min(n, need)
			p.add(a, d, take)
			need -= take
		}
		i = first - 1
	}
	p.settle(a, 0)
}

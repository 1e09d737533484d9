package advise

// KueueBestFit chooses as Kueue's topology-aware scheduling does for required and preferred gangs: the domain with the
// fewest free nodes that suffice, the first of equals. Where none suffices a preferred gang goes one level up, and at the
// top it takes the domain with most free nodes again and again and best fit for the rest. It never waits for a better
// shape. (From the description in KEP-2724 and tas_flavor_snapshot.go.)
type KueueBestFit struct{}

// Name is "kueue-best-fit".
func (KueueBestFit) Name() string { return "kueue-best-fit" }

// Place implements Strategy.
func (KueueBestFit) Place(v *View, a *Ask, p *Plan) {
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
	for level := len(v.Topology.groups) - 1; level >= 0; level-- {
		if p.narrow(v, level, need) {
			break
		}
	}
	p.sort(len(v.Free), most)
	p.greedy(a, false)
	p.settle(a, 0)
}

// narrow keeps only the units of the group at a level that has the fewest which suffice, the first of equals, and reports
// whether there is one.
func (p *Plan) narrow(v *View, level int, need int32) bool {
	groups, width := v.Topology.groups[level], v.Topology.widths[level]
	sums := p.spread[:width]
	clear(sums)
	for d, g := range groups {
		sums[g] += p.units[d]
	}
	best := int32(-1)
	for g, n := range sums {
		if n >= need && (best < 0 || n < sums[best]) {
			best = int32(g)
		}
	}
	if best < 0 {
		return false
	}
	for d, g := range groups {
		if g != best {
			p.units[d] = 0
		}
	}
	return true
}

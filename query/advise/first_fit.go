package advise

// FirstFit takes free nodes in the order of their names and, before that, of the wider levels that they are in, as
// topology-aware scheduling of Kueue does with a gang of whole nodes that asks for nothing, and as a scheduler that knows no
// topology does where names tell it. Only a Required ask makes it look for one domain, the first that fits.
type FirstFit struct{}

// Name is "first-fit".
func (FirstFit) Name() string { return "first-fit" }

// Place implements Strategy.
func (FirstFit) Place(v *View, a *Ask, p *Plan) {
	if a.Shared > 0 {
		p.share(v, a, true)
		return
	}
	p.survey(v, a)
	need := a.needs()
	if !a.allowed(2) {
		for _, d := range v.Topology.ranked {
			if p.units[d] >= need {
				p.one(a, int(d))
				return
			}
		}
		return
	}
	for _, d := range v.Topology.ranked {
		if n := min(p.units[d], need); n > 0 {
			p.add(a, d, n)
			need -= n
		}
		if need == 0 {
			break
		}
	}
	p.settle(a, need)
}

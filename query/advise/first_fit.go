package advise

// FirstFit takes free nodes in the order of their names, as a scheduler does that knows no topology, and as
// topology-aware scheduling of Kueue does with a gang of whole nodes that asks for nothing. Only a Required ask makes it
// look for one domain, the first that fits.
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
		for d := range v.Free {
			if p.units[d] >= need {
				p.one(a, d)
				return
			}
		}
		return
	}
	for d := range v.Free {
		if n := min(p.units[d], need); n > 0 {
			p.add(a, int32(d), n)
			need -= n
		}
		if need == 0 {
			break
		}
	}
	p.settle(a, need)
}

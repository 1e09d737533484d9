package advise

// share places a job that needs fewer GPUs than a node has. It goes where it leaves the fewest GPUs over on a node that
// is in use already, in the domain with the fewest free nodes; only then is a free node opened, again where fewest are. byName
// takes the first domain that has room instead, as a scheduler that knows no topology does.
func (p *Plan) share(v *View, a *Ask, byName bool) {
	p.reset(len(v.Free))
	best, left := -1, int32(0)
	for d := range v.Free {
		row := v.partial[d*maxGPUs : (d+1)*maxGPUs]
		for n := a.Shared; n < maxGPUs; n++ {
			if row[n] == 0 {
				continue
			}
			if best < 0 || n < left || n == left && !byName && v.Free[d] < v.Free[best] {
				best, left = d, n
			}
			break
		}
	}
	if best < 0 {
		for d, n := range v.Free {
			if n > 0 && v.Topology.Domains[d].GPUsPerNode >= a.Shared && (best < 0 || !byName && n < v.Free[best]) {
				best = d
			}
		}
	}
	if best < 0 {
		return
	}
	p.Parts = append(p.Parts, Part{Domain: int32(best), Nodes: 1})
	p.Outcome, p.Split = Placed, exact()
}

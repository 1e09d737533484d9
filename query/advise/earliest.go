package advise

// FreeBy is how many whole nodes of a domain are free at a time by the end estimates, for an asker at the time now. A
// holder that has outlived its estimate is expected to go on for OverdueGrace.
func (v *View) FreeBy(domain int, now, at int64) int32 {
	d := &v.Topology.Domains[domain]
	n := int32(0)
	for _, t := range v.order[d.First : d.First+d.Count] {
		switch {
		case t == 0:
			n++
		case t <= now:
			if at >= now+OverdueGrace {
				n++
			}
		case t <= at:
			n++
		default:
			return n
		}
	}
	return n
}

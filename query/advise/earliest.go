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

// later fills the plan's room with what is free at a time and returns the view of it. A domain that is closed to the asker
// now, because of its model, its partition or a tenant, stays closed.
func (v *View) later(p *Plan, now, at int64) View {
	then := *v
	if len(p.future) < len(v.Free) {
		p.future = make([]int32, len(v.Free))
	}
	then.Free = p.future[:len(v.Free)]
	for d := range v.Free {
		then.Free[d] = 0
		if v.closed == nil || !v.closed[d] {
			then.Free[d] = max(v.FreeBy(d, now, at)-v.withheld(d), v.Free[d])
		}
	}
	return then
}

// withheld is how many free nodes of a domain this asker may not take.
func (v *View) withheld(d int) int32 {
	if v.barred == nil {
		return 0
	}
	return v.barred[d]
}

// Earliest is the first second, from now on, at which the strategy would place the ask by the end estimates, with the
// plan left in p. It supposes that nothing else starts meanwhile: it is the start of a job at the head of its queue. ok is
// false where no estimate reaches it. What is free only grows with time here, so the search halves the interval; a strategy
// that can need more domains when more is free (first-fit and least-free under MaxDomains) gets a start, if one at all,
// but not always the first.
func Earliest(s Strategy, v *View, a *Ask, now int64, p *Plan) (at int64, ok bool) {
	ask := *a
	try := func(at int64) bool {
		then := v.later(p, now, at)
		ask.Waited = a.Waited + at - now
		s.Place(&then, &ask, p)
		return p.Outcome == Placed
	}
	last := now + OverdueGrace
	for _, t := range v.order {
		if t != Never {
			last = max(last, t)
		}
	}
	if try(now) {
		return now, true
	}
	if !try(last) {
		return 0, false
	}
	lo, hi := now, last // not at lo, at hi
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; try(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	try(hi)
	return hi, true
}

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
	ask, h := *a, horizon{now: now}
	h.open(v, p)
	try := func(at int64) bool {
		then := h.view(v, at)
		ask.Waited = a.Waited + at - now
		s.Place(&then, &ask, p)
		h.learn(p.Outcome == Placed)
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

// horizon is what is free at times between two that close in on each other. Each domain's count of ends is only looked for
// between those of the two, so the whole search reads each end about once.
type horizon struct {
	now     int64
	at      []int32 // per domain: ends up to the time last asked
	low     []int32 // up to the latest time that was too early
	high    []int32 // up to the earliest time that was not
	overdue []int32 // ends that should have been before now
	free    []int32
}

func (h *horizon) open(v *View, p *Plan) {
	n := len(v.Free)
	if len(p.horizon) < 5*n {
		p.horizon = make([]int32, 5*n)
	}
	room := p.horizon[:5*n]
	clear(room)
	h.at, h.low, h.high, h.overdue, h.free = room[:n], room[n:2*n], room[2*n:3*n], room[3*n:4*n], room[4*n:]
	for d := range v.Free {
		dom := &v.Topology.Domains[d]
		h.high[d] = dom.Count
		for _, t := range v.order[dom.First : dom.First+dom.Count] {
			if t > h.now {
				break
			}
			if t > 0 {
				h.overdue[d]++
			}
		}
	}
}

// view is what is free at a time. A domain that is closed to the asker now, because of its model, its partition or a
// tenant, stays closed.
func (h *horizon) view(v *View, at int64) View {
	for d := range v.Free {
		order := v.order[v.Topology.Domains[d].First:]
		i, end := h.low[d], h.high[d]
		for i < end && order[i] <= at {
			i++
		}
		h.at[d] = i
		if at < h.now+OverdueGrace {
			i -= h.overdue[d]
		}
		h.free[d] = max(i, v.Free[d])
	}
	if v.closed != nil {
		for d := range v.Free {
			h.free[d] = max(h.free[d]-v.barred[d], v.Free[d])
			if v.closed[d] {
				h.free[d] = 0
			}
		}
	}
	then := *v
	then.Free = h.free
	return then
}

// learn narrows the search after the time last asked was late enough, or was not.
func (h *horizon) learn(enough bool) {
	if enough {
		h.high, h.at = h.at, h.high
	} else {
		h.low, h.at = h.at, h.low
	}
}

package advise

import "slices"

// FreeBy is how many whole nodes of a domain are free at a time by the end estimates, for an asker at the time now. A
// holder that has outlived its estimate is expected to go on for OverdueGrace.
func (v *View) FreeBy(domain int, now, at int64) int32 {
	n := int32(0)
	for _, t := range v.order[domain] {
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
// false where no estimate reaches it. What is free only grows with time here, so the search halves an interval, which is
// short because when domains have room bounds it. A strategy that can need more domains when more is free, and so refuse
// later what it placed before (under MaxDomains all that are not Steady), is asked at every end instead.
func Earliest(s Strategy, v *View, a *Ask, now int64, p *Plan) (at int64, ok bool) {
	ask, then, h := *a, *v, horizon{now: now}
	h.open(v, p)
	try := func(at int64) bool {
		then.Free = h.freeAt(v, at)
		ask.Waited = a.Waited + at - now
		s.Place(&then, &ask, p)
		h.learn(p.Outcome == Placed)
		return p.Outcome == Placed
	}
	lo, hi := h.bounds(v, a, p)
	if lo == Never {
		p.reset(len(v.Free))
		return 0, false
	}
	if try(lo) {
		return lo, true
	}
	if _, steady := s.(Steady); !steady && a.MaxDomains > 0 && a.allowed(2) {
		for _, end := range h.ends(v, p, lo) {
			if try(end) {
				return end, true
			}
		}
		return 0, false
	}
	if hi <= lo || hi == Never || !try(hi) {
		if hi != Never {
			lo = max(lo, hi)
		}
		if hi = h.last(v); hi <= lo || !try(hi) {
			return 0, false
		}
	}
	for hi-lo > 1 { // not at lo, at hi
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
	h.at, h.low, h.high, h.overdue, h.free = room[:n], room[n:2*n], room[2*n:3*n], room[3*n:4*n], room[4*n:]
	copy(h.high, v.Topology.count)
	for d, order := range v.order {
		free, count := int32(0), int32(len(order))
		if v.closed == nil {
			free = v.Free[d] // those without an end
		}
		for free < count && order[free] == 0 {
			free++
		}
		ended := free
		for ended < count && order[ended] <= h.now {
			ended++
		}
		h.low[d], h.overdue[d] = ended, ended-free
	}
}

// bounds tells when domains have room for the ask. By the rules of every strategy it is not placed before the first of the
// two times, when some domain has the least share that one of its parts can be; Never where none ever has. At the second
// as many domains as an empty cluster would need have an even share each, which is likely to be good enough.
func (h *horizon) bounds(v *View, a *Ask, p *Plan) (first, even int64) {
	if a.Shared > 0 {
		return h.now, Never
	}
	ceil := func(n, by int32) int32 { return (n + by - 1) / by }
	need, least := a.needs(), a.needs()
	if a.allowed(2) {
		least = 1
		if a.MaxDomains > 0 {
			least = ceil(need, a.MaxDomains)
		}
	}
	domains := int(ceil(need, max(1, v.Topology.largest(a)/a.unit())))
	share := ceil(need, int32(domains))
	first, p.starts = Never, p.starts[:0]
	for d, order := range v.order {
		room := a.within(int32(len(order)))
		first = min(first, h.when(v, d, least*a.unit(), room))
		at := h.when(v, d, share*a.unit(), room)
		if n := len(p.starts); at != Never && (n < domains || at < p.starts[n-1]) {
			i, _ := slices.BinarySearch(p.starts, at)
			p.starts = slices.Insert(p.starts[:min(n, domains-1)], i, at)
		}
	}
	if len(p.starts) < domains {
		return first, Never
	}
	return first, p.starts[domains-1]
}

// when is the first time from now on at which the asker may have that many nodes of a domain, of the room that it may ever
// have there; Never where no estimate reaches it.
func (h *horizon) when(v *View, d int, nodes, room int32) int64 {
	switch {
	case nodes > room:
		return Never
	case nodes <= v.Free[d]:
		return h.now
	case v.closed != nil && v.closed[d]:
		return Never
	}
	order := v.order[d]
	nodes += v.withheld(d)
	if i := int(nodes + h.overdue[d]); i <= len(order) && order[i-1] < h.now+OverdueGrace {
		return order[i-1]
	}
	if int(nodes) > len(order) || order[nodes-1] == Never {
		return Never
	}
	return max(order[nodes-1], h.now+OverdueGrace)
}

// ends are all times after lo at which more comes free, ascending.
func (h *horizon) ends(v *View, p *Plan, lo int64) []int64 {
	out := p.starts[:0]
	for d, order := range v.order {
		last := lo
		for _, end := range order[h.low[d]:] {
			if end != Never && end > last {
				out = append(out, end)
				last = end
			}
		}
	}
	if grace := h.now + OverdueGrace; grace > lo {
		out = append(out, grace)
	}
	slices.Sort(out)
	p.starts = slices.Compact(out)
	return p.starts
}

// last is when the last node that has an estimate is free.
func (h *horizon) last(v *View) int64 {
	last := h.now + OverdueGrace
	for _, order := range v.order {
		if n, _ := slices.BinarySearch(order, Never); n > 0 {
			last = max(last, order[n-1])
		}
	}
	return last
}

// freeAt is how many nodes of each domain are free at a time. A domain that is closed to the asker now, because of its model, its partition or a
// tenant, stays closed.
func (h *horizon) freeAt(v *View, at int64) []int32 {
	grace := at < h.now+OverdueGrace
	for d, order := range v.order {
		i, end := h.low[d], h.high[d]
		for i < end && order[i] <= at {
			i++
		}
		h.at[d] = i
		if grace {
			i -= h.overdue[d]
		}
		h.free[d] = max(i-v.withheld(d), v.Free[d])
	}
	for d, closed := range v.closed {
		if closed {
			h.free[d] = 0
		}
	}
	return h.free
}

// learn narrows the search after the time last asked was late enough, or was not.
func (h *horizon) learn(enough bool) {
	if enough {
		h.high, h.at = h.at, h.high
	} else {
		h.low, h.at = h.at, h.low
	}
}

package advise

// KueueBestFit chooses as Kueue's topology-aware scheduling does for required and preferred gangs: the domain with the
// fewest free nodes that suffice, the first by name of equals. Where none suffices a preferred gang goes up level by level
// until one group suffices, and at the widest level it takes the group with most free nodes again and again and best fit
// for the rest; then it goes down again and at each level takes as few of the groups below as hold it, in the same way. It
// never waits for a better shape. Nothing is said to Kueue of how many go where: a gang without segments fills the domains
// that were taken in the order of their names, so that 18 free and 5 free give 20 nodes 15 and 5 where the five are named
// first. A segment is a slice at the level of domains and keeps its place.
//
// A test compares it with Kueue 0.17. What it does not know: nodes that take several pods of a gang, nodes that lack the
// label of a level, which Kueue leaves out, and leaders, taints and multi-layer slices.
type KueueBestFit struct{}

// Name is "kueue-best-fit".
func (KueueBestFit) Name() string { return "kueue-best-fit" }

// Place implements Strategy.
func (KueueBestFit) Place(v *View, a *Ask, p *Plan) {
	t := v.Topology
	need, sum := p.pods(v, a)
	domains := len(t.groups)
	level := domains
	for ; level >= 0; level-- {
		if _, width := p.gather(t, level); p.single(width, need) >= 0 {
			break
		}
	}
	if sum < need || level < domains && !a.allowed(2) {
		return
	}
	for level = max(0, level); level <= domains; level++ {
		p.choose(a, t, level, need, false)
	}
	if a.Segment == 0 {
		p.Parts = p.Parts[:0]
		for _, d := range t.ranked {
			if n := min(p.units[d], need); n > 0 {
				p.add(a, d, n)
				need -= n
			}
		}
	}
	p.settle(a, 0)
}

// pods fills in units and room and returns how many units are needed and how many there are. A job smaller than a node is
// one pod, and its units are how many such pods a domain could take.
func (p *Plan) pods(v *View, a *Ask) (need, sum int32) {
	p.reset(len(v.Free))
	if a.Shared > 0 {
		p.Split = exact()
	}
	for d, n := range v.Free {
		if a.Shared > 0 {
			n *= v.Topology.Domains[d].GPUsPerNode / a.Shared
			for left, nodes := range v.partial[d*maxGPUs : (d+1)*maxGPUs] {
				n += nodes * (int32(left) / a.Shared)
			}
		} else {
			n = min(n, a.within(v.Topology.count[d]))
		}
		p.room[d], p.units[d] = n, n/a.unit()
		sum += p.units[d]
	}
	return a.needs(), sum
}

// gather sums units and room over the groups of a level.
func (p *Plan) gather(t *Topology, level int) (groups []int32, width int) {
	groups, width = t.level(level)
	clear(p.spread[:width])
	clear(p.rooms[:width])
	for d, g := range groups {
		p.spread[g] += p.units[d]
		p.rooms[g] += p.room[d]
	}
	return groups, width
}

// single is the group with the fewest units that are enough: of equals the one with the least room, then the first. -1 if
// none.
func (p *Plan) single(width int, need int32) int {
	best := -1
	for g, n := range p.spread[:width] {
		if n >= need && !p.taken[g] && (best < 0 || n < p.spread[best] || n == p.spread[best] && p.rooms[g] < p.rooms[best]) {
			best = g
		}
	}
	return best
}

// extreme is the group with most units, or with the least that has any: of equals the one with the least room, then the
// first.
func (p *Plan) extreme(width int, least bool) int {
	best := -1
	for g, n := range p.spread[:width] {
		if n == 0 || p.taken[g] {
			continue
		}
		if best < 0 || n != p.spread[best] && (n < p.spread[best]) == least || n == p.spread[best] && p.rooms[g] < p.rooms[best] {
			best = g
		}
	}
	return best
}

// choose takes groups of a level until they have the units needed, and empties all others: the largest first and the
// tightest for the rest, or the least first. At the level of domains the groups are the plan's parts.
func (p *Plan) choose(a *Ask, t *Topology, level int, need int32, least bool) {
	groups, width := p.gather(t, level)
	for left := need; left > 0; {
		g := -1
		if !least || level == 0 && left == need {
			g = p.single(width, left)
		}
		if g < 0 {
			g = p.extreme(width, least)
		}
		p.taken[g] = true
		n := min(left, p.spread[g])
		left -= n
		if level == len(t.groups) {
			p.add(a, t.ranked[g], n)
		}
	}
	for d, g := range groups {
		if !p.taken[g] {
			p.units[d], p.room[d] = 0, 0
		}
	}
	clear(p.taken[:width])
}

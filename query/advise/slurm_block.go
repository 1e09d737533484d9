package advise

import "math/bits"

// SlurmBlock chooses as Slurm's topology/block plugin does. A job gets the smallest configured block size that holds it;
// the block of that size with the fewest free nodes that suffice, the last of equals; inside it a base block that holds
// all of the rest, the one with the fewest free nodes, or else the one with most; and never more base blocks than its
// node count needs. So a job that a base block could hold waits for one. (The semantics are those of
// eval_nodes_block.c and topology.yaml(5), from their description.)
type SlurmBlock struct {
	// Sizes are the block sizes in nodes, ascending: the base size and powers of two of it. Empty is one base block a
	// domain. A domain may have more nodes than the base size.
	Sizes []int32
}

// Name is "slurm-block".
func (SlurmBlock) Name() string { return "slurm-block" }

// Place implements Strategy.
func (s SlurmBlock) Place(v *View, a *Ask, p *Plan) {
	if a.Shared > 0 {
		p.share(v, a, false)
		return
	}
	if _, most := p.survey(v, a); most == 0 {
		return
	}
	if a.Segment > 1 {
		s.segments(v, a, p)
		return
	}
	base := s.base(v, a)
	blocks := (a.Nodes + base - 1) / base
	from, to := s.aggregate(v, a, p, base, blocks)
	if to == 0 {
		return
	}
	// Hide the domains outside the block that was chosen.
	most := int32(0)
	for d := range v.Free {
		if d < from || d >= to {
			p.units[d] = 0
		}
		most = max(most, p.units[d])
	}
	p.sort(len(v.Free), most)
	m := p.fewest(a.Nodes)
	if m == 0 || int32(m) > blocks || !a.allowed(m) {
		return
	}
	p.greedy(a, true)
	p.Outcome = Placed
}

// base is the planning size of a base block.
func (s SlurmBlock) base(v *View, a *Ask) int32 {
	if len(s.Sizes) > 0 {
		return s.Sizes[0]
	}
	size := int32(1)
	for _, d := range v.Topology.Domains {
		size = max(size, a.within(d.Count))
	}
	return size
}

// aggregate picks the block: the range of domains [from, to) of the level the job needs. The whole topology is one block
// where no configured size is large enough. to is 0 where no block has enough free nodes.
func (s SlurmBlock) aggregate(v *View, a *Ask, p *Plan, base, blocks int32) (from, to int) {
	level := bits.Len32(uint32(blocks - 1)) // ceil(log2(blocks))
	width := len(v.Free)
	for _, size := range s.Sizes {
		if l := bits.Len32(uint32(size/base)) - 1; l >= level {
			width = 1 << l
			break
		}
	}
	fewest := int32(-1)
	for at := 0; at+width <= len(v.Free); at += width {
		sum := int32(0)
		for _, n := range p.units[at : at+width] {
			sum += n
		}
		if sum >= a.Nodes && (fewest < 0 || sum <= fewest) {
			fewest, from, to = sum, at, at+width
		}
	}
	return from, to
}

// segments places each segment by itself, inside the domain with the fewest free nodes that suffice, the last of equals.
func (s SlurmBlock) segments(v *View, a *Ask, p *Plan) {
	copy(p.spread, p.units[:len(v.Free)])
	for need := a.needs(); need > 0; need-- {
		best := -1
		room := int32(0)
		for d := range v.Free {
			if p.units[d] == 0 {
				continue
			}
			left := min(v.Free[d], a.within(v.Topology.Domains[d].Count)) - (p.spread[d]-p.units[d])*a.Segment
			if best < 0 || left <= room {
				best, room = d, left
			}
		}
		if best < 0 {
			p.Parts = p.Parts[:0]
			return
		}
		p.units[best]--
		if i := p.part(int32(best)); i >= 0 {
			p.Parts[i].Nodes += a.Segment
		} else {
			p.add(a, int32(best), 1)
		}
	}
	p.settle(a, 0)
}

// part finds the part in a domain; -1 where there is none.
func (p *Plan) part(domain int32) int {
	for i := len(p.Parts) - 1; i >= 0; i-- {
		if p.Parts[i].Domain == domain {
			return i
		}
	}
	return -1
}

package advise

import "slices"

// SlurmBlock chooses as Slurm's topology/block plugin does. A job gets the smallest configured block size that holds it;
// of the blocks of that size the one with the fewest free nodes that suffice; inside it as few as can be of the blocks one
// size down, and of base blocks. Of equals it takes the last. A job that a base block could hold waits for one. Each segment
// is placed so by itself. (After eval_nodes_block.c and topology.conf(5), from their description; a test asks the plugin.)
//
// It knows whole nodes that are alike, and domains in the order of their IDs, where Slurm's blocks are in the order of its
// file. Node weights, features, required nodes, partitions that hold part of a block, and segments larger than a base block
// (Slurm 25.11) are not modelled.
type SlurmBlock struct {
	// Sizes are the block sizes in nodes, ascending: the base size and powers of two of it. Empty is what Slurm does
	// without BlockSizes: the smallest domain and 2, 4, 8 and 16 of it. A domain may have more nodes than the base size.
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
	p.reset(len(v.Free))
	for d, n := range v.Free { // nodes, for segments too
		p.units[d] = min(n, a.within(v.Topology.count[d]))
	}
	nodes, times := a.Nodes, int32(1)
	if a.Segment > 0 {
		nodes, times = a.Segment, a.Nodes/a.Segment
	}
	base := s.base(v, a)
	if a.Segment > base {
		return // Slurm refuses it
	}
	for range times {
		if !s.gang(p, len(v.Free), nodes, base) {
			p.Parts = p.Parts[:0]
			return
		}
	}
	p.settle(a, 0)
}

// base is the planning size of a base block.
func (s SlurmBlock) base(v *View, a *Ask) int32 {
	if len(s.Sizes) > 0 {
		return s.Sizes[0]
	}
	size := int32(0)
	for _, s := range v.Topology.sizes {
		if n := a.within(s.nodes); size == 0 || n < size {
			size = n
		}
	}
	return size
}

// widths are the number of base blocks of the block that is to hold so many, all there are where no size suffices, and of
// the size below.
func (s SlurmBlock) widths(domains, blocks int, base int32) (width, lower int) {
	lower = 1
	if len(s.Sizes) == 0 {
		for width = 1; width <= 16; width *= 2 {
			if width >= blocks {
				return width, lower
			}
			lower = width
		}
	}
	for _, size := range s.Sizes {
		if width = int(size / base); width >= blocks {
			return width, lower
		}
		lower = width
	}
	return domains, lower
}

// gang adds the nodes of one gang to the parts and takes them from the free ones, or reports false.
func (s SlurmBlock) gang(p *Plan, domains int, nodes, base int32) bool {
	width, lower := s.widths(domains, int((nodes+base-1)/base), base)
	below := base * int32(lower)
	most := int((nodes + below - 1) / below) // lower blocks
	limited := width != lower*most

	from, to := p.block(domains, width, lower, most, limited, nodes)
	if from < 0 {
		return false
	}
	sums := p.sums(p.units[from:to], lower)
	clear(p.taken[from:to])
	defer clear(p.taken[from:to])
	for entered := 0; nodes > 0; {
		best := p.baseBlock(from, to, lower, sums, limited, nodes)
		if best < 0 || p.units[best] == 0 {
			return false
		}
		if limited && !p.entered(from, to, best, lower) {
			if entered == most {
				return false
			}
			entered++
		}
		p.taken[best] = true
		n := min(nodes, p.units[best])
		nodes -= n
		p.units[best] -= n
		p.give(int32(best), n)
	}
	return true
}

// block picks the range of domains that is to hold the gang: the one with the fewest free nodes in all of those whose
// lower blocks, no more of them than the gang may have, suffice. from is -1 where none does.
func (p *Plan) block(domains, width, lower, most int, limited bool, nodes int32) (from, to int) {
	from = -1
	fewest := int32(0)
	for at := 0; at < domains; at += width {
		end := min(at+width, domains)
		sum := int32(0)
		for _, n := range p.units[at:end] {
			sum += n
		}
		room := sum
		if limited {
			// Slurm counts whole lower blocks of a block only, so where all of the topology is one it may leave out the last.
			sums := p.sums(p.units[at:end], lower)
			sums = sums[:min(width/lower, len(sums))]
			slices.Sort(sums)
			room = 0
			for _, n := range sums[max(0, len(sums)-most):] {
				room += n
			}
		}
		if room >= nodes && (from < 0 || sum <= fewest) {
			fewest, from, to = sum, at, end
		}
	}
	return from, to
}

// sums are the free nodes of each lower block.
func (p *Plan) sums(units []int32, lower int) []int32 {
	sums := p.spread[:(len(units)+lower-1)/lower]
	clear(sums)
	for d, n := range units {
		sums[d/lower] += n
	}
	return sums
}

// entered reports whether the gang has a domain of this one's lower block already.
func (p *Plan) entered(from, to, d, lower int) bool {
	at := d - (d-from)%lower
	return slices.Contains(p.taken[at:min(at+lower, to)], true)
}

// baseBlock is the domain to take next: in a lower block that has been entered already, then in the one with the fewest
// nodes that hold the rest, or else the most; within it likewise. -1 if there is none.
func (p *Plan) baseBlock(from, to, lower int, sums []int32, limited bool, rest int32) int {
	best := -1
	for d := from; d < to; d++ {
		if p.taken[d] {
			continue
		}
		if best < 0 {
			best = d
			continue
		}
		if a, b := (best-from)/lower, (d-from)/lower; limited && a != b {
			old, now := p.entered(from, to, best, lower), p.entered(from, to, d, lower)
			if old != now {
				if now {
					best = d
				}
				continue
			}
			if c := tighter(sums[b], sums[a], rest); c != 0 {
				if c > 0 {
					best = d
				}
				continue
			}
		}
		if tighter(p.units[d], p.units[best], rest) >= 0 {
			best = d
		}
	}
	return best
}

// tighter compares room for the rest: what holds it is better than what does not, then less is better, of what does not
// more. It is positive where a is better than b.
func tighter(a, b, rest int32) int {
	switch {
	case a == b:
		return 0
	case a >= rest && (b < rest || a < b), b < rest && a > b:
		return 1
	}
	return -1
}

// give adds nodes to the part in a domain.
func (p *Plan) give(domain, nodes int32) {
	for i := len(p.Parts) - 1; i >= 0; i-- {
		if p.Parts[i].Domain == domain {
			p.Parts[i].Nodes += nodes
			return
		}
	}
	p.Parts = append(p.Parts, Part{Domain: domain, Nodes: nodes})
}

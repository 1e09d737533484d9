package simulate

import "math/bits"

const allGPUs = 1<<gpusPerTray - 1

// grant is one node a job holds, and which of its GPUs.
type grant struct {
	Node int   `json:"node"`
	GPUs uint8 `json:"gpus"` // bit g = GPU g
	From int64 `json:"from"` // wall milliseconds
}

// pool is the GPUs of one partition that a real job could take: nodes [first, first+len(free)).
type pool struct {
	first int
	free  []uint8 // by node - first: GPUs not held by a real job; none of a node that is out
	whole []int   // by rack of the partition: nodes with every GPU free
}

func newPool(firstRack, racks int) *pool {
	return &pool{first: firstRack * traysPerRack, free: make([]uint8, racks*traysPerRack), whole: make([]int, racks)}
}

func (p *pool) holds(node int) bool { return node >= p.first && node < p.first+len(p.free) }

// set says which GPUs of a node are free.
func (p *pool) set(node int, free uint8) {
	i := node - p.first
	if p.free[i] == allGPUs {
		p.whole[i/traysPerRack]--
	}
	if free == allGPUs {
		p.whole[i/traysPerRack]++
	}
	p.free[i] = free
}

func (p *pool) clone() *pool {
	return &pool{p.first, append([]uint8(nil), p.free...), append([]int(nil), p.whole...)}
}

func (p *pool) wholeNodes() int {
	n := 0
	for _, w := range p.whole {
		n += w
	}
	return n
}

// request is what a job asks of a pool.
type request struct {
	gpus    int
	segment int // nodes that must share a rack; 0 = none asked. Only the block policy keeps it.
}

// nodes is how many nodes a request takes: GPUs below a tray share one, more take whole trays.
func (r request) nodes() int { return (r.gpus + gpusPerTray - 1) / gpusPerTray }

// fits reports whether a partition of this policy could place the request now.
func (p *pool) fits(policy string, r request) bool {
	if policy == PolicyFlat && r.gpus >= gpusPerTray {
		return p.wholeNodes() >= r.nodes()
	}
	return p.choose(policy, r) != nil
}

// choose gives the nodes for a request, or nil where it must wait.
func (p *pool) choose(policy string, r request) []int {
	switch {
	case r.gpus < gpusPerTray && policy == PolicyFlat:
		return p.firstShared(r.gpus)
	case r.gpus < gpusPerTray:
		return p.bestShared(r.gpus)
	case policy == PolicyFlat:
		return p.firstFit(r.nodes())
	case r.segment > 0 && r.segment < r.nodes():
		return p.segments(r.nodes(), r.segment)
	default:
		return p.fewestRacks(r.nodes())
	}
}

// firstFit takes the first free nodes in name order, whatever racks they are of.
func (p *pool) firstFit(n int) []int {
	if p.wholeNodes() < n {
		return nil
	}
	nodes := make([]int, 0, n)
	for rack := range p.whole {
		if nodes = p.take(nodes, rack, n-len(nodes)); len(nodes) == n {
			break
		}
	}
	return nodes
}

// fewestRacks is Slurm's block placement with the rack as base block (src/plugins/topology/block): no more racks
// than the job's size needs; the smallest rack that fits the rest, else the one with most free; ties go to the later.
func (p *pool) fewestRacks(n int) []int {
	nodes := make([]int, 0, n)
	used := make([]bool, len(p.whole))
	for range (n + traysPerRack - 1) / traysPerRack {
		rest := n - len(nodes)
		best := p.bestRack(rest, used)
		if best < 0 {
			for rack, free := range p.whole {
				if free > 0 && !used[rack] && (best < 0 || free >= p.whole[best]) {
					best = rack
				}
			}
		}
		if best < 0 {
			return nil
		}
		used[best] = true
		if nodes = p.take(nodes, best, rest); len(nodes) == n {
			return nodes
		}
	}
	return nil
}

// bestRack is the rack with the fewest free nodes that still holds n, or -1.
func (p *pool) bestRack(n int, used []bool) int {
	best := -1
	for rack, free := range p.whole {
		if free >= n && (used == nil || !used[rack]) && (best < 0 || free <= p.whole[best]) {
			best = rack
		}
	}
	return best
}

// segments places each segment on its own, best fit, as Slurm does: two may share a rack or not.
func (p *pool) segments(n, segment int) []int {
	rest := p.clone()
	nodes := make([]int, 0, n)
	for len(nodes) < n {
		rack := rest.bestRack(segment, nil)
		if rack < 0 {
			return nil
		}
		before := len(nodes)
		nodes = rest.take(nodes, rack, segment)
		for _, node := range nodes[before:] {
			rest.set(node, 0)
		}
	}
	return nodes
}

// take appends up to n free nodes of a rack in name order.
func (p *pool) take(nodes []int, rack, n int) []int {
	if p.whole[rack] == 0 {
		return nodes
	}
	for i := rack * traysPerRack; i < (rack+1)*traysPerRack && n > 0; i++ {
		if p.free[i] == allGPUs {
			nodes = append(nodes, p.first+i)
			n--
		}
	}
	return nodes
}

func (p *pool) firstShared(gpus int) []int {
	for i, free := range p.free {
		if bits.OnesCount8(free) >= gpus {
			return []int{p.first + i}
		}
	}
	return nil
}

// bestShared takes the node with least to spare, and opens a whole one only in the fullest rack that has any.
func (p *pool) bestShared(gpus int) []int {
	best, left := -1, gpusPerTray
	for i, free := range p.free {
		if n := bits.OnesCount8(free); n >= gpus && n < gpusPerTray && n-gpus < left {
			best, left = i, n-gpus
		}
	}
	if best >= 0 {
		return []int{p.first + best}
	}
	if rack := p.bestRack(1, nil); rack >= 0 {
		return p.take(nil, rack, 1)
	}
	return nil
}

// lowest gives the n lowest GPUs of a set.
func lowest(set uint8, n int) uint8 {
	var out uint8
	for ; n > 0 && set != 0; n-- {
		bit := set & -set
		out |= bit
		set &^= bit
	}
	return out
}

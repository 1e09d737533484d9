package advise

import "slices"

// Mode is how strongly a job asks for one domain.
type Mode string

// The modes, in the words of topology-aware scheduling.
const (
	Required      Mode = "required"
	Preferred     Mode = "preferred"
	Unconstrained Mode = "unconstrained"
)

// Ask is a placement question in the units that strategies think in.
type Ask struct {
	// Nodes are the whole nodes wanted. With Shared > 0 it is 1 and that many GPUs of one node are enough.
	Nodes  int32
	Shared int32
	// GPUsPerNode is what each node of the gang gives.
	GPUsPerNode int32
	// Segment is how many nodes must share a domain; 0 where nothing was asked. It divides Nodes.
	Segment int32
	Mode    Mode
	// MaxDomains is the most domains a gang may be spread over; 0 for any number.
	MaxDomains int32
	// Spares are the nodes of each domain that a gang leaves to others, so that a failed node can be replaced.
	Spares int32
	// Traffic is how the job communicates.
	Traffic Traffic
	// Waited is how long the job has waited, and Duration how long it is expected to run, in seconds. Duration 0 is
	// unknown.
	Waited, Duration int64
	// MaxWait is the longest the job is to wait for a better shape, in seconds; negative for the strategy's own bound.
	MaxWait int64
}

// unit is the number of nodes that must stay together.
func (a *Ask) unit() int32 { return max(1, a.Segment) }

// needs is how many units the ask has.
func (a *Ask) needs() int32 { return a.Nodes / a.unit() }

// within is the most nodes of a domain of this size that the ask may have.
func (a *Ask) within(size int32) int32 {
	if size > a.Spares {
		return size - a.Spares
	}
	return size
}

// View is what a strategy sees of a cluster. Its slices are indexed by domain and are only read.
type View struct {
	Topology *Topology
	// Free are the whole nodes of each domain that the asker may take now.
	Free []int32

	order   [][]int64
	partial []int32
	kept    []Kept  // nodes that short holds keep for others, by node: not in Free, and in order from when they are not kept
	closed  []bool  // per domain: no node of it may ever be taken; nil for none
	barred  []int32 // per domain: nodes that may not be taken although they are or come free; nil for none
}

// Units is how many units of the ask the domain can take.
func (v *View) Units(a *Ask, d int) int32 {
	n := min(v.Free[d], a.within(v.Topology.count[d]))
	if a.Segment > 1 {
		return n / a.Segment
	}
	return n
}

// Part is the share of a plan in one domain, in nodes.
type Part struct {
	Domain int32
	Nodes  int32
}

// Outcome is what a strategy decided.
type Outcome uint8

// The outcomes.
const (
	// NoFit: not enough may be taken now for any shape that the ask allows.
	NoFit Outcome = iota
	// Waits: a worse shape would fit, and the strategy prefers to wait for a better one.
	Waits
	// Placed: the plan's parts are the advice.
	Placed
)

// String is the outcome in a word.
func (o Outcome) String() string { return [...]string{"no fit", "waits", "placed"}[o] }

// Plan is a strategy's answer, and the room it works in: a caller keeps one and passes it again, so that a question
// allocates nothing.
type Plan struct {
	Outcome Outcome
	// Parts are in the order they were chosen. With Waits they are the shape that was turned down.
	Parts []Part
	// Split is the predicted slowdown of the parts against the best shape the ask could have; 1 where nothing is lost.
	Split Interval

	units  []int32 // per domain
	room   []int32 // per domain, in nodes
	rooms  []int32 // per group
	sorted []int32 // domains with room, most room first, then by index
	spread []int32
	taken  []bool
	groups []int32

	horizon []int32 // of Earliest
	starts  []int64 // likewise
}

func (p *Plan) reset(domains int) {
	p.Outcome, p.Parts, p.Split = NoFit, p.Parts[:0], Interval{}
	if len(p.units) < domains {
		p.units, p.sorted = make([]int32, domains), make([]int32, 0, domains)
		p.taken = make([]bool, domains)
		p.spread = make([]int32, domains)
		p.room, p.rooms = make([]int32, domains), make([]int32, domains)
		p.Parts = make([]Part, 0, domains)
	}
}

// survey fills in units: how many units of the ask each domain can take. It returns their sum and the largest.
func (p *Plan) survey(v *View, a *Ask) (sum, most int32) {
	p.reset(len(v.Free))
	if a.unit() == 1 && a.Spares == 0 {
		for d, n := range v.Free {
			p.units[d] = n
			sum += n
			most = max(most, n)
		}
		return sum, most
	}
	count, unit := v.Topology.count[:len(v.Free)], a.unit()
	for d, n := range v.Free {
		n = min(n, a.within(count[d]))
		if unit > 1 {
			n /= unit
		}
		p.units[d] = n
		sum += n
		most = max(most, n)
	}
	return sum, most
}

// tightest is the domain with the fewest units that are still enough; the first of equals, or the last. -1 if none.
func (p *Plan) tightest(domains int, need int32, last bool) int {
	best := -1
	for d, n := range p.units[:domains] {
		if n >= need && (best < 0 || n < p.units[best] || last && n == p.units[best]) {
			best = d
		}
	}
	return best
}

// sort lists the domains with room in sorted, most units first and by index within equals: a counting sort, as units are
// small.
func (p *Plan) sort(domains int, most int32) {
	if cap(p.groups) < int(most)+2 {
		p.groups = make([]int32, most+2)
	}
	at := p.groups[:most+2]
	clear(at)
	for _, n := range p.units[:domains] {
		at[n]++
	}
	sum := int32(0)
	for n := most; n > 0; n-- {
		at[n], sum = sum, sum+at[n]
	}
	p.sorted = p.sorted[:sum]
	for d, n := range p.units[:domains] {
		if n > 0 {
			p.sorted[at[n]] = int32(d)
			at[n]++
		}
	}
}

// fewest is how many of the sorted domains, taken from the front, have need units; 0 where all of them have not.
func (p *Plan) fewest(need int32) int {
	for i, d := range p.sorted {
		need -= p.units[d]
		if need <= 0 {
			return i + 1
		}
	}
	return 0
}

// add appends a part of that many units.
func (p *Plan) add(a *Ask, domain int32, units int32) {
	p.Parts = append(p.Parts, Part{Domain: domain, Nodes: units * a.unit()})
}

// one ends the plan with a single domain.
func (p *Plan) one(a *Ask, domain int) {
	p.Parts = p.Parts[:0]
	p.add(a, int32(domain), a.needs())
	p.Outcome = Placed
}

// settle ends a plan that has need units left to place.
func (p *Plan) settle(a *Ask, need int32) {
	if need == 0 && a.allowed(len(p.Parts)) {
		p.Outcome = Placed
		return
	}
	p.Parts = p.Parts[:0]
}

// balanced shares the units over the m sorted domains with most room so that the smallest share is as large as can be,
// and then moves each share to the tightest domain that holds it.
func (p *Plan) balanced(a *Ask, m int) {
	p.Parts = p.Parts[:0]
	left := a.needs()
	shares := p.spread[:m]
	for i := range m { // the smallest of the m first
		n := min(p.units[p.sorted[m-1-i]], left/int32(m-i))
		shares[i] = n
		left -= n
	}
	for i := m - 1; left > 0; i-- { // what whole shares left over
		n := min(left, p.units[p.sorted[m-1-i]]-shares[i])
		shares[i] += n
		left -= n
	}
	slices.Sort(shares)
	// The tightest domain for each share, the largest share first; of equals the first.
	for i := m - 1; i >= 0; i-- {
		end := p.below(shares[i]) // domains before end hold the share
		for {
			room := p.units[p.sorted[end-1]]
			at := p.below(room + 1) // the first with just this room
			for at < end && p.taken[p.sorted[at]] {
				at++
			}
			if at < end {
				p.taken[p.sorted[at]] = true
				p.add(a, p.sorted[at], shares[i])
				break
			}
			end = p.below(room + 1)
		}
	}
	for _, part := range p.Parts {
		p.taken[part.Domain] = false
	}
}

// below is the place in sorted of the first domain with fewer units than that.
func (p *Plan) below(units int32) int {
	lo, hi := 0, len(p.sorted)
	for lo < hi {
		if mid := (lo + hi) / 2; p.units[p.sorted[mid]] >= units {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// shape is the smallest part in GPUs, and the sum.
func shape(parts []Part, gpusPerNode int32) (smallest, sum int32) {
	for i, part := range parts {
		n := part.Nodes * gpusPerNode
		sum += n
		if i == 0 || n < smallest {
			smallest = n
		}
	}
	return smallest, sum
}

package pass

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// minute is the step of domain_capacity, in milliseconds.
const minute int64 = 60_000

// home says where a node sits over a time; domain ” = unknown, for the reason given.
type home struct {
	effective
	generation uint64 // of the cluster's membership
}

// offer is what a node offers; nil = not known.
type offer struct{ present, usable *uint16 }

// claim is GPUs of a node that a placement holds; gpus < 0 = how many is not known.
type claim struct {
	gpus        int
	probe       bool
	expectedEnd int64 // Unix ms, 0 = no estimate
}

// clusterHistory is all that the capacity of a cluster depends on, by node.
type clusterHistory struct {
	homes   map[string][]interval[home]
	settled map[string][]interval[home] // the homes that judgements go by; capacity does without
	offers  map[string][]interval[offer]
	claims  map[string][]interval[claim]
	usual   int // GPUs of a node that nobody counted; 0 = not known
}

// capacityRow is one row of domain_capacity, without its keys.
type capacityRow struct {
	nodes, nodesUsable, nodesFree uint16
	gpus, usable, held, probe     uint32
	free                          uint32
	sizes                         []uint16
	slots                         []uint32
	ends                          []uint32 // of the nodes that are not free: when their holders end by their limits, Unix s, ascending; those that none ends are 0 and last
	basis                         string
}

func (r capacityRow) equal(s capacityRow) bool {
	return r.nodes == s.nodes && r.nodesUsable == s.nodesUsable && r.nodesFree == s.nodesFree && r.gpus == s.gpus &&
		r.usable == s.usable && r.held == s.held && r.probe == s.probe && r.free == s.free && r.basis == s.basis &&
		slices.Equal(r.sizes, s.sizes) && slices.Equal(r.slots, s.slots) && slices.Equal(r.ends, s.ends)
}

// Where the GPU counts of a domain come from.
const (
	basisExact   = "exact"
	basisAssumed = "assumed" // a count that nobody told was taken to be the usual one of the cluster
	basisUnknown = "unknown" // a count that nobody told, and none to assume: the row counts too few GPUs
)

// capacityKey is a domain in a minute (Unix ms of its begin).
type capacityKey struct {
	minute int64
	domain string
}

// sweep gives the capacity of every domain at the end of every minute from first on in which it changed, and of the
// minutes in also. Domain ” stands for the nodes whose domain is unknown: totals without slots, since nobody can say
// which of them share NVLink.
func (h clusterHistory) sweep(first int64, sizes []uint16, also []capacityKey) map[capacityKey]capacityRow {
	s := &sweeper{
		sizes: sizes, usual: h.usual, nodes: map[string]*sweptNode{}, domains: map[string]map[*sweptNode]struct{}{},
		rows: map[string]capacityRow{}, dirty: map[string]struct{}{},
	}
	// What holds just before the first minute is the state that the first row differs from.
	changes := h.begin(s, first, -1)
	s.settle(0, nil)
	minutes := map[int64][]string{}
	for _, c := range changes {
		minutes[c.at-c.at%minute] = nil
	}
	for _, k := range also {
		minutes[k.minute] = append(minutes[k.minute], k.domain)
	}
	out := map[capacityKey]capacityRow{}
	for _, m := range slices.Sorted(maps.Keys(minutes)) {
		for len(changes) > 0 && changes[0].at < m+minute {
			s.apply(changes[0])
			changes = changes[1:]
		}
		s.settle(m, out)
		for _, domain := range minutes[m] {
			out[capacityKey{m, domain}] = s.row(domain)
		}
	}
	return out
}

// sweptNode is one node while time runs.
type sweptNode struct {
	home   *home
	offer  *offer
	held   int // GPUs claimed by real jobs, known counts only
	probe  int
	heldBy int     // claims of real jobs whose count is not known
	probed int     // the same of probe jobs
	dueG   int     // of held: claims that last longer than the window
	dueBy  int     // of heldBy
	ends   []int64 // of the claims of real jobs, Unix ms; where capacity is swept

	sum *domainSum // of the domain it was last counted in, where facts are swept
}

// apply begins or ends something on the node.
func (n *sweptNode) apply(c sweptChange) {
	sign := -1
	if c.begin {
		sign = 1
	}
	switch {
	case c.home != nil:
		n.home = nil
		if c.begin {
			n.home = c.home
		}
	case c.offer != nil:
		n.offer = nil
		if c.begin {
			n.offer = c.offer
		}
	case c.due:
		n.due(*c.claim, sign)
	default:
		n.hold(*c.claim, sign)
	}
}

// hold adds a claim, or takes it away.
func (n *sweptNode) hold(c claim, sign int) {
	switch {
	case c.gpus < 0 && c.probe:
		n.probed += sign
	case c.gpus < 0:
		n.heldBy += sign
	case c.probe:
		n.probe += sign * c.gpus
	default:
		n.held += sign * c.gpus
	}
}

// ending adds the expected end of a claim, or takes it away.
func (n *sweptNode) ending(at int64, begin bool) {
	if begin {
		n.ends = append(n.ends, at)
	} else if i := slices.Index(n.ends, at); i >= 0 {
		n.ends = slices.Delete(n.ends, i, i+1)
	}
}

// freeFrom is when the last of the node's holders ends by its limit, in Unix seconds; 0 where one has none.
func (n *sweptNode) freeFrom() uint32 {
	if len(n.ends) == 0 || slices.Min(n.ends) <= 0 {
		return 0
	}
	return uint32(min((slices.Max(n.ends)+999)/1000, math.MaxUint32))
}

// due adds a claim to those that last, or takes it away.
func (n *sweptNode) due(c claim, sign int) {
	switch {
	case c.probe:
	case c.gpus < 0:
		n.dueBy += sign
	default:
		n.dueG += sign * c.gpus
	}
}

// sweptChange is one thing that begins or ends on a node.
type sweptChange struct {
	at    int64
	node  *sweptNode
	home  *home
	offer *offer
	claim *claim
	due   bool // the claim's lasting longer than the window, not the claim itself
	begin bool
}

// sweeping is something that runs through the time of a cluster.
type sweeping interface {
	node(name string) *sweptNode
	apply(c sweptChange)
}

type sweeper struct {
	sizes   []uint16
	usual   int // GPUs of a node that nobody counted; 0 = not known
	nodes   map[string]*sweptNode
	domains map[string]map[*sweptNode]struct{}
	rows    map[string]capacityRow // by domain: as of the last minute settled
	dirty   map[string]struct{}
}

func (s *sweeper) node(name string) *sweptNode {
	n := s.nodes[name]
	if n == nil {
		n = &sweptNode{}
		s.nodes[name] = n
		s.join(n)
	}
	return n
}

// begin puts what holds just before the first moment into s and gives all begins and ends from then on, in order. Where
// one interval ends as the next begins, the end comes first. With a window (ms, not negative) claims count as due too.
func (h clusterHistory) begin(s sweeping, first, window int64) []sweptChange {
	most := 0
	for _, list := range h.homes {
		most += 2 * len(list)
	}
	for _, list := range h.offers {
		most += 2 * len(list)
	}
	for _, list := range h.claims {
		most += 4 * len(list)
	}
	changes := make([]sweptChange, 0, most)
	// Sorted is a short key and not the change itself: time, ends before begins.
	type place struct {
		key int64
		of  int32
	}
	order := make([]place, 0, most)
	note := func(c sweptChange) {
		order = append(order, place{c.at<<1 | int64(bit(c.begin)), int32(len(changes))})
		changes = append(changes, c)
	}
	add := func(n *sweptNode, from, to int64, c sweptChange) {
		if to < first {
			return
		}
		c.node, c.begin = n, true
		if from < first {
			s.apply(c)
		} else {
			c.at = from
			note(c)
		}
		if to < forever {
			c.at, c.begin = to, false
			note(c)
		}
	}
	for name, list := range h.homes {
		for i := range list {
			add(s.node(name), list[i].from, list[i].to, sweptChange{home: &list[i].value})
		}
	}
	for name, list := range h.offers {
		for i := range list {
			add(s.node(name), list[i].from, list[i].to, sweptChange{offer: &list[i].value})
		}
	}
	for name, list := range h.claims {
		n := s.node(name)
		for i := range list {
			c := &list[i].value
			add(n, list[i].from, list[i].to, sweptChange{claim: c})
			if due := dueUntil(list[i].from, list[i].to, c.expectedEnd, window); window >= 0 && due > list[i].from {
				add(n, list[i].from, due, sweptChange{claim: c, due: true})
			}
		}
	}
	slices.SortFunc(order, func(a, b place) int { return cmp.Compare(a.key, b.key) })
	sorted := make([]sweptChange, len(order))
	for i, p := range order {
		sorted[i] = changes[p.of]
	}
	return sorted
}

func (s *sweeper) apply(c sweptChange) {
	n := c.node
	s.dirty[n.domain()] = struct{}{}
	if c.claim != nil && !c.claim.probe {
		n.ending(c.claim.expectedEnd, c.begin)
	}
	if c.home == nil {
		n.apply(c)
		return
	}
	delete(s.domains[n.domain()], n)
	n.apply(c)
	s.join(n)
	s.dirty[n.domain()] = struct{}{}
}

func (s *sweeper) join(n *sweptNode) {
	d := n.domain()
	if s.domains[d] == nil {
		s.domains[d] = map[*sweptNode]struct{}{}
	}
	s.domains[d][n] = struct{}{}
}

func (n *sweptNode) domain() string {
	if n.home == nil {
		return ""
	}
	return n.home.domain
}

// counts reports whether the node is part of its domain's figures. Of the nodes without a domain those are left out
// that nothing is known of, that have no GPUs, and that are gone.
func (n *sweptNode) counts() bool {
	switch {
	case n.domain() != "" || n.held+n.probe+n.heldBy+n.probed > 0:
		return true
	case n.offer != nil && n.offer.present != nil && *n.offer.present == 0:
		return false
	case n.home != nil && n.home.reason != reasonRemoved:
		return true
	}
	return n.offer != nil
}

// settle computes the domains that changed and writes those whose row is another one into out, if that is given.
func (s *sweeper) settle(m int64, out map[capacityKey]capacityRow) {
	for domain := range s.dirty {
		row := s.compute(domain)
		if old, known := s.rows[domain]; known && old.equal(row) || !known && row.nodes == 0 {
			continue
		}
		s.rows[domain] = row
		if out != nil {
			out[capacityKey{m, domain}] = row
		}
	}
	clear(s.dirty)
}

// row is the row of a domain as of the last minute settled.
func (s *sweeper) row(domain string) capacityRow {
	if row, known := s.rows[domain]; known {
		return row
	}
	return s.compute(domain)
}

// compute counts one domain. A slot of N GPUs up to the size of one node lies on one node: the sum over its nodes of
// floor(free / N). A larger one takes wholly free nodes: floor(free nodes / ceil(N / GPUs per node)).
func (s *sweeper) compute(domain string) capacityRow {
	r := capacityRow{sizes: s.sizes, slots: make([]uint32, len(s.sizes)), basis: basisExact}
	perNode, sized := 0, map[int]int{}
	type counted struct {
		free, usable int
		ends         uint32
	}
	var nodes []counted
	for n := range s.domains[domain] {
		if !n.counts() {
			continue
		}
		c := n.gpus(s.usual)
		if c.basis != basisExact && r.basis != basisUnknown {
			r.basis = c.basis
		}
		r.nodes++
		r.gpus += uint32(c.gpus)
		r.usable += uint32(c.usable)
		r.held += uint32(c.held)
		r.probe += uint32(c.probe)
		r.free += uint32(c.free)
		if c.usable > 0 {
			r.nodesUsable++
		}
		nodes = append(nodes, counted{c.free, c.usable, n.freeFrom()})
		if c.gpus > 0 {
			sized[c.gpus]++
		}
	}
	for gpus, nodes := range sized {
		if nodes > sized[perNode] || nodes == sized[perNode] && gpus > perNode {
			perNode = gpus
		}
	}
	if perNode == 0 {
		return r
	}
	for _, n := range nodes {
		switch {
		case n.free >= perNode:
			r.nodesFree++
		case domain == "": // nobody can say what would be free together
		case n.usable < perNode:
			r.ends = append(r.ends, 0)
		default:
			r.ends = append(r.ends, n.ends)
		}
	}
	if domain == "" {
		return r
	}
	// Those that no limit ends are 0 and come last.
	slices.SortFunc(r.ends, func(a, b uint32) int { return cmp.Compare(a-1, b-1) })
	for i, size := range s.sizes {
		if n := int(size); n > perNode {
			r.slots[i] = uint32(int(r.nodesFree) / ((n + perNode - 1) / perNode))
		} else {
			for _, node := range nodes {
				r.slots[i] += uint32(node.free / n)
			}
		}
	}
	return r
}

// nodeCount is one node's part of its domain's figures.
type nodeCount struct {
	gpus, usable, held, probe, free int
	claimed                         int // by real jobs; more than the node has where two claim the same
	later                           int // free once those due to end within the window are gone
	basis                           string
}

// gpus counts one node. GPUs are held once however many jobs claim them; a claim of an unknown number holds the node.
// Free = usable and not held by a real job.
func (n *sweptNode) gpus(usual int) nodeCount {
	c := nodeCount{gpus: usual, basis: basisAssumed}
	if n.offer != nil {
		if known := cmp.Or(n.offer.present, n.offer.usable); known != nil {
			c.gpus, c.basis = int(*known), basisExact
		}
	}
	if c.basis == basisAssumed && usual == 0 {
		c.basis = basisUnknown
	}
	c.usable = c.gpus
	if n.offer != nil && n.offer.usable != nil {
		c.usable = min(int(*n.offer.usable), c.gpus)
	}
	c.held, c.probe = min(n.held, c.gpus), min(n.probe, c.gpus)
	if n.heldBy > 0 {
		c.held = c.gpus
	}
	if n.probed > 0 {
		c.probe = c.gpus
	}
	if n.heldBy+n.probed > 0 && c.basis == basisExact {
		c.basis = basisAssumed
	}
	due := min(n.dueG, c.gpus)
	if n.dueBy > 0 {
		due = c.gpus
	}
	c.claimed = max(c.held, n.held)
	c.free, c.later = max(0, c.usable-c.held), max(0, c.usable-due)
	return c
}

// usualOffer is the GPU count that most nodes with a count have; 0 = nobody counted any.
func usualOffer(offers map[string][]interval[offer]) int {
	counts := map[int]int{}
	for _, list := range offers {
		o := slices.MaxFunc(list, func(a, b interval[offer]) int { return cmp.Compare(a.from, b.from) }).value
		if known := cmp.Or(o.present, o.usable); known != nil && *known > 0 {
			counts[int(*known)]++
		}
	}
	usual := 0
	for gpus, nodes := range counts {
		if nodes > counts[usual] || nodes == counts[usual] && gpus > usual {
			usual = gpus
		}
	}
	return usual
}

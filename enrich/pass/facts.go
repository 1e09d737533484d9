package pass

import (
	"cmp"
	"slices"
	"strings"
)

// placementFacts is what a placement got, what was asked for it and what there was when it began: all that
// sql/verdict.sql judges by, and no judgement.
type placementFacts struct {
	placement *placementRow
	attempt   *attemptRow // nil: nothing is known of it but the placement

	gpus          int64    // 0 = none or not known
	unknownNodes  uint32   // whose domain is not known
	unknownReason string   // why
	domains       []string // largest shard first
	domainGPUs    []int64  // -1 = not known
	domainNodes   []uint32
	partitions    []string // distinct; "" = not known
	levels        []string // distinct values of the level asked for; "" = not known
	source        string   // of the membership
	generation    uint64

	sized          bool   // the domains' sizes are known
	assumed        bool   // some of them by the usual number of GPUs, nobody counted
	largestNodes   uint32 // nodes of the domain with most
	neededForGPUs  uint32 // fewest domains with as many usable GPUs, 0 = not even all
	neededForNodes uint32 // the same with as many nodes as were asked for

	free *freeFacts // nil: nobody asks
}

// freeFacts is the room there was for a placement when it began: GPUs that were usable and that no other job held.
type freeFacts struct {
	first []int64 // of the freest domains, as many as the placement has
	later []int64 // the same once those due to end within the window are gone
	total int64
	held  int64 // by others in the placement's domains
}

// shard is what a placement has in one domain.
type shard struct {
	domain               string
	nodes                uint32
	gpus                 int64 // -1 = not known
	lateGPUs             int64
	sourceMin, sourceMax string
}

// lateNode is a node of which no domain was known when the placement began: it counts with the one it turned out to be in.
type lateNode struct{ node, domain string }

// spread finds over which domains a placement is spread: each node by what holds at its start; where that is unknown, by
// what is first known while it runs (a fabric registers seconds after boot; hardware does not move).
func (s *factSweep) spread(f *placementFacts) (shards []shard, late []lateNode) {
	r := f.placement
	level := f.level()
	var unknown shard
	for i, node := range r.nodes {
		now, in := asOf(s.homes[node], r.from, r.to)
		gpus := int64(r.nodeGPUs[i])
		if in == nil {
			unknown.nodes++
			reason := "no_source"
			if now != nil {
				reason = now.reason
			}
			f.unknownReason = max(f.unknownReason, reason)
			continue
		}
		k := slices.IndexFunc(shards, func(x shard) bool { return x.domain == in.domain })
		if k < 0 {
			k = len(shards)
			shards = append(shards, shard{domain: in.domain, sourceMin: in.source, sourceMax: in.source})
		}
		x := &shards[k]
		x.nodes++
		if gpus < 0 || x.gpus < 0 {
			x.gpus = -1
		} else {
			x.gpus += gpus
		}
		x.sourceMin, x.sourceMax = min(x.sourceMin, in.source), max(x.sourceMax, in.source)
		f.generation = max(f.generation, in.generation)
		f.partitions = addDistinct(f.partitions, in.partition)
		f.levels = addDistinct(f.levels, in.at(level, node))
		if s.late(node, r.from, now) {
			x.lateGPUs += max(gpus, s.usualGPUs, 0)
			late = append(late, lateNode{node, in.domain})
		}
	}
	f.unknownNodes = unknown.nodes
	slices.SortFunc(shards, func(a, b shard) int {
		return cmp.Or(cmp.Compare(max(b.gpus, 0), max(a.gpus, 0)), cmp.Compare(b.nodes, a.nodes), cmp.Compare(a.domain, b.domain))
	})
	low, high := "", ""
	for i, x := range shards {
		f.domains, f.domainGPUs, f.domainNodes = append(f.domains, x.domain), append(f.domainGPUs, x.gpus), append(f.domainNodes, x.nodes)
		if i == 0 {
			low, high = x.sourceMin, x.sourceMax
		}
		low, high = min(low, x.sourceMin), max(high, x.sourceMax)
	}
	if unknown.nodes > 0 {
		low = ""
	}
	f.source = strings.Trim(low+","+high, ",")
	if low == high {
		f.source = low
	}
	return shards, late
}

// asOf gives what was said of a node at a moment (nil: nothing), and what counts as its home for a placement over
// [from, to) (nil: none is known).
func asOf(list []interval[home], from, to int64) (now, in *home) {
	for i := range list {
		switch iv := &list[i]; {
		case iv.from > from:
			if iv.value.domain != "" && in == nil && iv.from < to {
				in = &iv.value
			}
		case iv.to > from:
			if now = &iv.value; now.domain != "" {
				return now, now
			}
		}
	}
	return now, in
}

// at is where a node is at a level; "" = not known.
func (h *home) at(level, node string) string {
	switch level {
	case "", "domain":
		return h.domain
	case "partition":
		return h.partition
	case "node":
		return node
	}
	return h.levels[level]
}

func addDistinct(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// level is the level of the topology at which the attempt asked to stay together.
func (f *placementFacts) level() string {
	switch {
	case f.attempt == nil:
		return ""
	case f.attempt.switches > 0:
		return "leaf"
	}
	return f.attempt.level
}

// judged says whether there is anything on NVLink to judge (still).
func (f *placementFacts) judged() bool {
	return f.placement.deleted == 0 && f.gpus > 0 && len(f.placement.nodes) > 0
}

// factSweep runs through the time of a cluster and tells the facts of the placements that began in it, in their order.
type factSweep struct {
	clusterHistory
	clusterFacts
	window  int64
	nodes   map[string]*sweptNode
	domains map[string]*domainSum
	assumed int // nodes at home in a domain whose GPUs nobody counted
	changes []sweptChange

	sizes []domainSum // by usable GPUs, most first; nil: has to be made anew
	nodeN []int       // nodes by domain, most first
}

// domainSum is one domain while time runs.
type domainSum struct {
	domain                           string
	nodes, usable, held, free, later int
}

func newFactSweep(h clusterHistory, facts clusterFacts, window, first int64) *factSweep {
	s := &factSweep{clusterHistory: h, clusterFacts: facts, window: window, nodes: map[string]*sweptNode{}, domains: map[string]*domainSum{}}
	seen := h
	seen.homes = h.settled
	s.changes = seen.begin(s, first, window)
	return s
}

// settled is the homes as they count for what could be used: what domain a node was in when its cluster had first been
// reported in full stands for all time before.
func settled(homes map[string][]interval[home], topologyFrom int64) map[string][]interval[home] {
	out := make(map[string][]interval[home], len(homes))
	for node, list := range homes {
		for _, iv := range list {
			if iv.value.domain == "" || iv.to <= topologyFrom {
				continue
			}
			if iv.from <= topologyFrom {
				iv.from = 0
			}
			out[node] = append(out[node], iv)
		}
	}
	return out
}

// late says whether no home of a node was known yet when a placement began on it. now is what was said of it then.
func (s *factSweep) late(node string, start int64, now *home) bool {
	if start >= s.topologyFrom {
		return now == nil || now.domain == ""
	}
	settled := at(s.homes[node], s.topologyFrom)
	return settled == nil || settled.domain == ""
}

func (s *factSweep) node(name string) *sweptNode {
	n := s.nodes[name]
	if n == nil {
		n = &sweptNode{}
		s.nodes[name] = n
	}
	return n
}

func (s *factSweep) apply(c sweptChange) {
	s.count(c.node, -1)
	c.node.apply(c)
	s.count(c.node, 1)
	if c.claim == nil {
		s.sizes = nil
	}
}

// count adds a node to its domain, or takes it away.
func (s *factSweep) count(n *sweptNode, sign int) {
	if n.home == nil {
		return
	}
	d := n.sum
	if d == nil || d.domain != n.home.domain {
		if d = s.domains[n.home.domain]; d == nil {
			d = &domainSum{domain: n.home.domain}
			s.domains[d.domain] = d
		}
		n.sum = d
	}
	c := n.gpus(s.usual)
	d.nodes += sign
	d.usable += sign * c.usable
	d.held += sign * c.claimed
	d.free += sign * c.free
	d.later += sign * c.later
	if n.offer == nil || cmp.Or(n.offer.usable, n.offer.present) == nil {
		s.assumed += sign
	}
}

// facts tells the facts of a placement; those that began before must have been asked for before.
func (s *factSweep) facts(r *placementRow, a *attemptRow) placementFacts {
	for len(s.changes) > 0 && s.changes[0].at <= r.from {
		s.apply(s.changes[0])
		s.changes = s.changes[1:]
	}
	f := placementFacts{placement: r, attempt: a, gpus: r.gpus}
	segment := int64(0)
	if a != nil {
		if segment = a.segment; f.gpus < 0 {
			f.gpus = a.gpus
		}
	}
	f.gpus = max(f.gpus, 0)
	shards, late := s.spread(&f)
	if len(shards) > 1 || f.unknownNodes > 0 || segment > 0 { // one domain is the fewest there are: only the others need the sizes
		s.size(&f, shards)
	}
	if f.judged() && f.unknownNodes == 0 && (len(shards) > 1 || a != nil && a.exclusive) {
		f.free = s.room(&f, late)
	}
	return f
}

// size compares a placement with what the domains could hold then.
func (s *factSweep) size(f *placementFacts, shards []shard) {
	if s.sizes == nil {
		s.sizes, s.nodeN = make([]domainSum, 0, len(s.domains)), nil
		for _, d := range s.domains {
			if d.nodes > 0 {
				s.sizes, s.nodeN = append(s.sizes, *d), append(s.nodeN, d.nodes)
			}
		}
		sortSizes(s.sizes)
		slices.SortFunc(s.nodeN, func(a, b int) int { return b - a })
	}
	sizes, late := s.sizes, false
	for _, x := range shards {
		if x.lateGPUs > 0 {
			if !late {
				sizes, late = slices.Clone(sizes), true
			}
			if i := slices.IndexFunc(sizes, func(d domainSum) bool { return d.domain == x.domain }); i >= 0 {
				sizes[i].usable += int(x.lateGPUs)
			} else {
				sizes = append(sizes, domainSum{domain: x.domain, usable: int(x.lateGPUs)})
			}
		}
	}
	if late {
		sortSizes(sizes)
	}
	f.assumed = s.assumed > 0
	f.sized = len(sizes) > 0 && !(f.assumed && s.usualGPUs < 0)
	if len(s.nodeN) > 0 {
		f.largestNodes = uint32(s.nodeN[0])
	}
	sum := int64(0)
	for i, d := range sizes {
		if sum += int64(d.usable); sum >= f.gpus {
			f.neededForGPUs = uint32(i + 1)
			break
		}
	}
	asked := int64(0)
	if f.attempt != nil {
		asked = min(max(f.attempt.requestedNodes, 0), int64(len(f.placement.nodes)))
	}
	sum = 0
	for i, n := range s.nodeN {
		if sum += int64(n); sum >= asked {
			f.neededForNodes = uint32(i + 1)
			break
		}
	}
}

func sortSizes(sizes []domainSum) {
	slices.SortFunc(sizes, func(a, b domainSum) int { return b.usable - a.usable })
}

// room counts what was free. What the asker holds itself is free to it. A node of its own that had no home yet counts
// with the domain it turned out to be in.
func (s *factSweep) room(f *placementFacts, late []lateNode) *freeFacts {
	r := f.placement
	type correction struct{ held, free, later int }
	own := map[string]correction{}
	counted := !r.probe && r.to > r.from
	for i, node := range r.nodes {
		n := s.nodes[node]
		if n == nil {
			n = &sweptNode{}
		}
		c := claim{gpus: int(r.nodeGPUs[i]), expectedEnd: r.expectedEnd}
		without := *n
		if counted && c.gpus != 0 {
			without.hold(c, -1)
			if dueUntil(r.from, r.to, r.expectedEnd, s.window) > r.from {
				without.due(c, -1)
			}
		}
		domain, before, after := n.domain(), nodeCount{}, nodeCount{}
		if domain != "" {
			before, after = n.gpus(s.usual), without.gpus(s.usual)
		} else {
			k := slices.IndexFunc(late, func(l lateNode) bool { return l.node == node })
			if k < 0 {
				continue
			}
			domain = late[k].domain
			after = without.gpus(max(s.usual, c.gpus))
		}
		sum := own[domain]
		sum.held += after.claimed - before.claimed
		sum.free += after.free - before.free
		sum.later += after.later - before.later
		own[domain] = sum
	}
	out := &freeFacts{}
	free, later := make([]int64, 0, len(s.domains)+len(own)), make([]int64, 0, len(s.domains)+len(own))
	add := func(domain string, d domainSum) {
		o, mine := own[domain]
		free, later = append(free, int64(d.free+o.free)), append(later, int64(d.later+o.later))
		out.total += int64(d.free + o.free)
		if mine {
			out.held += int64(d.held + o.held)
		}
	}
	for domain, d := range s.domains {
		add(domain, *d)
	}
	for _, domain := range f.domains {
		if s.domains[domain] == nil {
			add(domain, domainSum{})
		}
	}
	out.first, out.later = most(free, len(f.domains)), most(later, len(f.domains))
	return out
}

// most gives the n largest, largest first; n is small beside the list.
func most(list []int64, n int) []int64 {
	out := make([]int64, 0, min(n, len(list))+1)
	for _, v := range list {
		if len(out) == n && (n == 0 || v <= out[n-1]) {
			continue
		}
		at, _ := slices.BinarySearchFunc(out, v, func(x, v int64) int { return cmp.Compare(v, x) })
		out = slices.Insert(out, at, v)
		out = out[:min(n, len(out))]
	}
	return out
}

// dueUntil is until when a holding counts as lasting longer than the window from now, by the estimate of its end (0: none).
func dueUntil(from, to, expectedEnd, window int64) int64 {
	if expectedEnd == 0 {
		return to
	}
	return min(to, max(from, expectedEnd-window))
}

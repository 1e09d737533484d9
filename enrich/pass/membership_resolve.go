package pass

import (
	"cmp"
	"maps"
	"slices"
)

// view is one telling of the topology: a source, or one of the topologies inside a source that has several.
type view struct{ source, topology string }

// label names a view in a conflict.
func (v view) label() string {
	if v.topology == "" {
		return v.source
	}
	return v.source + "/" + v.topology
}

// sortViews orders views from the one believed first: by the configured precedence of sources, sources outside it last.
func sortViews(views []view, precedence []string) {
	rank := func(source string) int {
		if i := slices.Index(precedence, source); i >= 0 {
			return i
		}
		return len(precedence)
	}
	slices.SortFunc(views, func(a, b view) int {
		return cmp.Or(cmp.Compare(rank(a.source), rank(b.source)), cmp.Compare(a.source, b.source), cmp.Compare(a.topology, b.topology))
	})
}

// effective is where a node is taken to sit.
type effective struct {
	domain    string // '' = unknown
	partition string // '' = unknown
	levels    map[string]string
	source    string // that decided
	reason    string // why the domain is unknown
}

func (e effective) equal(f effective) bool {
	return e.domain == f.domain && e.partition == f.partition && e.source == f.source && e.reason == f.reason &&
		maps.Equal(e.levels, f.levels)
}

// pairOf names the two views of a conflict, the one believed first.
type pairOf struct{ a, b string }

// conflict is what two views say of one node that cannot both be so.
type conflict struct{ domainA, domainB, detail string }

// The details of a conflict: constant texts, so that a conflict that goes on is one interval.
const (
	detailFabric  = "two fabric identities of one node differ"
	detailOwn     = "one source lets the node share NVLink with others, the other says that it shares it with none"
	detailOutside = "most nodes of domain_b are in another domain according to source_a"
	detailSpans   = "domain_b spans several domains according to source_a, so it cannot tell where this node is"
)

// nodeFacts is what every view says of one node over time: facts[v] belongs to views[v].
type nodeFacts struct {
	node  string
	facts [][]interval[fact]
}

// nodeView is the outcome for one node: where it is taken to sit, and who disagrees.
type nodeView struct {
	effective []interval[effective]
	conflicts map[pairOf][]interval[conflict]
}

// resolve turns what the views say into one effective membership from a moment on. The first view that has a say in a
// node decides. The domain name of a lower view is translated when every member of it that higher views know is in one
// domain there; when they are in several, nothing is known; when there are none, the name stands as it is.
// The nodes must be closed: whoever shares a domain of some view with one of them, at any time from the moment on, is
// among them. views are in the order of belief.
func resolve(views []view, nodes []nodeFacts, from int64) []nodeView {
	r := &resolver{
		views: views, nodes: make([]nodeState, len(nodes)), groups: make([]map[string]*group, len(views)),
		touched: make([]map[*group]struct{}, len(views)),
	}
	for v := range views {
		r.groups[v], r.touched[v] = map[string]*group{}, map[*group]struct{}{}
	}
	var changes []change
	for n, nf := range nodes {
		r.nodes[n] = nodeState{node: nf.node, facts: make([]*fact, len(views)), decider: -1}
		r.nodes[n].out.conflicts = map[pairOf][]interval[conflict]{}
		for v, facts := range nf.facts {
			for i := range facts {
				f := &facts[i]
				if f.to <= from {
					continue
				}
				changes = append(changes, change{max(f.from, from), n, v, &f.value})
				if f.to < forever && (i+1 == len(facts) || facts[i+1].from > f.to) {
					changes = append(changes, change{f.to, n, v, nil})
				}
			}
		}
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.node, b.node), cmp.Compare(a.view, b.view))
	})
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].at == changes[0].at {
			n++
		}
		r.settle(changes[0].at, changes[:n])
		changes = changes[n:]
	}
	out := make([]nodeView, len(nodes))
	for n := range r.nodes {
		out[n] = r.nodes[n].out
	}
	return out
}

// change is one view saying something new of one node; a nil fact = it never said anything.
type change struct {
	at         int64
	node, view int
	fact       *fact
}

type resolver struct {
	views   []view
	nodes   []nodeState
	groups  []map[string]*group   // by view: its domains
	touched []map[*group]struct{} // by view: domains whose members or counts changed in this moment
}

// group is one domain of one view.
type group struct {
	domain  string
	members map[int]struct{}
	counts  map[string]int // effective domains of the members that a higher view decides and knows
	known   int            // sum of counts
	byView  []int          // the same by deciding view
	told    summary
}

// summary is what a group means for its members.
type summary struct {
	name     string // the domain's name for members that this view decides; '' = spans several domains
	majority string // the effective domain of most members known to higher views; '' = no such
	highest  int    // the first view that knows one of its members
	alone    bool   // it has one member
}

func (g *group) summary() summary {
	s := summary{highest: slices.IndexFunc(g.byView, func(n int) bool { return n > 0 }), alone: len(g.members) == 1}
	switch len(g.counts) {
	case 0:
		s.name = g.domain
	case 1:
		for name := range g.counts {
			s.majority = name
			if !ownDomain(name) {
				s.name = name
			}
		}
	default:
		for name, n := range g.counts {
			if 2*n > g.known {
				s.majority = name
			}
		}
	}
	return s
}

// nodeState is one node while time runs.
type nodeState struct {
	node    string
	facts   []*fact
	decider int // index of the view that decides, -1 = none does
	eff     effective
	heard   bool // some view has said something
	open    bool // eff is in force
	out     nodeView
}

// settle applies all changes of one moment. Views are settled in the order of belief: what a view's domains mean
// depends only on nodes that higher views decide.
func (r *resolver) settle(t int64, changes []change) {
	dirty := map[int]struct{}{}
	for _, c := range changes {
		if _, again := dirty[c.node]; !again {
			dirty[c.node] = struct{}{}
			r.count(c.node, -1)
		}
		n := &r.nodes[c.node]
		r.leave(c.node, c.view)
		n.facts[c.view] = c.fact
		r.join(c.node, c.view)
	}
	undecided := make([][]int, len(r.views))
	for id := range dirty {
		n := &r.nodes[id]
		n.eff = effective{}
		n.decider = slices.IndexFunc(n.facts, (*fact).decides)
		if n.decider >= 0 {
			undecided[n.decider] = append(undecided[n.decider], id)
			continue
		}
		n.decide(r.views, nil)
	}
	review := maps.Clone(dirty)
	for v := range r.views {
		for g := range r.touched[v] {
			told := g.summary()
			if told == g.told {
				continue
			}
			renamed := told.name != g.told.name
			g.told = told
			for id := range g.members {
				review[id] = struct{}{}
				if _, fresh := dirty[id]; renamed && !fresh && r.nodes[id].decider == v {
					r.count(id, -1)
					r.nodes[id].decide(r.views, g)
					r.count(id, 1)
				}
			}
		}
		clear(r.touched[v])
		for _, id := range undecided[v] {
			n := &r.nodes[id]
			n.decide(r.views, r.groups[v][n.facts[v].domain])
			r.count(id, 1)
		}
	}
	for id := range review {
		r.nodes[id].record(t, r)
	}
}

// join and leave keep the members of a view's domains.
func (r *resolver) join(id, v int) {
	f := r.nodes[id].facts[v]
	if f == nil || f.domain == "" {
		return
	}
	g := r.groups[v][f.domain]
	if g == nil {
		g = &group{
			domain: f.domain, members: map[int]struct{}{}, counts: map[string]int{}, byView: make([]int, len(r.views)),
		}
		r.groups[v][f.domain] = g
	}
	g.members[id] = struct{}{}
	r.touched[v][g] = struct{}{}
}

func (r *resolver) leave(id, v int) {
	f := r.nodes[id].facts[v]
	if f == nil || f.domain == "" {
		return
	}
	g := r.groups[v][f.domain]
	delete(g.members, id)
	r.touched[v][g] = struct{}{}
}

// count adds (+1) or withdraws (-1) a decided node as evidence of what the domains of lower views mean.
func (r *resolver) count(id, sign int) {
	n := &r.nodes[id]
	if n.decider < 0 || n.eff.domain == "" {
		return
	}
	for v := n.decider + 1; v < len(r.views); v++ {
		f := n.facts[v]
		if f == nil || f.domain == "" {
			continue
		}
		g := r.groups[v][f.domain]
		g.known += sign
		g.byView[n.decider] += sign
		if g.counts[n.eff.domain] += sign; g.counts[n.eff.domain] == 0 {
			delete(g.counts, n.eff.domain)
		}
		r.touched[v][g] = struct{}{}
	}
}

// decide sets where the node sits; g is the deciding view's domain of it, nil where that view knows none.
func (n *nodeState) decide(views []view, g *group) {
	e := effective{levels: map[string]string{}}
	n.heard = false
	removed := true
	for _, f := range n.facts {
		if f == nil {
			continue
		}
		n.heard = true
		removed = removed && f.reason == reasonRemoved
		for level, value := range f.levels {
			if _, higher := e.levels[level]; !higher {
				e.levels[level] = value
			}
		}
	}
	switch {
	case n.decider < 0 && removed:
		e.reason = reasonRemoved
	case n.decider < 0:
		e.reason = reasonNoSource
	default:
		f := n.facts[n.decider]
		e.source, e.reason = views[n.decider].source, f.reason
		if g != nil {
			e.domain = g.told.name
			switch e.domain {
			case f.domain:
				e.partition = f.partition
			case "":
				e.reason = reasonConflict
			}
		}
	}
	n.eff = e
}

// record closes what no longer holds and opens what does.
func (n *nodeState) record(t int64, r *resolver) {
	last := len(n.out.effective) - 1
	if n.open && (!n.heard || !n.out.effective[last].value.equal(n.eff)) {
		n.out.effective[last].to = t
		n.open = false
	}
	if !n.open && n.heard {
		n.out.effective = append(n.out.effective, interval[effective]{t, forever, n.eff})
		n.open = true
	}
	now := n.conflicts(r)
	for pair, list := range n.out.conflicts {
		last := &list[len(list)-1]
		if last.to != forever {
			continue
		}
		if c, still := now[pair]; still && c == last.value {
			delete(now, pair)
			continue
		}
		last.to = t
	}
	for pair, c := range now {
		n.out.conflicts[pair] = append(n.out.conflicts[pair], interval[conflict]{t, forever, c})
	}
}

// conflicts compares what decided with every lower view that knows the node.
func (n *nodeState) conflicts(r *resolver) map[pairOf]conflict {
	if n.decider < 0 || n.facts[n.decider].domain == "" {
		return nil
	}
	out := map[pairOf]conflict{}
	a, mine := r.views[n.decider], n.facts[n.decider].domain
	if n.eff.domain == "" {
		g := r.groups[n.decider][mine]
		out[pairOf{r.views[g.told.highest].label(), a.label()}] = conflict{"", mine, detailSpans}
		return out
	}
	for v := n.decider + 1; v < len(r.views); v++ {
		f, b := n.facts[v], r.views[v]
		if f == nil || f.domain == "" || f.domain == n.eff.domain {
			continue
		}
		g, detail := r.groups[v][f.domain], ""
		switch {
		case fabricSources[a.source] && fabricSources[b.source]:
			if f.domain != mine {
				detail = detailFabric
			}
		case ownDomain(n.eff.domain):
			if !g.told.alone {
				detail = detailOwn
			}
		case ownDomain(f.domain):
			if !r.groups[n.decider][mine].told.alone {
				detail = detailOwn
			}
		case g.told.majority != n.eff.domain:
			detail = detailOutside
		}
		if detail != "" {
			out[pairOf{a.label(), b.label()}] = conflict{n.eff.domain, f.domain, detail}
		}
	}
	return out
}

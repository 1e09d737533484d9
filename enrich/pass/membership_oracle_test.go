package pass

import (
	"maps"
	"slices"
)

// said is one raw membership record of a test.
type said struct {
	view     view
	at       int64
	revision uint64
	record   membershipRecord
}

// oracle answers every question about one cluster from all records, from scratch, at one moment, by the definitions.
type oracle struct {
	views   []view // in the order of belief
	records []said // in the order of their offsets
	nodes   []string
}

// fact is what a view says of a node at a moment: the newest of its records that speaks of that moment.
func (o *oracle) fact(node string, v view, t int64) *fact {
	var newest *said
	for i := range o.records {
		r := &o.records[i]
		if r.view == v && r.record.node == node && r.at <= t && (newest == nil || r.revision >= newest.revision) {
			newest = r
		}
	}
	if newest == nil {
		return nil
	}
	f := newest.record.fact()
	return &f
}

func (o *oracle) decider(node string, t int64) int {
	return slices.IndexFunc(o.views, func(v view) bool { return o.fact(node, v, t).decides() })
}

// evidence gives the effective domain of every member of a view's domain that a higher view decides and knows.
func (o *oracle) evidence(v int, domain string, t int64) (known map[string]string, members []string) {
	known = map[string]string{}
	for _, m := range o.nodes {
		if f := o.fact(m, o.views[v], t); f == nil || f.domain != domain {
			continue
		}
		members = append(members, m)
		if d := o.decider(m, t); d < v {
			if name := o.domain(m, t); name != "" {
				known[m] = name
			}
		}
	}
	return known, members
}

// domain is the effective domain of a node at a moment, ” when unknown.
func (o *oracle) domain(node string, t int64) string {
	d := o.decider(node, t)
	if d < 0 {
		return ""
	}
	f := o.fact(node, o.views[d], t)
	if f.domain == "" {
		return ""
	}
	known, _ := o.evidence(d, f.domain, t)
	names := slices.Compact(slices.Sorted(maps.Values(known)))
	switch {
	case len(names) == 0:
		return f.domain
	case len(names) == 1 && !ownDomain(names[0]):
		return names[0]
	}
	return ""
}

// effective is where a node sits at a moment; nil = nobody has spoken of it.
func (o *oracle) effective(node string, t int64) *effective {
	e := effective{levels: map[string]string{}}
	heard, removed := false, true
	for _, v := range slices.Backward(o.views) {
		if f := o.fact(node, v, t); f != nil {
			heard, removed = true, removed && f.reason == reasonRemoved
			maps.Copy(e.levels, f.levels)
		}
	}
	d := o.decider(node, t)
	switch {
	case !heard:
		return nil
	case d < 0 && removed:
		e.reason = reasonRemoved
	case d < 0:
		e.reason = reasonNoSource
	default:
		f := o.fact(node, o.views[d], t)
		e.source, e.reason, e.domain = o.views[d].source, f.reason, o.domain(node, t)
		if f.domain != "" && e.domain == "" {
			e.reason = reasonConflict
		}
		if e.domain == f.domain {
			e.partition = f.partition
		}
	}
	return &e
}

// conflicts are the disagreements on one node at a moment.
func (o *oracle) conflicts(node string, t int64) map[pairOf]conflict {
	out := map[pairOf]conflict{}
	d := o.decider(node, t)
	if d < 0 || o.fact(node, o.views[d], t).domain == "" {
		return out
	}
	mine, name := o.fact(node, o.views[d], t).domain, o.domain(node, t)
	if name == "" {
		known, _ := o.evidence(d, mine, t)
		highest := len(o.views)
		for m := range known {
			highest = min(highest, o.decider(m, t))
		}
		out[pairOf{o.views[highest].label(), o.views[d].label()}] = conflict{"", mine, detailSpans}
		return out
	}
	for v := d + 1; v < len(o.views); v++ {
		f := o.fact(node, o.views[v], t)
		if f == nil || f.domain == "" || f.domain == name {
			continue
		}
		known, members := o.evidence(v, f.domain, t)
		_, peers := o.evidence(d, mine, t)
		same := 0
		for _, other := range known {
			if other == name {
				same++
			}
		}
		detail := ""
		switch {
		case fabricSources[o.views[d].source] && fabricSources[o.views[v].source]:
			if mine != f.domain {
				detail = detailFabric
			}
		case ownDomain(name):
			if len(members) > 1 {
				detail = detailOwn
			}
		case ownDomain(f.domain):
			if len(peers) > 1 {
				detail = detailOwn
			}
		case 2*same <= len(known):
			detail = detailOutside
		}
		if detail != "" {
			out[pairOf{o.views[d].label(), o.views[v].label()}] = conflict{name, f.domain, detail}
		}
	}
	return out
}

// facts turns the records into the input of resolve, through foldSteps.
func (o *oracle) facts() []nodeFacts {
	out := make([]nodeFacts, len(o.nodes))
	for i, node := range o.nodes {
		out[i] = nodeFacts{node: node, facts: make([][]interval[fact], len(o.views))}
		for v, vw := range o.views {
			var records []step[fact]
			for _, r := range o.records {
				if r.view == vw && r.record.node == node {
					records = append(records, step[fact]{at: r.at, revision: r.revision, value: r.record.fact()})
				}
			}
			out[i].facts[v] = intervalsOf(foldSteps(nil, records, fact.equal))
		}
	}
	return out
}

func (o *oracle) moments() []int64 {
	var out []int64
	for _, r := range o.records {
		out = append(out, r.at-1, r.at)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

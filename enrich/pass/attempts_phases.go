package pass

import (
	"cmp"
	"slices"
)

// basisEven is between basisExact and basisUnknown: the total was told, and it divides evenly.
const basisEven = "even"

// phase is a set of nodes held over [from, to).
type phase struct {
	from, to int64
	nodes    []string
}

// listing is a full set of nodes a source told of from a time on.
type listing struct {
	at    int64
	nodes []string
}

// placements gives what a run held, phase by phase, and completes the attempt's GPUs from its nodes where no record
// has the total.
func (r *jobRun) placements(a *attemptRow, clamped map[string]int) []placementRow {
	if a.start == 0 {
		return nil
	}
	end := a.end
	if end == 0 {
		end = forever
	}
	g := r.gpuCounts()
	var out []placementRow
	for i, ph := range r.phases(a.start, end, clamped) {
		p := placementRow{
			cluster: a.cluster, jobID: a.jobID, attempt: a.attempt, seq: uint16(i), from: ph.from, to: ph.to, nodes: ph.nodes,
			probe: a.probe, expectedEnd: a.expectedEnd,
		}
		p.nodeGPUs, p.gpuIndex, p.basis = g.spread(ph.nodes)
		p.nodePods = g.pods(ph.nodes)
		p.gpus = a.gpus
		if p.gpus < 0 && p.basis != basisUnknown {
			p.gpus = 0
			for _, n := range p.nodeGPUs {
				p.gpus += int64(n)
			}
		}
		out = append(out, p)
	}
	if a.gpus < 0 && len(out) > 0 {
		a.gpus = out[len(out)-1].gpus
	}
	return out
}

// phases cuts [start, end) where the set of nodes changed. Sources may have skewed clocks, so only one of them is
// believed about changes: the one that saw most.
func (r *jobRun) phases(start, end int64, clamped map[string]int) []phase {
	full := func(o *record) bool { return !o.partial && len(o.nodes) > 0 }
	bySource := map[string][]record{}
	for _, o := range r.records {
		if full(&o) && o.holding() {
			bySource[o.source] = append(bySource[o.source], o)
		}
	}
	var best []phase
	var bestOf string
	var bestRevision uint64
	bestClamps := map[string]int{}
	for source, records := range bySource {
		clamps := map[string]int{}
		phases := r.phasesOf(records, start, end, clamps)
		revision := records[len(records)-1].revision
		if best == nil || cmp.Or(cmp.Compare(len(phases), len(best)), cmp.Compare(revision, bestRevision), -cmp.Compare(source, bestOf)) > 0 {
			best, bestOf, bestRevision, bestClamps = phases, source, revision, clamps
		}
	}
	if best != nil {
		for reason, n := range bestClamps {
			clamped[reason] += n
		}
		return best
	}
	// Nobody saw the run while it held anything as a whole: how it ended may name its nodes, else the parts do.
	var nodes []string
	for _, c := range r.components() {
		if o := last(r.of(c), func(o *record) bool { return full(o) && o.ended() }); o != nil {
			nodes = append(nodes, o.nodes...)
		}
	}
	if len(nodes) == 0 {
		for _, o := range r.records {
			if o.partial {
				nodes = append(nodes, o.nodes...)
			}
		}
	}
	if nodes = unique(nodes); len(nodes) == 0 {
		return nil
	}
	return []phase{{start, end, nodes}}
}

func unique(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return slices.Compact(out)
}

// phasesOf are the phases as one source saw them; records are its full sets in order of revision.
func (r *jobRun) phasesOf(records []record, start, end int64, clamped map[string]int) []phase {
	// All components begin with the first set told of them; afterwards each record replaces its component's.
	current := map[string]*record{}
	for i := len(records) - 1; i >= 0; i-- {
		current[records[i].component] = &records[i]
	}
	union := func() []string {
		var nodes []string
		for _, o := range current {
			nodes = append(nodes, o.nodes...)
		}
		return unique(nodes)
	}
	until, since := map[string]int64{}, map[string]int64{} // node_to, and node_from of nodes that replace another
	for _, o := range current {
		replace(o, start, since)
	}
	listings := []listing{{start, union()}}
	for i := range records {
		o := &records[i]
		for n, node := range o.nodes {
			if delete(until, node); n < len(o.nodeTo) && o.nodeTo[n] > 0 {
				until[node] = o.nodeTo[n]
			}
		}
		before := current[o.component]
		current[o.component] = o
		prev := &listings[len(listings)-1]
		nodes := union()
		if slices.Equal(nodes, prev.nodes) {
			continue
		}
		at := int64(0)
		for n, node := range o.nodes {
			if n < len(o.nodeFrom) && o.nodeFrom[n] > 0 && !slices.Contains(before.nodes, node) && (at == 0 || o.nodeFrom[n] < at) {
				at = o.nodeFrom[n]
			}
		}
		if at == 0 {
			at = o.observed
		}
		if at < prev.at || at > end {
			clamped["node_change_outside_run"]++
			at = min(max(at, prev.at), end)
		}
		listings = append(listings, listing{at, nodes})
	}

	cuts := []int64{start, end}
	for _, l := range listings {
		cuts = append(cuts, l.at)
	}
	for _, t := range until {
		cuts = append(cuts, min(max(t, start), end))
	}
	for _, t := range since {
		cuts = append(cuts, min(max(t, start), end))
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var out []phase
	add := func(from, to int64, nodes []string) {
		var held []string
		for _, n := range nodes {
			if t, gone := until[n]; gone && t <= from && from < to {
				continue
			}
			if since[n] > from {
				continue
			}
			held = append(held, n)
		}
		switch {
		case len(held) == 0:
		case len(out) > 0 && out[len(out)-1].to == from && slices.Equal(out[len(out)-1].nodes, held):
			out[len(out)-1].to = to
		default:
			out = append(out, phase{from, to, held})
		}
	}
	for i := 0; i+1 < len(cuts); i++ {
		l := len(listings) - 1
		for listings[l].at > cuts[i] {
			l--
		}
		add(cuts[i], cuts[i+1], listings[l].nodes)
	}
	if len(out) == 0 { // it ended as it started
		out = append(out, phase{start, end, listings[0].nodes})
	}
	return out
}

// replace notes the nodes of a run's first set that came only when or after another one of it had gone.
func replace(o *record, start int64, since map[string]int64) {
	left := int64(0)
	for _, t := range o.nodeTo {
		if t > 0 && (left == 0 || t < left) {
			left = t
		}
	}
	if left == 0 {
		return
	}
	for n, node := range o.nodes {
		if n < len(o.nodeFrom) && o.nodeFrom[n] > start && o.nodeFrom[n] >= left {
			since[node] = o.nodeFrom[n]
		}
	}
}

// gpuCounts is what is known of the GPUs of a run's nodes, by component.
type gpuCounts []componentGPUs

type componentGPUs struct {
	total int64 // -1 = not known
	nodes map[string]bool
	told  map[string]int32
	index map[string][]uint16
	pods  map[string][]string // all that were ever told of: one may take another's place
}

func (r *jobRun) gpuCounts() gpuCounts {
	var out gpuCounts
	for _, name := range r.components() {
		records := r.of(name)
		c := componentGPUs{
			total: newest(records, func(o *record) int64 { return o.gpus }, -1),
			nodes: map[string]bool{}, told: map[string]int32{}, index: map[string][]uint16{}, pods: map[string][]string{},
		}
		for i := range records { // in order, so the newest stays
			o := &records[i]
			for n, node := range o.nodes {
				c.nodes[node] = true
				if n < len(o.gpuIndex) && len(o.gpuIndex[n]) > 0 {
					c.index[node] = o.gpuIndex[n]
					c.told[node] = int32(len(o.gpuIndex[n]))
				}
				if n < len(o.nodeGPUs) && o.nodeGPUs[n] >= 0 {
					c.told[node] = o.nodeGPUs[n]
				}
				if n < len(o.nodePods) && len(o.nodePods[n]) > 0 {
					c.pods[node] = unique(append(c.pods[node], o.nodePods[n]...))
				}
			}
		}
		out = append(out, c)
	}
	return out
}

// spread gives the GPUs of each node of a phase: as told, else what is left of the total split evenly, else -1.
func (g gpuCounts) spread(nodes []string) (counts []int32, index [][]uint16, basis string) {
	counts, index = make([]int32, len(nodes)), make([][]uint16, len(nodes))
	basis = basisExact
	for _, c := range g {
		rest, untold := c.total, int64(0)
		for _, n := range nodes {
			if told, ok := c.told[n]; ok {
				rest -= int64(told)
			} else if c.nodes[n] {
				untold++
			}
		}
		even := int32(-1)
		if untold > 0 {
			if c.total >= 0 && rest >= 0 && rest%untold == 0 {
				even = int32(rest / untold)
				if basis == basisExact {
					basis = basisEven
				}
			} else {
				basis = basisUnknown
			}
		}
		for i, n := range nodes {
			told, ok := c.told[n]
			switch {
			case !c.nodes[n]:
				continue
			case !ok:
				told = even
			}
			if told < 0 || counts[i] < 0 {
				counts[i] = -1
			} else {
				counts[i] += told
			}
			index[i] = append(slices.Clone(index[i]), c.index[n]...)
		}
	}
	for i := range index {
		slices.Sort(index[i])
		index[i] = slices.Compact(index[i])
	}
	return counts, index, basis
}

// pods gives those through which each node of a phase is held; nil when none are told of.
func (g gpuCounts) pods(nodes []string) [][]string {
	var out [][]string
	for _, c := range g {
		for i, n := range nodes {
			if pods := c.pods[n]; len(pods) > 0 {
				if out == nil {
					out = make([][]string, len(nodes))
				}
				out[i] = unique(append(out[i], pods...))
			}
		}
	}
	return out
}

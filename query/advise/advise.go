package advise

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Advise answers a request from a snapshot, as seen at the time now. An error is a *Refusal.
func (c *Config) Advise(s *Snapshot, r *Request, now time.Time) (*Response, error) {
	age := now.Sub(time.Unix(s.At, 0))
	return c.AdviseAged(s, r, now, &age, nil)
}

// Kept is a node that a short hold keeps for somebody else until a time, in Unix seconds.
type Kept struct {
	Node  int32
	Until int64
}

// AdviseAged is Advise for a snapshot that is known to be of that age, as one that has not changed is not old; nil = not
// known. What is kept for others is not free until then; it comes by node, each node once.
func (c *Config) AdviseAged(s *Snapshot, r *Request, now time.Time, age *time.Duration, kept []Kept) (*Response, error) {
	q := working.Get().(*question)
	defer q.done()
	q.c, q.s, q.r, q.now = c, s, r, now.Unix()
	info := c.Info(s, age)
	if info.Stale && !r.AllowStale {
		refusal := &Refusal{Code: StaleSnapshot, Detail: "no collector of this cluster's jobs has ever reported, so the picture's age is not known",
			Remedy: "place the job without advice, or set allow_stale; the operator should look at the collectors"}
		if age != nil {
			refusal.Detail = fmt.Sprintf("the newest state is %d s old", int64(age.Seconds()))
		}
		return nil, refusal
	}
	if len(s.Topology.Nodes) == 0 {
		return nil, &Refusal{Code: TopologyUnknown, Detail: fmt.Sprintf("no node has a known domain, %d have none", len(s.Topology.Unknown)),
			Remedy: "configure a source of topology for this cluster"}
	}
	if refusal := c.Tenants.refuse(r); refusal != nil {
		return nil, refusal
	}
	var err error
	if q.a, err = c.ask(s.Topology, r); err != nil {
		return nil, err
	}
	q.narrow(kept)
	if err := q.possible(); err != nil {
		return nil, err
	}
	resp := &Response{
		RequestID: r.RequestID, Strategy: c.Strategy.Name(), ExpiresIn: int(c.Expires.Seconds()), Snapshot: info,
	}
	if err := q.answer(resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// Info says what an answer from a snapshot of that age rests on; nil = its age is not known.
func (c *Config) Info(s *Snapshot, age *time.Duration) SnapshotInfo {
	share := func(part, all int) float64 {
		if all == 0 {
			return 1
		}
		return round(float64(part)/float64(all), 4)
	}
	info := SnapshotInfo{
		Seq: s.Seq, Generation: s.Topology.Generation, Stale: age == nil || *age > c.StaleAfter,
		Coverage:  share(len(s.Topology.Nodes), len(s.Topology.Nodes)+len(s.Topology.Unknown)),
		Estimates: share(s.Estimated, s.Held),
	}
	if age != nil {
		ms := max(0, age.Milliseconds())
		info.AgeMS = &ms
	}
	return info
}

// question is one request on its way.
type question struct {
	c    *Config
	s    *Snapshot
	r    *Request
	a    Ask
	v    View
	now  int64
	best int // the fewest domains the ask could have in an empty cluster

	forbidden []bool // per domain: the tenant may not use it; nil for none

	// Room to work in, as large as the cluster has domains. It is used again by later questions and no answer refers to it.
	p        Plan
	sizes    []sized
	free     freeTally
	excluded []int32 // nodes that the asker excludes, ascending
	kept     []Kept
	times    []int64
}

// working keeps the room of questions that have been answered: a thousand a second would keep the collector busy.
var working = sync.Pool{New: func() any { return new(question) }}

func (q *question) done() {
	*q = question{p: q.p, sizes: q.sizes, free: q.free, excluded: q.excluded[:0], kept: q.kept[:0], times: q.times}
	working.Put(q)
}

// ViewFor shows what a tenant may take of a snapshot of that cluster, whatever it asks for; "" is anybody.
func (c *Config) ViewFor(s *Snapshot, cluster, tenant string) View {
	q := question{c: c, s: s, r: &Request{Cluster: cluster, Tenant: tenant}}
	q.narrow(nil)
	return q.v
}

// narrow makes the view of what this asker may take: a copy only where it differs from what anybody may.
func (q *question) narrow(kept []Kept) {
	s, r, t := q.s, q.r, q.s.Topology
	q.v = s.View()
	q.forbidden = q.c.Tenants.closed(r.Tenant, r.Cluster, t)
	tenant := int32(slices.Index(s.tenants, r.Tenant))
	if (r.GPUModel == "" || r.GPUModel == t.model) && r.RequirePartition == "" && !r.ExclusiveDomain && len(r.ExcludeNodes) == 0 &&
		tenant <= 0 && t.uniform && q.forbidden == nil && len(kept) == 0 {
		return
	}
	q.v.Free, q.v.partial = slices.Clone(s.free), slices.Clone(s.partial)
	q.v.closed, q.v.barred = make([]bool, len(s.free)), make([]int32, len(s.free))
	for d := range t.Domains {
		if q.unfit(d) || r.ExclusiveDomain && s.held[d] > 0 {
			q.v.closed[d] = true
			q.v.Free[d] = 0
			clear(q.v.partial[d*maxGPUs : (d+1)*maxGPUs])
		}
	}
	if tenant > 0 {
		for _, n := range s.reserved {
			if d := t.Nodes[n].Domain; s.tenant[n] == tenant && s.whole(t, n) && s.used[n] == 0 && !q.v.closed[d] {
				q.v.Free[d]++
				q.v.barred[d]--
			}
		}
	}
	for _, name := range r.ExcludeNodes {
		if n, ok := t.Node(name); ok {
			q.excluded = append(q.excluded, n)
		}
	}
	slices.Sort(q.excluded)
	q.excluded = slices.Compact(q.excluded) // a node may be named twice
	for _, n := range q.excluded {
		d := t.Nodes[n].Domain
		if q.v.closed[d] || !q.allowed(n) {
			continue
		}
		whole := s.whole(t, n)
		if whole {
			q.v.barred[d]++
		}
		if whole && s.used[n] == 0 {
			q.v.Free[d]--
		} else if left := s.left(n); left > 0 && s.tenant[n] == 0 {
			q.v.partial[int(d)*maxGPUs+int(left)]--
		}
	}
	q.keep(kept)
}

// keep takes the nodes that are kept for others from what is free, until they are not kept any more.
func (q *question) keep(kept []Kept) {
	s, t := q.s, q.s.Topology
	if len(kept) > 0 {
		q.v.order = slices.Clone(s.order)
	}
	for _, k := range kept {
		d := t.Nodes[k.Node].Domain
		if q.v.closed[d] || !q.allowed(k.Node) || q.excludes(k.Node) || !s.whole(t, k.Node) || s.used[k.Node] > 0 {
			continue // not free to this asker anyway
		}
		q.kept = append(q.kept, k)
		q.v.Free[d]--
		if s.tenant[k.Node] != 0 { // free although its domain's order does not have it
			q.v.barred[d]++
			continue
		}
		order := append(make([]int64, 0, len(s.order[d])), q.v.order[d][1:]...)
		at, _ := slices.BinarySearch(order, k.Until)
		q.v.order[d] = slices.Insert(order, at, k.Until)
	}
	q.v.kept = q.kept
}

// unfit reports whether the asker may never have nodes of a domain, whoever leaves it.
func (q *question) unfit(d int) bool {
	dom, r, per := &q.s.Topology.Domains[d], q.r, q.a.GPUsPerNode
	if q.a.Shared > 0 {
		per = q.a.Shared
	}
	return q.forbidden != nil && q.forbidden[d] || r.GPUModel != "" && dom.Model != r.GPUModel ||
		r.RequirePartition != "" && dom.ID != r.RequirePartition && dom.Partition != r.RequirePartition || dom.GPUsPerNode < per
}

// excludes reports whether the asker does not want a node.
func (q *question) excludes(n int32) bool {
	_, found := slices.BinarySearch(q.excluded, n)
	return found
}

// keptUntil is until when a node is kept for others; 0 where it is not.
func (q *question) keptUntil(n int32) int64 {
	if at, found := slices.BinarySearchFunc(q.kept, n, func(k Kept, n int32) int { return cmp.Compare(k.Node, n) }); found {
		return q.kept[at].Until
	}
	return 0
}

// allowed reports whether the asker could have a node if it were free.
func (q *question) allowed(n int32) bool {
	return q.s.usable[n] > 0 && (q.s.tenant[n] == 0 || q.r.Tenant != "" && q.s.tenants[q.s.tenant[n]] == q.r.Tenant)
}

// open tells the sizes of the domains that the asker might have nodes of. What nobody else may be in may be empty some day.
func (q *question) open() []sized {
	q.sizes = q.sizes[:0]
	if q.v.closed == nil {
		q.sizes = append(q.sizes, q.s.Topology.sizes...)
		return q.sizes
	}
	for d, n := range q.s.Topology.count {
		if !q.unfit(d) {
			q.sizes = addSize(q.sizes, n)
		}
	}
	return q.sizes
}

// possible refuses what could not be placed even in an empty cluster, or only where the tenant may not be.
func (q *question) possible() error {
	refusal := q.fits()
	if refusal == nil {
		return nil
	}
	if forbidden := q.forbidden; forbidden != nil {
		q.forbidden = nil
		elsewhere := q.fits()
		q.forbidden = forbidden
		if elsewhere == nil {
			refusal.Code, refusal.Detail = TenantForbidden, fmt.Sprintf("it would take domains that tenant %q may not use", q.r.Tenant)
			refusal.Remedy = "ask for what fits the domains that it may use, or have advise.tenants changed"
		}
	}
	return refusal
}

// fits gives the fewest domains that the ask could have in an empty cluster to best, or why it has none.
func (q *question) fits() *Refusal {
	a := &q.a
	sizes, largest, whole := q.open(), int32(0), int32(0)
	if a.Shared > 0 && len(sizes) > 0 {
		q.best = 1
		return nil
	}
	for i := range sizes { // from here on in units
		n := a.within(sizes[i].nodes)
		sizes[i].nodes = n / a.unit()
		largest, whole = max(largest, n), whole+sizes[i].domains*sizes[i].nodes*a.unit()
	}
	slices.SortFunc(sizes, func(x, y sized) int { return cmp.Compare(y.nodes, x.nodes) })
	need, taken := a.needs(), int32(0)
	for _, s := range sizes {
		if s.nodes > 0 && need <= s.nodes*s.domains {
			q.best = int(taken + (need+s.nodes-1)/s.nodes)
			break
		}
		need, taken = need-s.nodes*s.domains, taken+s.domains
	}
	if q.best > 0 && a.allowed(q.best) {
		return nil
	}
	most := whole
	if !a.allowed(2) {
		most = largest
	} else if a.MaxDomains > 0 {
		most = 0
		for i, left := 0, a.MaxDomains; i < len(sizes) && left > 0; i++ {
			n := min(left, sizes[i].domains)
			most, left = most+n*sizes[i].nodes*a.unit(), left-n
		}
	}
	r := &Refusal{Code: NeverFits,
		Detail: fmt.Sprintf("%d nodes of this shape never fit: at most %d do, with %d spare nodes a domain", a.Nodes, most, a.Spares),
		Remedy: "ask for fewer GPUs, smaller segments, more domains or mode preferred", Counts: q.counts()}
	if most > 0 {
		r.Legal = []int{int(most * a.GPUsPerNode)}
	}
	return r
}

// answer fills in candidates, the recommendation and how to ask the scheduler for it.
func (q *question) answer(resp *Response) error {
	q.c.Strategy.Place(&q.v, &q.a, &q.p)
	outcome, parts := q.p.Outcome, len(q.p.Parts)
	var now, later *Candidate
	unestimated := int32(0)
	if parts > 0 {
		now = q.candidate(q.now, "")
	}
	placedBest := outcome == Placed && (q.a.Shared > 0 || parts <= q.best && q.p.Split.High <= 1)
	if !placedBest {
		resp.NotNow = q.notNow()
		if later = q.later(outcome); later == nil {
			if unestimated = q.unestimated(outcome); unestimated > 0 {
				resp.NotNow.Code = NoEstimates
				resp.NotNow.Detail += fmt.Sprintf("; when more come free is not known: jobs without an end estimate hold %d nodes", unestimated)
				resp.NotNow.Remedy = "give jobs time limits, ask for fewer GPUs, or ask for a plan to make room"
			}
		}
		if q.r.Preempt == "plan" && q.best == 1 && q.a.Shared == 0 {
			resp.MakeRoom = q.makeRoom(later)
		}
	}
	switch {
	case outcome == Placed:
		resp.add(now, later)
		resp.Recommendation = "start rank 1"
		resp.Why = q.whyNow(parts, placedBest)
	case now != nil && (later == nil || q.hopeless(now, later)):
		resp.add(now, later)
		resp.Recommendation = "start rank 1"
		switch {
		case later != nil:
			resp.Why = []string{"the better shape comes too late", "the split that is free now keeps the limit"}
		case unestimated > 0:
			resp.Why = []string{"when the better shape comes free is not known, for jobs have no end estimate", "a split is free now"}
		default:
			resp.Why = []string{"no job that ends brings the better shape", "a split is free now"}
		}
	case later != nil:
		resp.add(later, now)
		resp.Recommendation = "wait for rank 1"
		resp.Why = []string{"the best shape is not free now"}
		if now != nil {
			resp.Why = append(resp.Why, "the split that is free now is predicted to lose more than is accepted at once")
			if at, ok := Earliest(q.c.Strategy, &q.v, &q.a, q.now, &q.p); ok && at < q.now+later.WaitS {
				resp.Why = append(resp.Why, fmt.Sprintf("the wait is bounded: from %d s on a split is accepted, ask again then", at-q.now))
			}
		}
	default:
		return q.noCapacity(resp.NotNow, resp.MakeRoom)
	}
	if n := len(q.kept); n > 0 && !placedBest {
		resp.Why = append(resp.Why, fmt.Sprintf("%d nodes are kept by short holds of others, the first until %s", n, q.firstKept()))
	}
	if m := resp.MakeRoom; m != nil && m.Worthwhile && resp.Recommendation != "start rank 1" {
		resp.Recommendation = "make room"
		resp.Why = append(resp.Why, "moving jobs costs less than half of what waiting does")
		if m.NotBefore != nil {
			resp.Why = append(resp.Why, "not before "+m.NotBefore.Format(time.RFC3339)+": until then a job may not be ended that would have to")
		}
	}
	limit := q.r.Candidates
	if limit == 0 {
		limit = 3
	}
	resp.Candidates = resp.Candidates[:min(limit, len(resp.Candidates))]
	q.flags(resp)
	return nil
}

// add appends candidates and ranks them.
func (resp *Response) add(candidates ...*Candidate) {
	for _, c := range candidates {
		if c != nil {
			c.Rank = len(resp.Candidates) + 1
			resp.Candidates = append(resp.Candidates, *c)
		}
	}
}

// bestShape is the ask for as few domains as an empty cluster would need.
func (q *question) bestShape() Ask {
	ask := q.a
	if ask.Shared == 0 {
		ask.MaxDomains = int32(q.best)
		if q.best == 1 {
			ask.Mode, ask.Segment = Required, 0
		}
	}
	return ask
}

// later is the earliest start in the best shape; where a split would start sooner than that is free, and nothing is free
// now, the strategy's own earliest start.
func (q *question) later(outcome Outcome) *Candidate {
	ask := q.bestShape()
	at, ok := Earliest(q.c.Strategy, &q.v, &ask, q.now, &q.p)
	if !ok && outcome == NoFit {
		at, ok = Earliest(q.c.Strategy, &q.v, &q.a, q.now, &q.p)
	}
	if !ok {
		return nil
	}
	return q.candidate(at, "end_estimates")
}

// unestimated is how many nodes jobs without an end estimate hold, where the ask would fit if all jobs ended, in its best
// shape or, where nothing is free now, in any; 0 where it would not.
func (q *question) unestimated(outcome Outcome) int32 {
	s, t := q.s, q.s.Topology
	if s.usage.held == s.usage.estimated {
		return 0
	}
	nodes, then := int32(0), q.v
	then.Free = make([]int32, len(q.v.Free))
	for d := range t.Domains {
		if q.unfit(d) {
			continue
		}
		q.times = q.ends(d, q.times, func(h *Hold) int64 { return h.End })
		for i, end := range q.times {
			n := t.Domains[d].First + int32(i)
			if !q.allowed(n) || q.excludes(n) || !s.whole(t, n) {
				continue
			}
			then.Free[d]++
			if end == Never {
				nodes++
			}
		}
	}
	if nodes == 0 {
		return 0
	}
	ask := q.bestShape()
	if q.c.Strategy.Place(&then, &ask, &q.p); q.p.Outcome == NoFit && outcome == NoFit {
		q.c.Strategy.Place(&then, &q.a, &q.p)
	}
	if q.p.Outcome == NoFit {
		return 0
	}
	return nodes
}

// ends gives when the nodes of a domain are free of jobs, each of which ends when told: 0 for now, Never where nothing is
// told of one that is on it.
func (q *question) ends(domain int, times []int64, told func(*Hold) int64) []int64 {
	d := &q.s.Topology.Domains[domain]
	times = slices.Grow(times[:0], int(d.Count))[:d.Count]
	clear(times)
	for _, h := range q.s.byDom[domain] {
		if h.Probe {
			continue
		}
		end := told(h)
		if end <= 0 {
			end = Never
		}
		for _, sh := range h.in(int32(domain)) {
			times[sh.Node-d.First] = max(times[sh.Node-d.First], end)
		}
	}
	return times
}

// startP90 is when the parts are free if every job there ends as late as its 90th percentile, but no sooner than at; "" where
// there is no basis, such as a job that has outlived it.
func (q *question) startP90(parts []Part, at int64) string {
	t := q.s.Topology
	for _, part := range parts {
		q.times = q.ends(int(part.Domain), q.times, func(h *Hold) int64 {
			if h.Late <= q.now {
				return 0
			}
			return h.Late
		})
		free := q.times[:0]
		for i, end := range q.times {
			if n := t.Domains[part.Domain].First + int32(i); q.allowed(n) && !q.excludes(n) && q.s.whole(t, n) {
				free = append(free, max(end, q.keptUntil(n)))
			}
		}
		slices.Sort(free)
		if int(part.Nodes) > len(free) || free[part.Nodes-1] == Never {
			return ""
		}
		at = max(at, free[part.Nodes-1])
	}
	return time.Unix(at, 0).UTC().Format(time.RFC3339)
}

// hopeless reports whether waiting for the later candidate breaks a limit that starting now keeps.
func (q *question) hopeless(now, later *Candidate) bool {
	if q.r.MaxWaitS != nil && q.a.Waited+later.WaitS > *q.r.MaxWaitS {
		return true
	}
	return later.MissesDeadline && !now.MissesDeadline
}

// candidate describes the plan as it is now in q.p.
func (q *question) candidate(at int64, basis string) *Candidate {
	t := q.s.Topology
	c := &Candidate{Start: "now", StartBasis: basis, WaitS: at - q.now}
	parts := q.p.Parts
	c.Domains = make([]DomainShare, 0, len(parts))
	for _, part := range parts {
		d := &t.Domains[part.Domain]
		free := q.v.Free[part.Domain]
		if at > q.now {
			free = max(q.v.FreeBy(int(part.Domain), q.now, at)-q.v.withheld(int(part.Domain)), free)
		}
		c.Domains = append(c.Domains, DomainShare{ID: d.ID, Partition: d.Partition, Nodes: part.Nodes, SparesLeft: max(0, free-part.Nodes)})
	}
	// Against the best shape in whole domains: what a class leaves to others makes no split free of cost.
	whole := q.a
	whole.Spares = 0
	split := q.c.Links.predictAsk(&q.v, &whole, parts)
	c.Predicted = Prediction{Basis: q.c.Links.Basis(t, parts, &q.a), LinkRatio: round(q.c.Links.LinkRatio(t, parts), 2)}
	c.Predicted.BwGBps, c.Predicted.BwBasis = q.c.Links.Bandwidth(t, parts, &q.a)
	if split.Known {
		c.Predicted.Slowdown = &[2]float64{round(split.Low, 3), round(split.High, 3)}
		if q.a.Duration > 0 {
			work := float64(q.r.GPUs) * float64(q.a.Duration) / 3600
			c.LostGPUHours = &[2]float64{round(work*(split.Low-1), 1), round(work*(split.High-1), 1)}
		}
	}
	if q.r.Deadline != nil && q.a.Duration > 0 && split.Known {
		c.MissesDeadline = at+int64(float64(q.a.Duration)*split.High) > q.r.Deadline.Unix()
	}
	if at > q.now {
		c.Start = time.Unix(at, 0).UTC().Format(time.RFC3339)
		c.StartP90 = q.startP90(parts, at)
		c.WaitsFor = q.waitsFor(parts, at)
		return c
	}
	q.name(c, parts)
	if q.a.Shared == 0 {
		q.free = q.free.of(q.v.Free)
		free := q.free
		c.Frag = &FragChange{SlotNodes: t.largest(&q.a)}
		c.Frag.PhiBefore, c.Frag.SlotsBefore = free.phiShare(q.c.Mix), free.slots(c.Frag.SlotNodes)
		for _, part := range parts {
			n := max(0, q.v.Free[part.Domain])
			free[n]--
			free[max(0, n-part.Nodes)]++
		}
		c.Frag.PhiAfter, c.Frag.SlotsAfter = free.phiShare(q.c.Mix), free.slots(c.Frag.SlotNodes)
	}
	return c
}

// round keeps that many decimals: more would claim more than a prediction knows.
func round(x float64, decimals int) float64 {
	p := math.Pow10(decimals)
	return math.Round(x*p) / p
}

// name picks the nodes: those without a probe job first, then by name.
func (q *question) name(c *Candidate, parts []Part) {
	t, s := q.s.Topology, q.s
	evicts := map[string]bool{}
	c.Nodes = make([]string, 0, q.a.Nodes)
	for _, part := range parts {
		d := &t.Domains[part.Domain]
		left := part.Nodes
		pick := func(fits func(n int32) bool) {
			for n := d.First; n < d.First+d.Count && left > 0; n++ {
				if !q.allowed(n) || q.excludes(n) || q.keptUntil(n) > 0 || !fits(n) {
					continue
				}
				c.Nodes = append(c.Nodes, t.Nodes[n].Name)
				left--
				for _, h := range s.byDom[part.Domain] {
					if h.Probe && s.probes[n] > 0 && h.on(part.Domain, n) {
						evicts[h.Job] = true
					}
				}
			}
		}
		if q.a.Shared > 0 { // the node in use that it leaves least of
			for free := q.a.Shared; free < t.Nodes[d.First].GPUs && left > 0; free++ {
				pick(func(n int32) bool { return (s.used[n] > 0 || !s.whole(t, n)) && s.left(n) == free })
			}
		}
		pick(func(n int32) bool { return s.used[n] == 0 && s.probes[n] == 0 && s.whole(t, n) })
		pick(func(n int32) bool { return s.used[n] == 0 && s.probes[n] > 0 && s.whole(t, n) })
	}
	slices.Sort(c.Nodes)
	for job := range evicts {
		c.Evicts = append(c.Evicts, job)
	}
	slices.Sort(c.Evicts)
}

// on reports whether a hold has GPUs of a node.
func (h *Hold) on(domain, node int32) bool {
	return slices.ContainsFunc(h.in(domain), func(s Share) bool { return s.Node == node })
}

// waitsFor names the jobs in the plan's domains that are to end by then, at most ten.
func (q *question) waitsFor(parts []Part, at int64) []string {
	var jobs []string
	for _, part := range parts {
		for _, h := range q.s.byDom[part.Domain] {
			if !h.Probe && h.End > 0 && h.End <= at && !slices.Contains(jobs, h.Job) {
				jobs = append(jobs, h.Job)
			}
		}
	}
	slices.Sort(jobs)
	return jobs[:min(len(jobs), 10)]
}

// notNow says why the best shape is not free.
func (q *question) notNow() *Refusal {
	most := int32(0)
	for d := range q.v.Free {
		most = max(most, q.v.Units(&q.a, d)*q.a.unit())
	}
	detail := fmt.Sprintf("%d nodes wanted together, at most %d of them are free in one domain", q.a.Nodes, most)
	if q.best > 1 {
		detail = fmt.Sprintf("%d nodes wanted in %d domains, at most %d of them are free in one", q.a.Nodes, q.best, most)
	}
	if q.a.Shared > 0 {
		detail = fmt.Sprintf("%d GPUs of one node wanted, no node has them free", q.a.Shared)
	}
	return &Refusal{Code: NoCapacityNow, Detail: detail, Remedy: "wait, ask for fewer GPUs, or ask for a plan to make room", Counts: q.counts()}
}

// noCapacity refuses what cannot start now and has no known start later, with the plan to make room where there is one.
func (q *question) noCapacity(r *Refusal, room *MakeRoom) error {
	r.MakeRoom = room
	plan := ""
	if room != nil {
		plan = "make room as planned, "
	}
	if r.Code == NoEstimates {
		r.Remedy = "no start can be told: " + plan + "give jobs time limits, or ask again"
	} else {
		r.Remedy = "no job that ends brings a fit: " + plan + "ask for fewer GPUs, or ask again when nodes are back"
	}
	return r
}

// firstKept is when the first of the nodes that are kept for others is free, in words.
func (q *question) firstKept() string {
	first := slices.MinFunc(q.kept, func(a, b Kept) int { return cmp.Compare(a.Until, b.Until) })
	return time.Unix(first.Until, 0).UTC().Format(time.RFC3339)
}

// counts says why nodes are not free to the asker, each node under the first reason that holds.
func (q *question) counts() []Count {
	reasons := [...]string{"other model, partition or use of the domain", "down or not schedulable", "reserved for others", "excluded", "held by jobs",
		"some of its GPUs not usable", "free", "in a domain that the tenant may not use", "kept by a short hold of another"}
	var n [len(reasons)]int32
	if q.v.closed == nil && len(q.s.reserved) == 0 { // nothing sets this asker apart
		u := q.s.usage
		n[1], n[4], n[5], n[6] = u.down, u.busy, u.lame, int32(len(q.s.Topology.Nodes))-u.down-u.busy-u.lame
		return q.listed(n[:], reasons[:])
	}
	for i := range q.s.Topology.Nodes {
		k := int32(i)
		switch d := q.s.Topology.Nodes[i].Domain; {
		case q.forbidden != nil && q.forbidden[d]:
			n[7]++
		case q.v.closed != nil && q.v.closed[d]:
			n[0]++
		case q.s.usable[i] == 0:
			n[1]++
		case !q.allowed(k):
			n[2]++
		case q.excludes(k):
			n[3]++
		case q.keptUntil(k) > 0:
			n[8]++
		case q.s.used[i] > 0:
			n[4]++
		case !q.s.whole(q.s.Topology, k):
			n[5]++
		default:
			n[6]++
		}
	}
	return q.listed(n[:], reasons[:])
}

// listed are the reasons that hold for any node.
func (q *question) listed(n []int32, reasons []string) []Count {
	var out []Count
	for i, reason := range reasons {
		if n[i] > 0 {
			out = append(out, Count{Reason: reason, Nodes: n[i]})
		}
	}
	if u := len(q.s.Topology.Unknown); u > 0 {
		out = append(out, Count{Reason: "domain unknown", Nodes: int32(u)})
	}
	return out
}

// makeRoom plans how one domain could be cleared, and weighs it against the wait that it saves.
func (q *question) makeRoom(later *Candidate) *MakeRoom {
	m := PlanRoom(q.s, &q.v, q.a.Nodes, q.r.Priority)
	if m == nil {
		return nil
	}
	if later != nil {
		saved := later.WaitS
		if m.NotBefore != nil {
			saved = max(0, saved-max(0, m.NotBefore.Unix()-q.now))
		}
		m.SavedS = &saved
		m.Worthwhile = m.CostKnown && float64(q.r.GPUs)*float64(saved)/3600 > 2*m.CostGPUHours
	}
	return m
}

func (q *question) whyNow(parts int, best bool) []string {
	switch {
	case q.a.Shared > 0:
		return []string{"smaller than a node: fills a node in use before it opens another"}
	case parts == 1:
		return []string{"fits one domain", "the domain with the fewest free nodes that suffice"}
	case best && q.a.Spares > 0 && slices.ContainsFunc(q.s.Topology.sizes, func(s sized) bool { return s.nodes >= q.a.Nodes }):
		return []string{fmt.Sprintf("larger than a domain without its %d spare nodes: the fewest domains, %d, in even shares", q.a.Spares, q.best),
			"with spares_per_domain 0 a whole domain would be asked for"}
	case best:
		return []string{fmt.Sprintf("larger than a domain: the fewest domains, %d, in even shares", q.best)}
	}
	return []string{"no domain has it free", "the split is predicted to lose little, or has waited long enough"}
}

// flags says how to ask schedulers for the recommended shape.
func (q *question) flags(resp *Response) {
	if len(resp.Candidates) == 0 {
		return
	}
	parts := resp.Candidates[0].Domains
	segment := int32(0)
	for _, d := range parts {
		segment = gcd(segment, d.Nodes)
	}
	label := q.c.TopologyLabel
	resp.Slurm = []string{fmt.Sprintf("--nodes=%d", q.a.Nodes)}
	resp.Kueue = map[string]string{}
	switch {
	case q.a.Shared > 0:
		resp.Slurm = append(resp.Slurm, fmt.Sprintf("--gpus=%d", q.a.Shared))
		resp.Kueue["kueue.x-k8s.io/podset-unconstrained-topology"] = "true"
	case len(parts) == 1:
		resp.Slurm = append(resp.Slurm, fmt.Sprintf("--segment=%d", q.a.Nodes))
		resp.Kueue["kueue.x-k8s.io/podset-required-topology"] = label
	case segment > 1 || q.a.Segment > 0:
		resp.Slurm = append(resp.Slurm, fmt.Sprintf("--segment=%d", segment))
		// Slices alone begin at Kueue's widest level and in its fullest domains, which spreads them.
		resp.Kueue["kueue.x-k8s.io/podset-preferred-topology"] = label
		resp.Kueue["kueue.x-k8s.io/podset-slice-required-topology"] = label
		resp.Kueue["kueue.x-k8s.io/podset-slice-size"] = fmt.Sprint(segment)
	default:
		resp.Kueue["kueue.x-k8s.io/podset-preferred-topology"] = label
	}
	if q.r.ExclusiveDomain {
		resp.Slurm = append(resp.Slurm, "--exclusive=topo")
	}
	if len(q.r.ExcludeNodes) > 0 {
		resp.Slurm = append(resp.Slurm, "--exclude="+strings.Join(q.r.ExcludeNodes, ","))
	}
}

func gcd(a, b int32) int32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

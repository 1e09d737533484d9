package live

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/schemas/event"
)

// cluster is what is known of one cluster. It folds records without ClickHouse; how a node's domain follows from its
// sources is left to the passes.
type cluster struct {
	name  string
	state *advise.State // nil until a topology is known
	dirty bool

	capacity map[string][]capacity    // by node: what each source says, sorted by it
	models   map[string]string        // by node: what its GPUs are
	runs     map[string]*run          // by job and component
	history  map[[2]string]history    // by user and name
	traffic  map[[2]string]float64    // by user and name: GB/s of a GPU in one direction, in one domain
	told     map[place]uint64         // hash of what a source last said
	reports  map[string]*event.Source // by collector
	speakers map[string]bool          // collectors that tell of jobs
	unplaced int                      // shares of runs on nodes whose domain is not known
}

// place is one source's word on one node.
type place struct{ node, source, topology string }

func newCluster(name string) *cluster {
	return &cluster{
		name: name, capacity: map[string][]capacity{}, models: map[string]string{}, runs: map[string]*run{}, history: map[[2]string]history{}, traffic: map[[2]string]float64{},
		told: map[place]uint64{}, reports: map[string]*event.Source{}, speakers: map[string]bool{},
	}
}

// capacity is what one source says of one node. Negative is not told.
type capacity struct {
	source                        string
	present, healthy, allocatable int32
	schedulable                   int8 // -1 not told, 0 no, 1 yes
	reservation                   string
	removed                       bool
	revision                      uint64
}

func told(v *uint32) int32 {
	if v == nil {
		return -1
	}
	return int32(min(*v, 1<<16))
}

// node folds what a source says of a node, and reports whether that changed anything.
func (c *cluster) node(r *event.Node) bool {
	next := capacity{
		source: r.GetSource(), present: told(r.GpusPresent), healthy: told(r.GpusHealthy), allocatable: told(r.GpusAllocatable), schedulable: -1,
		reservation: r.GetReservation(), removed: r.GetRemoved(), revision: r.GetRevision(),
	}
	if r.Schedulable != nil {
		next.schedulable = 0
		if r.GetSchedulable() {
			next.schedulable = 1
		}
	}
	all := c.capacity[r.GetNode()]
	at, known := sourceOf(all, next.source)
	if !known {
		c.capacity[r.GetNode()] = slices.Insert(all, at, next)
		return c.applyNode(r.GetNode())
	}
	old := all[at]
	if old.revision > next.revision {
		return false
	}
	next.source = old.source // one copy of the name is enough
	all[at] = next
	old.revision = next.revision
	if old == next {
		return false
	}
	return c.applyNode(r.GetNode())
}

// sourceOf is the place of a source among those of a node.
func sourceOf(all []capacity, source string) (at int, known bool) {
	return slices.BinarySearchFunc(all, source, func(f capacity, source string) int { return cmp.Compare(f.source, source) })
}

// applyNode brings a node's capacity into the state.
func (c *cluster) applyNode(name string) bool {
	if c.state == nil {
		return false
	}
	n, ok := c.state.Topology.Node(name)
	if !ok {
		return false
	}
	usable, reservation := usableOf(c.capacity[name], c.state.Topology.Nodes[n].GPUs)
	c.state.SetUsable(n, usable)
	c.state.Reserve(n, reservation)
	c.dirty = true
	return true
}

// usableOf combines the sources of a node: the fewest GPUs that one of them can give, none where one of them says that it
// may not be scheduled. total is how many it has where nobody tells.
func usableOf(sources []capacity, total int32) (usable int32, reservation string) {
	usable, listed := total, len(sources) == 0
	for _, f := range sources {
		if f.removed {
			continue
		}
		listed = true
		for _, n := range []int32{f.allocatable, f.healthy, f.present} {
			if n >= 0 {
				usable = min(usable, n)
				break
			}
		}
		if f.schedulable == 0 {
			usable = 0
		}
		if f.reservation != "" {
			reservation = f.reservation
		}
	}
	if !listed {
		return 0, ""
	}
	return usable, reservation
}

// run is the newest run of a job that is known, or of one component of it.
type run struct {
	runID    string
	restart  int64 // -1 not known
	start    int64 // Unix seconds, 0 not known
	revision uint64
	source   string
	ended    bool
	vanished bool
	partial  bool // nodes come one by one
	whole    bool // stands for all components of a heterogeneous job
	user     string
	jobName  string
	limit    int64
	hold     *advise.Hold // nil where it holds nothing
}

// same reports whether two runs are one, as far as both sides tell.
func (r *run) same(o *run) bool {
	switch {
	case r.runID != "" && o.runID != "":
		return r.runID == o.runID
	case r.restart >= 0 && o.restart >= 0:
		return r.restart == o.restart
	case r.start > 0 && o.start > 0:
		return r.start == o.start
	}
	return true
}

// before reports whether r is known to be an earlier run than o.
func (r *run) before(o *run) bool {
	if r.same(o) {
		return false
	}
	if r.restart >= 0 && o.restart >= 0 {
		return r.restart < o.restart
	}
	return r.start > 0 && o.start > 0 && r.start < o.start
}

func runKey(job, component string) string { return job + "\x1f" + component }

// placement folds what a source says of a run, and reports whether that changed anything. The newest run of a job holds;
// what is told late of an earlier one changes nothing.
func (c *cluster) placement(p *event.Placement, now int64) bool {
	collector, _, _ := strings.Cut(p.GetSource(), ".")
	c.speakers[collector] = true
	next := &run{
		runID: p.GetRunId(), restart: -1, start: p.GetStartMs() / 1000, revision: p.GetRevision(), source: p.GetSource(),
		partial: p.GetPartial(), user: p.GetUser(), jobName: p.GetName(), limit: p.GetTimeLimitMs() / 1000,
	}
	if p.Restart != nil {
		next.restart = int64(p.GetRestart())
	}
	key := runKey(p.GetJobId(), p.GetComponent())
	cur := c.runs[key]
	if all := c.runs[runKey(p.GetJobId(), "")]; cur == nil && p.GetComponent() != "" && all != nil && all.whole {
		cur, key = all, runKey(p.GetJobId(), "")
	}
	switch state := p.GetState(); {
	case state.Holding():
		return c.holds(key, cur, next, p, now)
	case state.Ended():
		next.ended, next.vanished = true, state == event.State_VANISHED
		return c.ends(key, cur, next, p, now)
	case cur != nil && !cur.ended && (cur.before(next) || cur.same(next) && cur.source == next.source && next.revision > cur.revision):
		return c.release(key, cur, next) // it is back in the queue
	}
	return false
}

func (c *cluster) holds(key string, cur, next *run, p *event.Placement, now int64) bool {
	if cur != nil {
		switch {
		case next.before(cur):
			return false
		case cur.ended && cur.same(next):
			if !(cur.vanished && cur.source == next.source && next.revision > cur.revision) {
				return false
			}
		case !cur.ended && cur.same(next):
			if cur.whole || next.revision < cur.revision || next.partial && !cur.partial {
				return false
			}
			if len(p.GetPlacements()) == 0 {
				return false // says that it runs, not where
			}
			next.user, next.jobName = first(next.user, cur.user), first(next.jobName, cur.jobName)
			next.limit = first(next.limit, cur.limit)
		}
	}
	shares := c.shares(p)
	if next.partial && cur != nil && !cur.ended && cur.same(next) && cur.hold != nil {
		for _, old := range cur.hold.Nodes {
			if !slices.ContainsFunc(shares, func(s advise.Share) bool { return s.Node == old.Node }) {
				shares = append(shares, old)
			}
		}
	}
	h := &advise.Hold{
		Key: key, Job: p.GetJobId(), Tenant: p.GetAccount(), Class: p.GetServiceClass(), Nodes: shares, Start: next.start,
		Probe: p.GetProbe(), Unsaved: -1, Restart: -1,
	}
	if cur != nil && !cur.ended && cur.same(next) && cur.hold != nil {
		price(h, cur.hold) // what another source has told
	}
	tell(h, p)
	c.estimate(h, next, now)
	if p.GetState() == event.State_COMPLETING {
		h.End, h.Late = now+60, now+60
	}
	next.hold = h
	if cur != nil && cur.hold != nil && !cur.ended && slices.Equal(cur.hold.Nodes, h.Nodes) && cur.hold.End == h.End && cur.hold.Late == h.Late && cur.hold.Probe == h.Probe && samePrice(cur.hold, h) {
		next.hold = cur.hold
		c.runs[key] = next
		return false
	}
	c.runs[key] = next
	return c.hold(h)
}

// estimate tells when a run is to end.
func (c *cluster) estimate(h *advise.Hold, r *run, now int64) {
	past := c.history[[2]string{r.user, r.jobName}]
	h.End, h.Late = past.end(r.start, r.limit, now), past.late(r.start, r.limit, now)
}

// price gives a hold what is known of another of the same run: its priority and what it would cost to move it.
func price(h, from *advise.Hold) {
	h.Priority, h.Preemptible, h.PreemptibleFrom = from.Priority, from.Preemptible, from.PreemptibleFrom
	h.Restart, h.Saved, h.SaveEvery = from.Restart, from.Saved, from.SaveEvery
}

func samePrice(a, b *advise.Hold) bool {
	same := a.Priority == b.Priority || a.Priority != nil && b.Priority != nil && *a.Priority == *b.Priority
	return same && a.Preemptible == b.Preemptible && a.PreemptibleFrom == b.PreemptibleFrom && a.Restart == b.Restart && a.Saved == b.Saved && a.SaveEvery == b.SaveEvery
}

// tell adds what a record says of it. Who says how often work is saved and not when it was last has saved none since the
// start.
func tell(h *advise.Hold, p *event.Placement) {
	if p.Priority != nil {
		h.Priority = new(p.GetPriority())
	}
	if p.Preemptible != nil {
		h.Preemptible = p.GetPreemptible()
	}
	if p.PreemptibleMs != nil {
		h.PreemptibleFrom = seconds(p.GetPreemptibleMs())
	}
	if p.RestartMs != nil {
		h.Restart = p.GetRestartMs() / 1000
	}
	if p.CheckpointEveryMs != nil {
		h.SaveEvery, h.Saved = p.GetCheckpointEveryMs()/1000, max(h.Saved, h.Start)
	}
	if p.CheckpointMs != nil {
		h.Saved = p.GetCheckpointMs() / 1000
	}
}

// seconds rounds up: what may be done from then on may not be done before.
func seconds(ms int64) int64 { return (ms + 999) / 1000 }

// hold brings a run's nodes into the state.
func (c *cluster) hold(h *advise.Hold) bool {
	if c.state == nil {
		return false
	}
	if len(h.Nodes) == 0 {
		if !c.state.Release(h.Key) {
			return false
		}
	} else if err := c.state.Hold(h); err != nil {
		c.unplaced++ // a node of another generation: the picture is read anew when its topology is
		return false
	}
	c.dirty = true
	return true
}

func (c *cluster) ends(key string, cur, next *run, p *event.Placement, now int64) bool {
	switch {
	case cur == nil:
		c.runs[key] = next
		return false
	case next.before(cur), cur.ended && cur.same(next) && next.vanished:
		return false
	case next.vanished && cur.same(next) && cur.source == next.source && next.revision < cur.revision:
		return false // it has been seen again since
	}
	if end := p.GetEndMs() / 1000; !cur.ended && cur.same(next) && cur.start > 0 && end > cur.start && !next.vanished {
		who := [2]string{first(next.user, cur.user), first(next.jobName, cur.jobName)}
		c.history[who] = c.history[who].add(int32(min(end-cur.start, 1<<31-1)))
	}
	next.start = first(next.start, cur.start)
	return c.release(key, cur, next)
}

// release ends what a run holds and puts next in its place.
func (c *cluster) release(key string, cur, next *run) bool {
	c.runs[key] = next
	if c.state == nil || cur.hold == nil || !c.state.Release(cur.hold.Key) {
		return false
	}
	c.dirty = true
	return true
}

func first[T comparable](a, b T) T {
	var zero T
	if a != zero {
		return a
	}
	return b
}

// shares gives what a run holds of each node that is known: the GPUs told, else an even part of those it has in all, else
// the whole node.
func (c *cluster) shares(p *event.Placement) []advise.Share {
	if c.state == nil {
		return nil
	}
	t := c.state.Topology
	nodes := p.GetPlacements()
	total := int32(-1)
	if p.Gpus != nil {
		total = int32(p.GetGpus())
	} else if p.RequestedGpus != nil {
		total = int32(p.GetRequestedGpus())
	}
	var shares []advise.Share
	for _, np := range nodes {
		n, ok := t.Node(np.GetNode())
		if np.ToMs != nil {
			continue // no longer held
		}
		if !ok {
			c.unplaced++
			continue
		}
		gpus := t.Nodes[n].GPUs
		switch {
		case len(np.GetGpuIndex()) > 0:
			gpus = int32(len(np.GetGpuIndex()))
		case np.Gpus != nil:
			gpus = int32(np.GetGpus())
		case total >= 0 && !p.GetPartial() && total%int32(len(nodes)) == 0:
			gpus = total / int32(len(nodes))
		}
		if gpus = min(gpus, t.Nodes[n].GPUs); gpus > 0 {
			shares = append(shares, advise.Share{Node: n, GPUs: gpus})
		}
	}
	slices.SortFunc(shares, func(a, b advise.Share) int { return int(a.Node) - int(b.Node) })
	return slices.CompactFunc(shares, func(a, b advise.Share) bool { return a.Node == b.Node })
}

// estimates brings end estimates that have passed up to date: a run that outlives the usual one is expected to go on as
// the longer ones did.
func (c *cluster) estimates(now int64) {
	for _, r := range c.runs {
		if r.hold == nil || r.ended || r.hold.End == 0 || r.hold.End > now && (r.hold.Late == 0 || r.hold.Late > now) {
			continue
		}
		h := *r.hold
		if c.estimate(&h, r, now); h.End > r.hold.End || h.Late > r.hold.Late {
			h.End, h.Late, h.Nodes = max(h.End, r.hold.End), max(h.Late, r.hold.Late), slices.Clone(h.Nodes)
			r.hold = &h
			c.hold(r.hold)
		}
	}
}

var seed = maphash.MakeSeed()

// membership reports whether a source says something of a node's place that it did not say before.
func (c *cluster) membership(r *event.Membership) bool {
	r = proto.CloneOf(r)
	r.ObservedAtMs, r.Revision, r.ValidFromMs = 0, 0, nil
	for _, g := range r.GetGpus() {
		g.HealthMask = nil // health is no place
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return false
	}
	if c.told == nil { // handed on to the next session
		return false
	}
	hash := maphash.Bytes(seed, raw)
	key := place{r.GetNode(), r.GetSource(), r.GetTopology()}
	old, before := c.told[key]
	c.told[key] = hash
	if before {
		return old != hash
	}
	return !c.sits(r)
}

// sits reports whether a record names the domain that its node is in already: the first word of a source after a start is
// then no news.
func (c *cluster) sits(r *event.Membership) bool {
	if c.state == nil || r.GetRemoved() {
		return false
	}
	n, ok := c.state.Topology.Node(r.GetNode())
	if !ok {
		return false
	}
	domain := c.state.Topology.Domains[c.state.Topology.Nodes[n].Domain].ID
	return slices.ContainsFunc(r.GetLevels(), func(l *event.Level) bool {
		return l.GetLevel() == event.LevelDomain && l.GetValue() == domain
	}) || slices.ContainsFunc(r.GetGpus(), func(g *event.GpuFabric) bool { return strings.EqualFold(g.GetClusterUuid(), domain) })
}

// source notes that a collector has reported.
func (c *cluster) source(r *event.Source) {
	if old := c.reports[r.GetSource()]; old == nil || old.GetObservedAtMs() <= r.GetObservedAtMs() {
		c.reports[r.GetSource()] = r
	}
}

// Reports older than forgotten are of a collector that was taken out of service. One reports within reporting of each read.
const (
	forgotten = 24 * time.Hour
	reporting = 10 * time.Second
)

// recent gives the reports of the collectors that are in service.
func (c *cluster) recent(now time.Time) (out []*event.Source) {
	for _, r := range c.reports {
		if now.Sub(event.Time(&r.ObservedAtMs)) <= forgotten {
			out = append(out, r)
		}
	}
	return out
}

// due is when the slowest collector of the cluster's jobs was to have read its source again; zero where none has reported.
func (c *cluster) due(now time.Time) time.Time {
	var oldest time.Time
	for _, r := range c.recent(now) {
		if len(c.speakers) > 0 && !c.speakers[r.GetSource()] || r.GoodAtMs == nil {
			continue
		}
		at := event.Time(r.GoodAtMs).Add(reporting + time.Duration(r.GetIntervalMs())*time.Millisecond)
		if oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	return oldest
}

package simulate

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// sim is one simulated cluster: hardware, jobs, a scheduler, and nodes that fail. It is event driven, knows only the
// fleet's own time, starts no goroutine and is decided by its seed: the same calls give the same records. Not safe for
// concurrent use.
type sim struct {
	cluster Cluster
	fleet   *fleet
	clock   clock
	origin  int64 // wall milliseconds of the fleet's beginning: part of every run's key
	pcg     *rand.PCG
	rng     *rand.Rand

	now      int64 // fleet milliseconds
	timers   minHeap[timer]
	nextID   uint64
	order    uint64
	skip     int // small jobs that arrays have already brought
	revision uint64
	jobs     map[uint64]*job
	parts    []*partition
	down     map[int]bool  // failed, not repaired
	since    map[int]int64 // wall milliseconds of a node's last change of capacity
	fabric   map[int]int64 // wall milliseconds of a node's last change of identity
	joining  map[int]bool  // repaired, its fabric not registered yet

	out    func(event.Record)
	ask    func(Question) Answer // nil: nobody advises
	byName map[string]int
}

// partition is a queue, its racks, and who runs there.
type partition struct {
	name    string
	policy  string
	pool    *pool
	probes  map[int]uint64 // node -> probe job on it
	queue   []*job         // by job.before
	running []*job         // real jobs that hold GPUs, by EndsBy
	sizes   sizeTable
	rate    float64 // jobs a fleet millisecond at the top of the daily wave
}

// timer is one thing that will happen.
type timer struct {
	Kind    timerKind `json:"kind"`
	Part    int       `json:"part,omitempty"`
	Job     uint64    `json:"job,omitempty"`
	Restart uint32    `json:"restart,omitempty"` // of the run meant: a timer of an earlier run does nothing
	Node    int       `json:"node,omitempty"`
}

type timerKind int

const (
	onArrival timerKind = iota + 1
	onProbe
	onEligible
	onGiveUp
	onEnd
	onRequeue
	onRelease
	onFailure
	onRepair
	onRegistered
)

const (
	day = 24 * time.Hour
	// backfillDepth is how far behind the first waiting job the scheduler looks for one that fits.
	backfillDepth = 50
	// longTail is the shortest COMPLETING that is told: a poll would not see less.
	longTail = 5000
	// requeueDelay is Slurm's wait before a requeued job is eligible again.
	requeueDelay = 120_000
	// registerTime is how long the fabric manager takes to register a booted node.
	registerTime = 40_000
	probeRun     = 90_000
	probeLimit   = 300_000
)

// newSim is a cluster at fleet time 0: nothing runs and the first arrivals are drawn. cluster must be valid.
func newSim(seed uint64, c Cluster, clk clock, firstID uint64) *sim {
	s := &sim{
		cluster: c,
		clock:   clk,
		origin:  clk.wall(0),
		pcg:     rand.NewPCG(seed, hash64("jobs", c.Name)),
		nextID:  firstID,
		jobs:    map[uint64]*job{},
		down:    map[int]bool{},
		since:   map[int]int64{},
		fabric:  map[int]int64{},
		joining: map[int]bool{},
		out:     func(event.Record) {},
	}
	s.build(seed)
	for i, p := range s.parts {
		s.timers.push(s.gap(p), timer{Kind: onArrival, Part: i})
		if c.ProbeEvery > 0 {
			s.timers.push(c.ProbeEvery.Milliseconds(), timer{Kind: onProbe, Part: i})
		}
	}
	if c.NodeMTBF > 0 {
		s.timers.push(s.failureGap(), timer{Kind: onFailure})
	}
	return s
}

// build makes what the configuration and the seed alone decide.
func (s *sim) build(seed uint64) {
	c := s.cluster
	s.rng = rand.New(s.pcg)
	s.fleet = newFleet(seed, c.Name, c.Racks, c.DegradedRacks)
	racks, _ := c.shares() // checked by Validate
	first := 0
	for i, n := range racks {
		p := &partition{
			name:   c.Partitions[i].Name,
			policy: c.Partitions[i].Policy,
			pool:   newPool(first, n),
			probes: map[int]uint64{},
			// A job larger than half of its partition would mostly wait for it to empty.
			sizes: newSizeTable(mixes[c.Mix], max(n*gpusPerRack/2, gpusPerTray)),
		}
		usable := 0
		for node := first * traysPerRack; node < (first+n)*traysPerRack; node++ {
			if !s.fleet.broken[node] {
				p.pool.set(node, allGPUs)
				usable += gpusPerTray
			}
		}
		p.rate = c.Load * float64(usable) / (p.sizes.work * shareWorked) * (1 + c.Wave)
		s.parts = append(s.parts, p)
		first += n
	}
}

// next is the fleet time of the next event; there is always one, as every arrival brings the next.
func (s *sim) next() int64 {
	at, _ := s.timers.head()
	return max(at, s.now)
}

// advance lives on until fleet time to and gives emit every record on the way, in order of time.
func (s *sim) advance(to int64, emit func(event.Record)) {
	s.out = emit
	for {
		at, ok := s.timers.head()
		if !ok || at > to {
			break
		}
		var t timer
		s.now, t = s.timers.pop()
		s.handle(t)
	}
	s.now = max(s.now, to)
}

func (s *sim) handle(t timer) {
	var j *job
	if t.Job != 0 {
		if j = s.jobs[t.Job]; j == nil || j.Restart != t.Restart {
			return
		}
	}
	switch t.Kind {
	case onArrival:
		s.timers.push(s.now+s.gap(s.parts[t.Part]), t)
		s.arrive(t.Part)
	case onProbe:
		s.timers.push(s.now+s.cluster.ProbeEvery.Milliseconds(), t)
		s.probe(t.Part)
	case onEligible:
		s.enqueue(j)
		s.schedule(t.Part)
	case onGiveUp:
		if j.State == event.State_PENDING && j.Queued {
			s.drop(j, event.State_CANCELLED)
			s.schedule(t.Part)
		}
	case onEnd:
		if j.State == event.State_RUNNING {
			s.end(j)
		}
	case onRequeue:
		if j.State == event.State_RUNNING {
			s.requeue(j, event.State_REQUEUED)
			s.schedule(j.Part)
		}
	case onRelease:
		s.drop(j, j.Fate)
		s.schedule(t.Part)
	case onFailure:
		s.timers.push(s.now+s.failureGap(), t)
		s.fail(s.rng.IntN(len(s.fleet.name)))
	case onRepair:
		s.repair(t.Node)
	case onRegistered:
		if s.joining[t.Node] {
			delete(s.joining, t.Node)
			s.tellFabric(t.Node)
		}
	}
}

// gap draws the time to the next arrival: Poisson, thinned to the daily wave.
func (s *sim) gap(p *partition) int64 {
	at := float64(s.now)
	for {
		at += s.rng.ExpFloat64() / p.rate
		wave := 1 + s.cluster.Wave*math.Sin(2*math.Pi*at/float64(day.Milliseconds()))
		if s.rng.Float64()*(1+s.cluster.Wave) < wave {
			return max(1, int64(at)-s.now)
		}
	}
}

func (s *sim) failureGap() int64 {
	return 1 + int64(s.rng.ExpFloat64()*float64(s.cluster.NodeMTBF.Milliseconds())/float64(len(s.fleet.name)))
}

// arrive submits one job, or an array of small ones and then as many small ones less.
func (s *sim) arrive(part int) {
	p := s.parts[part]
	z := p.sizes.pick(s.rng.Float64())
	small := z.gpus <= 2*gpusPerTray
	if small && s.skip > 0 {
		s.skip--
		return
	}
	first := draw(s.rng, z, s.cluster.RunTimeSigma)
	tasks, components := 1, 1
	switch u := s.rng.Float64(); {
	case small && u < shareArray:
		tasks = 2 + s.rng.IntN(23)
	case z.gpus >= 2*gpusPerTray && u < shareHet:
		components = 2
	case p.policy == PolicyBlock && u < shareSegment:
		first.Segment = suitableSegment(first.request().nodes())
	}
	array := s.nextID
	for task := range tasks {
		j := first
		if task > 0 {
			j = draw(s.rng, z, s.cluster.RunTimeSigma)
			j.Name, j.User, j.Account, j.Class, j.QOS, j.Priority = first.Name, first.User, first.Account, first.Class, first.QOS, first.Priority
		}
		if tasks > 1 {
			j.Array, j.Task = array, uint32(task)
		}
		s.submit(part, j, components)
	}
	s.skip += tasks - 1
	s.schedule(part)
}

// submit gives a job its ids and puts it into its queue.
func (s *sim) submit(part int, j *job, components int) {
	j.ID, j.Part, j.Submit = s.nextID, part, s.wall()
	if components > 1 {
		j.Tail = j.ID + 1
	}
	s.nextID += uint64(components)
	s.jobs[j.ID] = j
	s.enqueue(j)
	patience := int64(float64(12*time.Hour.Milliseconds()) * math.Exp(s.rng.NormFloat64()))
	s.timers.push(s.now+patience, timer{Kind: onGiveUp, Part: part, Job: j.ID})
}

func (s *sim) enqueue(j *job) {
	s.order++
	j.Order, j.Queued, j.Reason = s.order, true, ""
	p := s.parts[j.Part]
	p.queue = insert(p.queue, j, (*job).before)
}

// probe starts a verification job on the first idle node, or skips its turn.
func (s *sim) probe(part int) {
	p := s.parts[part]
	for i, free := range p.pool.free {
		node := p.pool.first + i
		if free != allGPUs || p.probes[node] != 0 {
			continue
		}
		j := &job{
			ID: s.nextID, Part: part, Name: "nvlink-probe", User: "probe", Account: "infra", Class: classProbe, QOS: "preemptible",
			Probe: true, GPUs: gpusPerTray, Run: probeRun, Limit: probeLimit, Fate: event.State_COMPLETED, Submit: s.wall(),
		}
		s.nextID++
		s.jobs[j.ID] = j
		s.start(j, []int{node})
		return
	}
}

// start gives a job its nodes, evicting probes from them.
func (s *sim) start(j *job, nodes []int) {
	p := s.parts[j.Part]
	p.queue = remove(p.queue, j)
	j.State, j.Queued, j.Reason, j.PlannedStart, j.PlannedNodes = event.State_RUNNING, false, "", 0, nil
	j.Start, j.EndsBy = s.wall(), s.now+j.Limit
	rest := j.GPUs
	for _, node := range nodes {
		if !j.Probe && p.probes[node] != 0 {
			s.drop(s.jobs[p.probes[node]], event.State_PREEMPTED)
		}
		g := grant{Node: node, GPUs: allGPUs, From: j.Start}
		if rest < gpusPerTray {
			g.GPUs = lowest(p.pool.free[node-p.pool.first], rest)
		}
		rest -= gpusPerTray
		j.Grants = append(j.Grants, g)
		if j.Probe {
			p.probes[node] = j.ID
		} else {
			p.pool.set(node, p.pool.free[node-p.pool.first]&^g.GPUs)
		}
	}
	if !j.Probe {
		p.running = insert(p.running, j, endsFirst)
	}
	s.tell(j, event.State_RUNNING)
	s.timers.push(s.now+j.Run, timer{Kind: onEnd, Part: j.Part, Job: j.ID, Restart: j.Restart})
	if j.Requeue > 0 && j.Restart == 0 {
		s.timers.push(s.now+j.Requeue, timer{Kind: onRequeue, Part: j.Part, Job: j.ID, Restart: j.Restart})
	}
}

func endsFirst(a, b *job) bool { return a.EndsBy < b.EndsBy || a.EndsBy == b.EndsBy && a.ID < b.ID }

// end stops the work of a job; its nodes are cleaned up before they are free.
func (s *sim) end(j *job) {
	j.State = event.State_COMPLETING
	tail := int64(500 + 3000*s.rng.ExpFloat64())
	if s.rng.Float64() < .05 {
		tail += int64(60_000 * s.rng.ExpFloat64()) // an epilog that drags on
	}
	if tail >= longTail {
		s.tell(j, event.State_COMPLETING)
	}
	s.timers.push(s.now+tail, timer{Kind: onRelease, Part: j.Part, Job: j.ID, Restart: j.Restart})
}

// drop ends a job for good.
func (s *sim) drop(j *job, state event.State) {
	s.release(j)
	s.parts[j.Part].queue = remove(s.parts[j.Part].queue, j)
	j.State = state
	s.tell(j, state)
	delete(s.jobs, j.ID)
}

// requeue ends a run and sends its job back to the queue.
func (s *sim) requeue(j *job, state event.State) {
	s.release(j)
	s.tell(j, state)
	j.State, j.Restart, j.Start, j.EndsBy, j.Grants, j.Submit = event.State_PENDING, j.Restart+1, 0, 0, nil, s.wall()
	j.Reason = "BeginTime"
	s.tell(j, event.State_PENDING)
	s.timers.push(s.now+requeueDelay, timer{Kind: onEligible, Part: j.Part, Job: j.ID, Restart: j.Restart})
}

// release frees what a run holds; its grants stay readable for its last record.
func (s *sim) release(j *job) {
	if !j.holding() {
		return
	}
	p := s.parts[j.Part]
	for _, g := range j.Grants {
		if j.Probe {
			delete(p.probes, g.Node)
		} else if !s.down[g.Node] {
			p.pool.set(g.Node, p.pool.free[g.Node-p.pool.first]|g.GPUs)
		}
	}
	p.running = remove(p.running, j)
}

// schedule starts what it can: in order, then behind the first that must wait whatever does not delay it.
func (s *sim) schedule(part int) {
	p := s.parts[part]
	for len(p.queue) > 0 {
		nodes := s.choose(p, p.queue[0])
		if nodes == nil {
			break
		}
		s.start(p.queue[0], nodes)
	}
	if len(p.queue) == 0 {
		return
	}
	head := p.queue[0]
	at, reserved := s.reserve(p, head)
	for _, j := range slices.Clone(p.queue[1:min(len(p.queue), 1+backfillDepth)]) {
		nodes := s.choose(p, j)
		if nodes != nil && (s.now+j.Limit <= at || !slices.ContainsFunc(nodes, func(n int) bool { return reserved[n] })) {
			s.start(j, nodes)
		}
	}
	s.tellWaiting(p, head, at, reserved)
}

// reserve finds when a waiting job could start by the time limits of those that run, and where.
func (s *sim) reserve(p *partition, j *job) (at int64, nodes map[int]bool) {
	pool := p.pool.clone()
	for _, r := range p.running {
		for _, g := range r.Grants {
			if !s.down[g.Node] {
				pool.set(g.Node, pool.free[g.Node-pool.first]|g.GPUs)
			}
		}
		if !pool.fits(p.policy, j.request()) {
			continue
		}
		nodes = map[int]bool{}
		for _, n := range pool.choose(p.policy, j.request()) {
			nodes[n] = true
		}
		return max(r.EndsBy, s.now+1), nodes
	}
	return math.MaxInt64, nil // not before something is repaired
}

// tellWaiting tells jobs that wait, each once, and the first again when it becomes first.
func (s *sim) tellWaiting(p *partition, head *job, at int64, reserved map[int]bool) {
	for _, j := range p.queue {
		switch {
		case j == head && (j.Reason == "" || j.Reason == waitsTurn):
			j.Reason = reasonOf(p, j)
			if at != math.MaxInt64 {
				j.PlannedStart = s.clock.wall(at)
				j.PlannedNodes = j.PlannedNodes[:0]
				for n := range reserved {
					j.PlannedNodes = append(j.PlannedNodes, n)
				}
				slices.Sort(j.PlannedNodes)
			}
			s.tell(j, event.State_PENDING)
		case j != head && j.Reason == "":
			j.Reason = waitsTurn
			s.tell(j, event.State_PENDING)
		}
	}
}

// waitsTurn is the reason of a job that others are before.
const waitsTurn = "Priority"

// reasonOf says in Slurm's words why the first job of a queue waits.
func reasonOf(p *partition, j *job) string {
	if p.policy == PolicyBlock && p.pool.wholeNodes() >= j.request().nodes() {
		return "No suitable topology unit found"
	}
	return "Resources"
}

// fail takes a node down. A job on it goes on with another node where it can and there is one, else it is requeued.
func (s *sim) fail(node int) {
	if s.down[node] || s.fleet.broken[node] {
		return
	}
	i := slices.IndexFunc(s.parts, func(p *partition) bool { return p.pool.holds(node) })
	p := s.parts[i]
	s.down[node] = true
	p.pool.set(node, 0)
	s.tellNode(node)
	if id := p.probes[node]; id != 0 {
		s.drop(s.jobs[id], event.State_NODE_FAIL)
	}
	for _, j := range slices.Clone(p.running) {
		held := slices.IndexFunc(j.Grants, func(g grant) bool { return g.Node == node })
		if held < 0 || j.State != event.State_RUNNING {
			continue
		}
		spare := -1
		if j.Tail == 0 && len(j.Grants) > 1 && j.Grants[held].GPUs == allGPUs && s.rng.Float64() < .5 {
			spare = p.spare(j)
		}
		if spare < 0 {
			s.requeue(j, event.State_NODE_FAIL)
			continue
		}
		if p.probes[spare] != 0 {
			s.drop(s.jobs[p.probes[spare]], event.State_PREEMPTED)
		}
		j.Grants[held] = grant{Node: spare, GPUs: allGPUs, From: s.wall()}
		p.pool.set(spare, 0)
		s.tell(j, event.State_RUNNING)
	}
	repair := int64(2 * float64(time.Hour.Milliseconds()) * math.Exp(s.rng.NormFloat64()))
	s.timers.push(s.now+repair, timer{Kind: onRepair, Node: node})
	s.schedule(i)
}

// spare is a free node to go on with: of a rack the job already uses, else, without regard to racks, any; -1 = none.
func (p *partition) spare(j *job) int {
	for _, g := range j.Grants {
		if nodes := p.pool.take(nil, rackOf(g.Node-p.pool.first), 1); len(nodes) > 0 {
			return nodes[0]
		}
	}
	if p.policy == PolicyFlat {
		if nodes := p.pool.firstFit(1); len(nodes) > 0 {
			return nodes[0]
		}
	}
	return -1
}

// repair brings a node back: it takes jobs at once, and its fabric registers a little later.
func (s *sim) repair(node int) {
	i := slices.IndexFunc(s.parts, func(p *partition) bool { return p.pool.holds(node) })
	p := s.parts[i]
	delete(s.down, node)
	free := uint8(allGPUs)
	for _, j := range p.running { // a job that was completing when the node failed may hold it still
		for _, g := range j.Grants {
			if g.Node == node {
				free &^= g.GPUs
			}
		}
	}
	p.pool.set(node, free)
	s.tellNode(node)
	s.joining[node] = true
	s.tellFabric(node)
	s.timers.push(s.now+registerTime, timer{Kind: onRegistered, Node: node})
	s.schedule(i)
}

func (s *sim) wall() int64 { return s.clock.wall(s.now) }

// stamp gives the next revision: later than every one before, and that of its time where it can be.
func (s *sim) stamp() uint64 {
	s.revision = max(s.revision+1, event.Revision(time.UnixMilli(s.wall())))
	return s.revision
}

func (s *sim) tell(j *job, state event.State) {
	revision := s.stamp()
	for _, r := range s.runRecords(j, state, s.wall(), revision) {
		s.out(r)
	}
}

func (s *sim) tellNode(node int) {
	s.since[node] = s.wall()
	s.out(s.fleet.capacity(node, s.down[node], s.wall(), s.wall(), s.stamp()))
}

func (s *sim) tellFabric(node int) {
	s.fabric[node] = s.wall()
	s.out(s.fleet.fabric(node, !s.joining[node], s.wall(), s.wall(), s.stamp()))
}

// tellHardware tells the state of every node as of now.
func (s *sim) tellHardware(emit func(event.Record)) {
	now, revision := s.wall(), s.stamp()
	for node := range s.fleet.name {
		since, fabric := s.origin, s.origin
		if t, ok := s.since[node]; ok {
			since = t
		}
		if t, ok := s.fabric[node]; ok {
			fabric = t
		}
		emit(s.fleet.fabric(node, !s.joining[node], fabric, now, revision))
		emit(s.fleet.block(node, s.origin, now, revision))
		emit(s.fleet.capacity(node, s.down[node], since, now, revision))
	}
}

// tellJobs tells the state of every job as of now.
func (s *sim) tellJobs(emit func(event.Record)) {
	revision := s.stamp()
	for _, j := range s.open() {
		if j.State == event.State_PENDING && j.Reason == "" {
			continue // submitted in this very instant: its first record is still to come
		}
		for _, r := range s.runRecords(j, j.State, s.wall(), revision) {
			emit(r)
		}
	}
}

// open lists the jobs that have not ended, by id.
func (s *sim) open() []*job {
	jobs := make([]*job, 0, len(s.jobs))
	for _, j := range s.jobs {
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return jobs
}

package policysim

import (
	"container/heap"
	"fmt"
	"slices"

	"github.com/spillway-io/spillway/query/advise"
)

// run is one simulation: one seed, one policy.
type run struct {
	c      *Config
	policy Policy
	state  *advise.State
	plan   advise.Plan
	jobs   []job
	queue  []*job // waiting, in the order they are to be served
	events events
	now    int64
	seq    int
	limit  []int32   // what a candidate may take of each domain
	held   []promise // reservations of this pass
	busy   int32     // GPUs held
	from   int64     // the window that is measured
	to     int64
	used   float64 // GPU-seconds held within the window
	out    Result
	keys   map[string]*job
	err    error
}

// job is a Job and what became of it.
type job struct {
	Job
	ask     advise.Ask
	left    int64 // run time still to do, in the best shape
	queued  int64 // when it last entered the queue
	start   int64
	wait    int64 // seconds queued, over all its starts
	slow    float64
	parts   int // domains it was placed in
	hold    *advise.Hold
	version int // of its end event
	counted bool
	place   int // order of submission
}

// promise is a reservation: nodes that a blocked job will have from a time on.
type promise struct {
	at, end int64
	parts   []advise.Part
	slack   []int32 // per domain: nodes free at that time beyond the promise
}

// simulate runs the jobs and failures of a seed under a policy.
func simulate(c *Config, policy Policy, jobs []Job, fails []failure) (Result, error) {
	topo, err := c.topology()
	if err != nil {
		return Result{}, err
	}
	r := &run{c: c, policy: policy, state: advise.NewState(topo), limit: make([]int32, c.Racks), keys: make(map[string]*job, len(jobs))}
	r.jobs = make([]job, len(jobs))
	last := int64(0)
	for i, j := range jobs {
		r.jobs[i] = job{Job: j, left: j.Run, place: i, ask: r.askOf(j)}
		r.keys[j.ID] = &r.jobs[i]
		last = max(last, j.Submit)
		r.push(event{at: j.Submit, kind: submitted, job: &r.jobs[i]})
	}
	r.from, r.to = last*15/100, last*95/100
	for _, f := range fails {
		r.push(event{at: f.from, kind: failed, node: f.node})
		r.push(event{at: f.to, kind: repaired, node: f.node})
	}
	open := len(jobs)
	for len(r.events) > 0 && open > 0 {
		r.advance(r.events[0].at)
		for len(r.events) > 0 && r.events[0].at == r.now {
			e := heap.Pop(&r.events).(event)
			switch e.kind {
			case submitted:
				e.job.counted = r.now >= r.from && r.now < r.to
				r.enqueue(e.job)
			case ended:
				if e.version == e.job.version && e.job.hold != nil {
					r.finish(e.job)
					open--
				}
			case failed:
				r.fail(e.node)
			case repaired:
				r.state.SetUsable(e.node, int32(r.c.GPUsPerNode))
			}
		}
		r.pass()
		if r.err != nil {
			return Result{}, r.err
		}
	}
	r.out.summarise(c, r.jobs, r.used/(float64(r.to-r.from)*c.capacity()))
	return r.out, nil
}

// askOf puts a job as its scheduler is told of it.
func (r *run) askOf(j Job) advise.Ask {
	g := int32(r.c.GPUsPerNode)
	a := advise.Ask{Nodes: (j.GPUs + g - 1) / g, GPUsPerNode: g, Mode: advise.Preferred, Traffic: j.Traffic, Duration: j.Estimate, MaxWait: -1}
	if j.GPUs < g {
		a.Shared = j.GPUs
	}
	if r.policy.Tell != nil && a.Shared == 0 {
		r.policy.Tell(r.c, &a)
	}
	return a
}

// advance moves the clock and accounts what was held meanwhile.
func (r *run) advance(to int64) {
	if a, b := max(r.now, r.from), min(to, r.to); b > a {
		r.used += float64(b-a) * float64(r.busy)
	}
	r.now = to
}

func (r *run) enqueue(j *job) {
	j.queued = r.now
	at, _ := slices.BinarySearchFunc(r.queue, j, func(a, b *job) int {
		if a.Priority != b.Priority {
			return int(b.Priority - a.Priority)
		}
		return a.place - b.place
	})
	r.queue = slices.Insert(r.queue, at, j)
}

// pass starts what can start: in order, with reservations for the first that cannot and backfill behind them.
func (r *run) pass() {
	if len(r.queue) == 0 {
		return
	}
	r.held = r.held[:0]
	looked := 0
	left := r.queue[:0]
	for i, j := range r.queue {
		if looked > r.c.Depth {
			left = append(left, r.queue[i:]...)
			break
		}
		if len(r.held) > 0 {
			looked++
		}
		v := r.view(r.now + j.Estimate)
		j.ask.Waited = r.now - j.queued
		r.policy.Strategy.Place(&v, &j.ask, &r.plan)
		if r.plan.Outcome == advise.Placed {
			r.start(j)
			continue
		}
		if len(r.held) < r.c.Reservations && j.ask.Shared == 0 {
			r.reserve(j)
		}
		left = append(left, j)
	}
	r.queue = left
}

// view is what a candidate that is expected to end at a time may take: no more than every earlier promise leaves.
func (r *run) view(end int64) advise.View {
	v := r.state.View()
	if len(r.held) == 0 {
		return v
	}
	copy(r.limit, v.Free)
	for i := range r.held {
		if r.held[i].at >= end {
			continue
		}
		for d, n := range r.held[i].slack {
			r.limit[d] = max(0, min(r.limit[d], n))
		}
	}
	v.Free = r.limit
	return v
}

// reserve promises a blocked job its nodes at the earliest time its strategy would take them.
func (r *run) reserve(j *job) {
	v := r.state.View()
	times := r.times(&v)
	try := func(at int64) bool {
		for d := range r.limit {
			n := v.FreeBy(d, r.now, at)
			for i := range r.held {
				p := &r.held[i]
				if p.end <= at || p.at >= at+j.Estimate {
					continue
				}
				for _, part := range p.parts {
					if int(part.Domain) == d {
						n -= part.Nodes
					}
				}
			}
			r.limit[d] = max(0, n)
		}
		then := v
		then.Free = r.limit
		j.ask.Waited = at - j.queued
		r.policy.Strategy.Place(&then, &j.ask, &r.plan)
		return r.plan.Outcome == advise.Placed
	}
	lo, hi := 0, len(times)
	for lo < hi {
		mid := (lo + hi) / 2
		if try(times[mid]) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == len(times) || !try(times[lo]) {
		return
	}
	n := len(r.held)
	if n < cap(r.held) {
		r.held = r.held[:n+1]
	} else {
		r.held = append(r.held, promise{})
	}
	p := &r.held[n]
	p.at, p.end = times[lo], times[lo]+j.Estimate
	p.parts = append(p.parts[:0], r.plan.Parts...)
	p.slack = append(p.slack[:0], r.limit...)
	for _, part := range p.parts {
		p.slack[part.Domain] -= part.Nodes
	}
}

// times are the moments at which nodes come free by the estimates, ascending, and now.
func (r *run) times(v *advise.View) []int64 {
	times := []int64{r.now}
	for n := range v.Topology.Nodes {
		if t := r.state.FreeAt(int32(n)); t > r.now && t != advise.Never {
			times = append(times, t)
		} else if t > 0 && t <= r.now {
			times = append(times, r.now+advise.OverdueGrace)
		}
	}
	slices.Sort(times)
	return slices.Compact(times)
}

// start gives the planned nodes to a job.
func (r *run) start(j *job) {
	shares := make([]advise.Share, 0, j.ask.Nodes)
	for _, part := range r.plan.Parts {
		shares = r.nodes(shares, j, part)
	}
	j.start, j.wait = r.now, j.wait+r.now-j.queued
	j.slow, j.parts = r.slowdown(j), len(r.plan.Parts)
	j.hold = &advise.Hold{Key: j.ID, Job: j.ID, Nodes: shares, Start: r.now, End: r.now + j.Estimate}
	r.note(j)
	r.run(j, int64(float64(j.left)*j.slow))
	r.busy += j.GPUs
}

// note takes a start out of what the promises leave.
func (r *run) note(j *job) {
	topo := r.state.Topology
	for i := range r.held {
		p := &r.held[i]
		if p.at >= j.hold.End {
			continue
		}
		for _, s := range j.hold.Nodes {
			if free := r.state.FreeAt(s.Node); free <= p.at {
				p.slack[topo.Nodes[s.Node].Domain]--
			}
		}
	}
}

// run holds the job's nodes and sets its end that many seconds from now.
func (r *run) run(j *job, seconds int64) {
	if err := r.state.Hold(j.hold); err != nil {
		r.err = fmt.Errorf("starting job %s under %s at %d s: %w", j.ID, r.policy.Name, r.now, err)
	}
	j.version++
	r.push(event{at: r.now + max(1, seconds), kind: ended, job: j, version: j.version})
}

// nodes appends the nodes of a part: free ones by name, or for a job that shares, the one that it leaves least of.
func (r *run) nodes(shares []advise.Share, j *job, part advise.Part) []advise.Share {
	d := &r.state.Topology.Domains[part.Domain]
	if j.ask.Shared > 0 {
		best, most := int32(-1), int32(-1)
		for n := d.First; n < d.First+d.Count; n++ {
			used := r.state.Used(n)
			if used+j.GPUs <= r.state.Usable(n) && used > most {
				best, most = n, used
			}
		}
		return append(shares, advise.Share{Node: best, GPUs: j.GPUs})
	}
	for n, left := d.First, part.Nodes; left > 0; n++ {
		if r.state.FreeAt(n) == 0 {
			shares = append(shares, advise.Share{Node: n, GPUs: d.GPUsPerNode})
			left--
		}
	}
	return shares
}

// slowdown is what the shape costs the job against the best in whole racks, spares or not: the upper end of the prediction, as
// nothing is overlapped here.
func (r *run) slowdown(j *job) float64 {
	if j.ask.Shared > 0 {
		return 1
	}
	largest := int32(r.c.NodesPerRack)
	m := (j.ask.Nodes + largest - 1) / largest
	return r.c.truth().Predict(r.state.Topology, r.plan.Parts, j.ask.GPUsPerNode, j.ask.Nodes/m*j.ask.GPUsPerNode, j.Traffic).High
}

func (r *run) finish(j *job) {
	r.state.Release(j.ID)
	r.busy -= j.GPUs
	j.hold = nil
	j.left = 0
}

// fail takes a node down. Each job on it loses what it has not saved; it goes on with another free node of the same
// domain where there is one, and else waits in the queue again, in its old place.
func (r *run) fail(node int32) {
	r.state.SetUsable(node, 0)
	domain := r.state.Topology.Nodes[node].Domain
	for _, h := range slices.Clone(r.state.Holders(domain)) {
		at := slices.IndexFunc(h.Nodes, func(s advise.Share) bool { return s.Node == node })
		if at < 0 {
			continue
		}
		j := r.keys[h.Key]
		done := int64(float64(r.now-j.start) / j.slow)
		if r.now < j.start {
			done = 0 // it was still starting again
		}
		lost := done % r.c.Checkpoint
		j.left = max(1, j.left-done+lost)
		r.out.FailedGPUHours += float64(lost+r.c.Restart) * float64(j.GPUs) / 3600
		spare := r.spare(domain)
		r.state.Release(j.ID)
		j.version++
		if spare < 0 {
			r.busy -= j.GPUs
			j.hold = nil
			r.out.Requeues++
			j.left += r.c.Restart
			r.enqueue(j)
			continue
		}
		r.out.Swaps++
		moved := *h
		moved.Nodes = slices.Clone(h.Nodes)
		moved.Nodes[at].Node = spare
		j.hold = &moved
		j.start = r.now + r.c.Restart
		r.run(j, r.c.Restart+int64(float64(j.left)*j.slow))
	}
}

// spare finds a wholly free node of a domain; -1 where there is none.
func (r *run) spare(domain int32) int32 {
	d := &r.state.Topology.Domains[domain]
	for n := d.First; n < d.First+d.Count; n++ {
		if r.state.FreeAt(n) == 0 {
			return n
		}
	}
	return -1
}

func (r *run) push(e event) {
	e.seq = r.seq
	r.seq++
	heap.Push(&r.events, e)
}

// kind of an event; of those at one moment, lower ones come first.
type kind uint8

const (
	ended kind = iota
	repaired
	failed
	submitted
)

type event struct {
	at      int64
	kind    kind
	job     *job
	node    int32
	version int
	seq     int
}

// events is a heap: by time, kind and order of creation, so that a run is the same each time.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	a, b := &e[i], &e[j]
	if a.at != b.at {
		return a.at < b.at
	}
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	return a.seq < b.seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

package kube

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

// run is the pods that belong together: a job, which may run several times.
type run struct {
	key       string
	namespace string
	name      string // of the job, where no Workload names it
	uid       string // of what the pods belong to; empty = it has none
	alone     bool   // one pod
	pods      map[string]*pod
	workload  *object // as it was last; nil = it has none
	deleted   bool    // the Workload is gone
	moved     bool    // its pods turned out to belong elsewhere

	open  *event.Placement // what was last told of the attempt that has not ended; nil = none
	first int64            // when its first pod was bound, Unix ms; 0 = none was
	ended string           // the run_id of the attempt that was last told to have ended
}

// attempt is one attempt at a moment.
type attempt struct {
	rec  *event.Placement
	pods []*pod
}

// tellRun proposes what is known of the attempts of a job.
func (m *model) tellRun(b *batch, r *run) {
	attempts := m.attemptsOf(r, b)
	for _, a := range attempts {
		name := "run " + r.key + " " + a.rec.RunId
		rec := a.rec
		ended := rec.State.Ended()
		known := r.open != nil && r.open.RunId == rec.RunId
		told := (known || !ended || m.recent(rec, b)) && b.tell(name, rec)
		b.commits = append(b.commits, func() {
			if !ended {
				if told {
					if r.open != nil && r.open.RunId != rec.RunId {
						delete(m.told, "run "+r.key+" "+r.open.RunId)
					}
					if r.open == nil || r.open.RunId != rec.RunId || r.open.StartMs == nil {
						r.first = 0
						if rec.StartMs != nil && len(a.pods) > 0 {
							r.first = a.pods[0].start
						}
					}
					r.open = rec
				}
				m.trim(a.pods)
				return
			}
			if r.open != nil && r.open.RunId == rec.RunId {
				r.open = nil
			}
			delete(m.told, name)
			r.ended = rec.RunId
			m.finish(a.pods)
		})
	}
	b.commits = append(b.commits, func() {
		if len(r.pods) == 0 && r.moved && r.open != nil { // what was told is of the run that they belong to
			delete(m.told, "run "+r.key+" "+r.open.RunId)
			r.open = nil
		}
		if len(r.pods) == 0 && (r.workload == nil || r.deleted) && r.open == nil && m.runs[r.key] == r {
			delete(m.runs, r.key)
		}
	})
}

// recent says whether an attempt that was never seen to run ended so lately that it is told all the same.
func (m *model) recent(rec *event.Placement, b *batch) bool {
	return rec.EndMs == nil || b.at.UnixMilli()-*rec.EndMs <= m.cfg.LookBack.Milliseconds()
}

// done makes pods of which nothing is to be told be dropped with the batch.
func (b *batch) done(pods []*pod) {
	b.commits = append(b.commits, func() { b.m.finish(pods) })
}

// finish marks the pods of an attempt that was told to have ended, and drops those that are gone.
func (m *model) finish(pods []*pod) {
	for _, p := range pods {
		p.done = true
		if p.gone {
			m.forget(p)
		}
	}
}

// trim drops pods that are gone where the attempt holds their node by another: nothing of them can be told any more.
func (m *model) trim(pods []*pod) {
	holds := map[string]bool{}
	for _, p := range pods {
		if p.end == 0 {
			holds[p.pod.node] = true
		}
	}
	for _, p := range pods {
		if p.gone && holds[p.pod.node] {
			m.forget(p)
		}
	}
}

// attemptsOf gives the attempts of a job of which something may be to be told, in order.
func (m *model) attemptsOf(r *run, b *batch) []attempt {
	var held, waiting []*pod
	for _, p := range r.pods {
		switch {
		case p.done || !p.uses():
		case p.start != 0:
			held = append(held, p)
		case !p.gone && p.pod.phase != "Succeeded" && p.pod.phase != "Failed":
			waiting = append(waiting, p)
		}
	}
	slices.SortFunc(held, func(a, b *pod) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.UID, b.UID)) })
	slices.SortFunc(waiting, func(a, b *pod) int { return cmp.Compare(a.UID, b.UID) })
	if r.workload != nil {
		if len(held) == 0 && r.open == nil && !r.workload.workload.uses() {
			return nil
		}
		return m.ofWorkload(r, held, waiting, b)
	}
	return m.ofPods(r, held, waiting, b)
}

// ofPods are the attempts of a job that only its pods tell of: each runs from the first pod to the moment when none is left.
func (m *model) ofPods(r *run, held, waiting []*pod, b *batch) (out []attempt) {
	for len(held) > 0 {
		n, until := 1, lasts(held[0])
		for n < len(held) && held[n].start <= until {
			until = max(until, lasts(held[n]))
			n++
		}
		pods := held[:n]
		held = held[n:]
		if until < math.MaxInt64 && r.open == nil && m.cfg.Kueue && pods[0].Annotations[labelWorkload] != "" {
			b.done(pods) // a Workload told of it, and is gone
			continue
		}
		rec := m.record(r, pods)
		start := pods[0].start
		rec.RunId = r.attemptOf(pods)
		if o := r.open; len(out) == 0 && o != nil {
			rec.RunId = o.RunId
			if o.StartMs != nil {
				start = min(start, *o.StartMs)
			}
		}
		m.holding(r, rec, pods, start, until < math.MaxInt64, b)
		if until < math.MaxInt64 {
			m.close(rec, pods, howOf(pods))
		}
		out = append(out, attempt{rec, pods})
	}
	if n := len(out); len(waiting) > 0 && (n == 0 || out[n-1].rec.State.Ended()) {
		rec := m.record(r, waiting)
		rec.State, rec.PendingReason = event.State_PENDING, waitsFor(waiting)
		if rec.RunId = r.attemptOf(waiting); n == 0 && r.open != nil {
			rec.RunId = r.open.RunId
		}
		out = append(out, attempt{rec, waiting})
	}
	if o := r.open; len(out) == 0 && o != nil && !r.moved { // it went before any of it ran
		rec := proto.CloneOf(o)
		rec.State, rec.EndMs, rec.PendingReason = event.State_CANCELLED, new(b.at.UnixMilli()), ""
		out = append(out, attempt{rec: rec})
	}
	return out
}

// attemptOf names an attempt of pods that no Workload counts: by when its first pod was made, which a collector that starts
// anew can tell as well.
func (r *run) attemptOf(pods []*pod) string {
	if r.alone {
		return r.uid
	}
	made := pods[0].Created
	for _, p := range pods {
		if p.Created.Before(made) {
			made = p.Created
		}
	}
	return first(r.uid, r.key) + "@" + strconv.FormatInt(made.Unix(), 10)
}

// waitsFor is why pods are not bound, as far as one says it.
func waitsFor(pods []*pod) string {
	for _, p := range pods {
		if p.pod.waiting != "" {
			return p.pod.waiting
		}
	}
	return ""
}

// lasts is until when a pod holds its GPUs.
func lasts(p *pod) int64 {
	if p.end == 0 {
		return math.MaxInt64
	}
	return p.end
}

// howOf is how an attempt ended by how its pods did: one that did not end well is enough.
func howOf(pods []*pod) event.State {
	how := event.State_COMPLETED
	rank := []event.State{
		event.State_COMPLETED, event.State_VANISHED, event.State_CANCELLED, event.State_FAILED, event.State_TIMEOUT,
		event.State_NODE_FAIL, event.State_PREEMPTED,
	}
	for _, p := range pods {
		if !replaced(p, pods) && slices.Index(rank, p.how) > slices.Index(rank, how) {
			how = p.how
		}
	}
	return how
}

// replaced says whether another pod of the attempt, which are in the order of their start, began after this one had ended, as
// far as that is known.
func replaced(p *pod, pods []*pod) bool {
	last := pods[len(pods)-1].start
	return p.end != 0 && last >= p.mayEnd() && last > p.start
}

// mayEnd is from when on a pod may have ended.
func (p *pod) mayEnd() int64 {
	if p.earliest != 0 {
		return p.earliest
	}
	return p.end
}

// ofWorkload are the attempts of a job that Kueue admits: each eviction ends one.
func (m *model) ofWorkload(r *run, held, waiting []*pod, b *batch) (out []attempt) {
	w := r.workload.workload
	reserved, admitted := find(w.conditions, "QuotaReserved"), find(w.conditions, "Admitted")
	evict, fin := find(w.conditions, "Evicted"), find(w.conditions, "Finished")

	// The eviction counts as soon as it is decided; the attempt that it ends still has its quota then.
	number := w.evictions
	if evict.is() && reserved.is() && number > 0 {
		number--
	}
	id := m.attemptID(r, number)
	if number < 0 {
		if !reserved.is() {
			id = "" // which attempt waits cannot be told
		} else {
			id = r.workload.UID + "@" + strconv.FormatInt(reserved.Transition.Unix(), 10)
		}
	}

	// Pods that were bound before the quota was reserved are of the attempt before.
	var old []*pod
	if w.evictions != 0 {
		since := int64(math.MaxInt64)
		if reserved.is() {
			since = millis(reserved.Transition) - 1000
		}
		n := 0
		for n < len(held) && held[n].start < since {
			n++
		}
		old, held = held[:n], held[n:]
	}
	before := ""
	if number > 0 {
		before = m.attemptID(r, number-1)
	}
	if r.open != nil && r.open.RunId != id {
		before = r.open.RunId
	}
	if before != "" && before != r.ended && (len(old) > 0 || r.open != nil && r.open.RunId == before) {
		out = append(out, m.evictedAttempt(r, before, old, evict, b))
	}
	if id == "" && number < 0 || id == r.ended {
		return out
	}

	rec := m.record(r, held)
	rec.RunId = id
	if number >= 0 {
		rec.Restart = new(uint32(number))
	}
	open := r.open
	if open != nil && open.RunId != id {
		open = nil
	}
	began := open != nil && open.StartMs != nil
	active := slices.ContainsFunc(held, func(p *pod) bool { return p.end == 0 })
	evicting := evict.is() && reserved.is()
	if len(held) > 0 || began {
		start := m.startOf(held, admitted)
		if began {
			start = *open.StartMs
		}
		m.holding(r, rec, held, start, !active && (fin.is() || r.deleted || evicting), b)
	}
	ends := func(how event.State, at *condition) {
		if len(held) == 0 && began {
			rec.Placements, rec.Gpus = open.Placements, open.Gpus
		}
		m.close(rec, held, how)
		if len(held) == 0 {
			rec.EndMs = new(b.at.UnixMilli())
			if at != nil {
				rec.EndMs = new(max(millis(at.Transition), rec.GetStartMs()))
			}
		}
	}
	switch {
	case fin.is() && active, evicting && (active || began && !allGone(held)):
		rec.State = event.State_COMPLETING
	case fin.is():
		if rec.StartMs == nil && admitted.is() { // its pods are gone, and with them where it ran
			rec.StartMs = new(millis(admitted.Transition))
		}
		ends(finished(fin, howOf(held)), fin)
	case r.deleted && !active:
		if len(held) == 0 && !began {
			if open != nil {
				ends(event.State_CANCELLED, nil)
				break
			}
			return out
		}
		how := howOf(held)
		if len(held) == 0 {
			how = event.State_VANISHED
		}
		ends(how, nil)
	case evicting && began:
		ends(evicted(evict), evict)
	case len(held) > 0 || began:
		rec.State = event.State_RUNNING
	default:
		m.waiting(rec, w, waiting)
	}
	return append(out, attempt{rec, held})
}

// allGone says whether no pod is listed any more.
func allGone(pods []*pod) bool {
	return !slices.ContainsFunc(pods, func(p *pod) bool { return !p.gone })
}

func (m *model) attemptID(r *run, number int) string {
	if number <= 0 {
		return r.workload.UID
	}
	return r.workload.UID + "/" + strconv.Itoa(number)
}

// evictedAttempt is the attempt that an eviction ended, while its pods end and after.
func (m *model) evictedAttempt(r *run, id string, pods []*pod, evict *condition, b *batch) attempt {
	rec := m.record(r, pods)
	rec.RunId = id
	how := event.State_REQUEUED
	if evict != nil {
		how = evicted(evict)
	}
	o := r.open
	if o != nil && o.RunId == id {
		rec.Restart, rec.StartMs = o.Restart, o.StartMs
	} else {
		o = nil
	}
	active := slices.ContainsFunc(pods, func(p *pod) bool { return p.end == 0 })
	if len(pods) == 0 && o != nil {
		rec.Placements, rec.Gpus = o.Placements, o.Gpus
	}
	if len(pods) > 0 {
		start := pods[0].start
		if o != nil && o.StartMs != nil {
			start = *o.StartMs
		}
		m.holding(r, rec, pods, start, !active, b)
	}
	if active {
		rec.State = event.State_COMPLETING
		return attempt{rec, pods}
	}
	m.close(rec, pods, how)
	if len(pods) == 0 {
		rec.EndMs = new(b.at.UnixMilli())
		if evict != nil {
			rec.EndMs = new(max(millis(evict.Transition), rec.GetStartMs()))
		}
	}
	return attempt{rec, pods}
}

// startOf is when an attempt began: when it was admitted, if its first pod was bound soon after. So it is the same also when
// that pod is gone.
func (m *model) startOf(pods []*pod, admitted *condition) int64 {
	start := int64(0)
	if len(pods) > 0 {
		start = pods[0].start
	}
	if !admitted.is() {
		return start
	}
	at := millis(admitted.Transition)
	if start == 0 || at <= start && start-at <= m.cfg.GangStart.Milliseconds() {
		return at
	}
	return start
}

// waiting says of a record why its job waits, and where it will run as far as that is decided.
func (m *model) waiting(rec *event.Placement, w *workloadFacts, pods []*pod) {
	rec.State, rec.PendingReason = event.State_PENDING, first(w.reason(), waitsFor(pods))
	for _, host := range w.hosts {
		rec.PlannedNodes = append(rec.PlannedNodes, m.nodeOfHost(host))
	}
}

// holding sets since when an attempt runs, and what it holds. A pod that was bound soon after the first counts from the
// start, and one that ended still counts for as long: a gang comes and goes one by one. Neither is so of a pod that replaces
// another, or was replaced. over says that the attempt has ended.
func (m *model) holding(r *run, rec *event.Placement, pods []*pod, start int64, over bool, b *batch) {
	rec.State, rec.StartMs = event.State_RUNNING, new(start)
	if len(pods) == 0 {
		return
	}
	window := m.cfg.GangStart.Milliseconds()
	first := pods[0].start
	if o := r.open; o != nil && o.RunId == rec.RunId && r.first != 0 {
		first = min(first, r.first)
	}
	byNode := map[string][]*pod{}
	left := int64(math.MaxInt64) // when the first pod ended
	for _, p := range pods {
		byNode[p.pod.node] = append(byNode[p.pod.node], p)
		if p.end != 0 {
			left = min(left, p.mayEnd())
		}
	}
	total, known := uint32(0), true
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		here := byNode[node]
		n := &event.NodePlacement{Node: node}
		from, to := here[0].start, int64(0)
		for _, p := range here {
			to = max(to, lasts(p))
		}
		if from-first > window || left <= from && from > first {
			n.FromMs = new(max(from, start))
		}
		switch late := b.at.UnixMilli()-to > window; {
		case to == math.MaxInt64:
		case !over && late, slices.ContainsFunc(here, func(p *pod) bool { return replaced(p, pods) }):
			n.ToMs = new(max(to, n.GetFromMs(), start))
		case !over:
			b.again = true
		}
		n.Gpus = m.gpusOn(here)
		for _, p := range here {
			if p.end == 0 || to < math.MaxInt64 {
				n.Pods = append(n.Pods, p.key())
			}
		}
		slices.Sort(n.Pods)
		rec.Placements = append(rec.Placements, n)
		switch {
		case n.ToMs != nil:
		case n.Gpus == nil:
			known = false
		default:
			total += *n.Gpus
		}
	}
	if known && total > 0 {
		rec.Gpus = new(total)
	}
}

// gpusOn is how many GPUs the pods hold on one node: those that run now, or else the most that did at one time. nil = not known.
func (m *model) gpusOn(pods []*pod) *uint32 {
	if slices.ContainsFunc(pods, func(p *pod) bool { return p.end == 0 }) {
		return m.gpusOf(pods, func(p *pod) bool { return p.end == 0 })
	}
	most := uint32(0)
	for _, at := range pods {
		n := m.gpusOf(pods, func(p *pod) bool { return p == at || p.start <= at.start && p.end > at.start })
		if n == nil {
			return nil
		}
		most = max(most, *n)
	}
	return &most
}

// gpusOf adds up the GPUs of the pods that are meant; those of a claim that several share count once.
func (m *model) gpusOf(pods []*pod, meant func(*pod) bool) *uint32 {
	sum, devices := uint32(0), map[device]bool{}
	for _, p := range pods {
		if !meant(p) {
			continue
		}
		if !m.counts(p) {
			return nil
		}
		sum += p.pod.gpus
		for _, d := range p.held {
			devices[d] = true
		}
	}
	return new(sum + uint32(len(devices)))
}

// close ends a record that holding was called on.
func (m *model) close(rec *event.Placement, pods []*pod, how event.State) {
	rec.State = how
	var end, earliest int64
	for _, p := range pods {
		end = max(end, p.end)
	}
	for _, p := range pods {
		if p.end == end && p.earliest != 0 {
			earliest = p.earliest
		}
	}
	for _, p := range pods { // the last that is known to have held on
		if earliest != 0 && p.earliest == 0 && p.end < end {
			earliest = max(earliest, p.end)
		}
	}
	if end != 0 {
		end = max(end, rec.GetStartMs())
		rec.EndMs = &end
		if earliest != 0 {
			rec.EndEarliestMs = new(min(max(earliest, rec.GetStartMs()), end))
		}
	}
}

// record is what does not depend on how far an attempt is.
func (m *model) record(r *run, pods []*pod) *event.Placement {
	rec := &event.Placement{Cluster: m.cfg.Cluster, Scheduler: scheduler, Source: SourcePods, Name: r.name, User: r.namespace}
	var priority *int64
	var of labels
	if len(pods) > 0 {
		p := pods[0]
		of, priority = p.Labels, p.pod.priority
		rec.User, rec.Qos = p.Namespace, p.pod.class
		rec.Queue = first(of[labelLocalQueue], of[labelQueue])
		rec.Account = of[labelClusterQueue]
	}
	if r.workload == nil {
		m.ofItsPods(rec, r, pods)
	} else {
		o, w := r.workload, r.workload.workload
		rec.Name, rec.User = jobName(o), o.Namespace
		rec.Queue, rec.Account, rec.Qos = first(w.queue, rec.Queue), first(w.clusterQueue, rec.Account), first(w.class, rec.Qos)
		rec.StateRaw, rec.SubmitMs = w.words(), event.Millis(o.Created)
		if w.priority != nil {
			priority = w.priority
		}
		if w.limit > 0 {
			rec.TimeLimitMs = new(w.limit.Milliseconds())
		}
		rec.RequestedGpus, rec.RequestedNodes = w.gpus(), m.nodesFor(w)
		rec.Intent = m.intentOf(w.sets)
	}
	rec.JobId = rec.User + "/" + rec.Name
	rec.Priority = priority
	who := collect.Subject{User: rec.User, Account: rec.Account, QOS: rec.Qos, Partition: rec.Queue, Name: rec.Name}
	rec.ServiceClass, rec.Preemptible = collect.ClassOf(m.cfg.ServiceClasses, who), collect.PreemptibleBy(m.cfg.Preemptible, who)
	rec.Probe = slices.ContainsFunc(m.cfg.Probes, func(p Probe) bool { return p.matches(who, of, priority) })
	return rec
}

// ofItsPods sets what of a job without a Workload its pods tell.
func (m *model) ofItsPods(rec *event.Placement, r *run, pods []*pod) {
	phases := map[string]bool{}
	var intent *event.Intent
	active := slices.ContainsFunc(pods, func(p *pod) bool { return p.end == 0 })
	for i, p := range pods {
		if p.pod.phase != "" && (p.end == 0 || !active) {
			phases[p.pod.phase] = true
		}
		if ms := millis(p.Created); ms != 0 && (rec.SubmitMs == nil || ms < *rec.SubmitMs) {
			rec.SubmitMs = &ms
		}
		if i == 0 {
			intent = m.intentOfPod(p.object)
		}
		if r.alone && p.pod.limit > 0 {
			rec.TimeLimitMs = new(p.pod.limit.Milliseconds())
		}
		if r.alone && m.counts(p) {
			rec.RequestedGpus, rec.RequestedNodes = new(p.pod.gpus+uint32(len(p.held))), new(uint32(1))
		}
	}
	rec.StateRaw = strings.Join(slices.Sorted(maps.Keys(phases)), ",")
	rec.Intent = intent
}

// jobName is the name of what a Workload was made for; a group of pods has its own.
func jobName(o *object) string {
	if name := o.Annotations[annotationOwner]; name != "" {
		return name
	}
	if c := o.controller(); c != nil {
		return c.Name
	}
	if len(o.Owners) == 1 {
		return o.Owners[0].Name
	}
	return o.Name
}

// nodesFor is how many nodes a Workload asks for: its pods, where no two of them fit a node.
func (m *model) nodesFor(w *workloadFacts) *uint32 {
	nodes := uint64(0)
	for _, s := range w.sets {
		switch {
		case s.request.gpus == 0 && !s.parts && !s.claims:
		case s.parts || s.request.gpus == 0 || m.perNode(s.request.gpus) != 1:
			return nil
		default:
			nodes += uint64(s.count)
		}
	}
	if nodes == 0 || nodes > maxAmount {
		return nil
	}
	return new(uint32(nodes))
}

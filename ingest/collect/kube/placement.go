package kube

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

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
	if o := r.open; o != nil && o.RunId == rec.RunId && o.StartMs != nil && r.first != 0 {
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
		rec.Queue = cmp.Or(of[labelLocalQueue], of[labelQueue])
		rec.Account = of[labelClusterQueue]
	}
	if r.workload == nil {
		m.ofItsPods(rec, r, pods)
	} else {
		o, w := r.workload, r.workload.workload
		rec.Name, rec.User = jobName(o), o.Namespace
		rec.Queue, rec.Account, rec.Qos = cmp.Or(w.queue, rec.Queue), cmp.Or(w.clusterQueue, rec.Account), cmp.Or(w.class, rec.Qos)
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

package kube

import (
	"cmp"
	"strings"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// pod is one pod that asks for GPUs, and what became of it. Times are Unix milliseconds, 0 = none.
type pod struct {
	*object
	run           *run
	held          []device // GPUs that its claims were given; kept when the claims are gone
	wants         bool     // its claims ask for GPUs
	start         int64    // it holds its node's GPUs from then on
	end, earliest int64    // it ended then, or in [earliest, end]
	how           event.State
	gone          bool  // no longer listed
	done          bool  // of an attempt that was told to have ended
	seen          int64 // when it was last heard of
}

func (m *model) putPod(o *object, at time.Time) {
	p := m.pods[o.UID]
	if p == nil {
		if o.pod.gpus == 0 && !o.pod.parts && len(o.pod.claims) == 0 {
			return // no business of ours
		}
		p = &pod{}
		m.pods[o.UID] = p
	}
	p.object, p.gone, p.seen = o, false, at.UnixMilli()
	for _, name := range o.pod.claims {
		m.claimant(o.Namespace+"/"+name, p)
	}
	m.hold(p)
	if !p.done {
		m.group(p)
	}
	if p.start == 0 && o.pod.node != "" {
		p.start = boundAt(o)
	}
	if p.end == 0 && (o.pod.phase == "Succeeded" || o.pod.phase == "Failed") {
		p.ended(at)
	}
	m.dirty[p.run] = true
}

// boundAt is when a pod was bound to its node: since then nobody else can have its GPUs.
func boundAt(o *object) int64 {
	at := o.pod.scheduled
	if at.IsZero() {
		at = o.pod.started // one that no scheduler placed
	}
	if at.IsZero() {
		at = o.Created
	}
	return millis(at)
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// ended notes the end of a pod whose phase is one of an end. It let its GPUs go when its last container ended; one that its
// node never told of, when it was no longer ready.
func (p *pod) ended(at time.Time) {
	end := millis(p.pod.finished)
	if end == 0 {
		end = millis(p.pod.notReady)
	}
	if end == 0 {
		end, p.earliest = at.UnixMilli(), max(p.start, millis(p.Created))
	}
	p.end = max(end, p.start)
	p.how = howEnded(p.object)
}

func howEnded(o *object) event.State {
	f := o.pod
	if f.phase == "Succeeded" {
		return event.State_COMPLETED
	}
	switch f.disruption {
	case "PreemptionByScheduler", "PreemptionByKubeScheduler":
		return event.State_PREEMPTED
	case "DeletionByTaintManager", "DeletionByPodGC":
		return event.State_NODE_FAIL
	}
	switch f.reason {
	case "DeadlineExceeded":
		return event.State_TIMEOUT
	case "NodeLost", "NodeShutdown", "Terminated":
		return event.State_NODE_FAIL
	}
	switch {
	case !o.Deleting.IsZero(), f.disruption == "EvictionByEvictionAPI":
		return event.State_CANCELLED
	case f.phase == "Failed":
		return event.State_FAILED
	}
	return event.State_VANISHED
}

// removePod notes that a pod is gone. Without a phase of an end nobody said when it ended: between the moment it was asked
// to, or was last seen, and now.
func (m *model) removePod(o *object, last, at time.Time) {
	p := m.pods[o.UID]
	if p == nil {
		return
	}
	seen := p.seen
	if o != p.object && o.pod != nil {
		m.putPod(o, at)
	}
	p.gone = true
	if p.end == 0 && p.start != 0 {
		from := millis(p.deleted())
		if from == 0 {
			from = max(seen, millis(last))
		}
		p.end = max(at.UnixMilli(), p.start)
		p.earliest = min(max(from, p.start), p.end)
		p.how = howEnded(p.object)
	}
	if p.start == 0 || p.done {
		m.forget(p)
	}
	if p.run != nil {
		m.dirty[p.run] = true
	}
}

// forget drops a pod of which nothing is to be told any more.
func (m *model) forget(p *pod) {
	delete(m.pods, p.UID)
	if p.run != nil {
		delete(p.run.pods, p.UID)
	}
	for _, name := range p.pod.claims {
		key := p.Namespace + "/" + name
		if delete(m.claimants[key], p.UID); len(m.claimants[key]) == 0 {
			delete(m.claimants, key)
		}
	}
}

func (m *model) claimant(claim string, p *pod) {
	if m.claimants[claim] == nil {
		m.claimants[claim] = map[string]*pod{}
	}
	m.claimants[claim][p.UID] = p
}

func (m *model) claimChanged(claim string) {
	for _, p := range m.claimants[claim] {
		m.hold(p)
		m.dirty[p.run] = true
	}
}

// hold notes the GPUs that a pod's claims ask for and were given.
func (m *model) hold(p *pod) {
	var held []device
	for _, name := range p.pod.claims {
		c := m.claims[p.Namespace+"/"+name]
		if c == nil {
			continue
		}
		for _, class := range c.claim.classes {
			p.wants = p.wants || strings.HasSuffix(class, gpuDriver) || class == "mig.nvidia.com"
		}
		for _, d := range c.claim.devices {
			if d.driver == gpuDriver {
				held = append(held, d)
			}
		}
	}
	if len(held) > 0 {
		p.held = held
	}
}

// uses says whether a pod has, or asks for, GPUs at all.
func (p *pod) uses() bool {
	return p.pod.gpus > 0 || p.pod.parts || p.wants || len(p.held) > 0
}

// counts says whether it is known how many GPUs of its node a pod holds: parts of GPUs do not tell.
func (m *model) counts(p *pod) bool {
	if p.pod.parts || p.pod.gpus == 0 && len(p.held) == 0 {
		return false
	}
	if n := m.nodes[p.pod.node]; n != nil && p.pod.gpus > 0 && m.shares(n) {
		return false
	}
	for _, d := range p.held {
		if !m.whole(p.pod.node, d) {
			return false
		}
	}
	return true
}

// whole says whether a device is a whole GPU. Where no slice tells, its name does.
func (m *model) whole(node string, d device) bool {
	for _, o := range m.slicesBy[node] {
		if t, ok := o.slice.gpus[d.name]; ok && o.slice.pool == d.pool {
			return t == "gpu"
		}
	}
	return strings.HasPrefix(d.name, "gpu-") && strings.Count(d.name, "-") == 1
}

// group puts a pod into the run that it belongs to.
func (m *model) group(p *pod) {
	g := m.groupOf(p.object)
	if p.run != nil && p.run.key == g.key {
		return
	}
	if p.run != nil {
		delete(p.run.pods, p.UID)
		m.dirty[p.run] = true
		p.run.moved = true
	}
	p.run = m.runOf(g.key)
	if p.run.name == "" {
		p.run.name, p.run.uid, p.run.alone = g.name, g.uid, g.alone
	}
	p.run.namespace = p.Namespace
	p.run.pods[p.UID] = p
	m.dirty[p.run] = true
}

// regroupPods looks again at where pods belong: their Workload may have come after them.
func (m *model) regroupPods() {
	m.regroup = false
	for _, p := range m.pods {
		if !p.done {
			m.group(p)
		}
	}
}

// group is what the pods of one job have in common.
type group struct {
	key   string
	name  string // of the job
	uid   string // of what they belong to; empty = it has none
	alone bool   // it is this pod
}

// groupOf finds the job of a pod: what the pod names, else what it is made by. Replicas that know nothing of each other are
// jobs of their own.
func (m *model) groupOf(o *object) group {
	ns := o.Namespace + "/"
	c := o.controller()
	if name := m.workloadOf(o, c); m.runs[workloadKey(name)] != nil {
		return group{key: workloadKey(name)}
	}
	for _, name := range []string{o.Labels[labelKueueGroup], o.Labels[labelPodGroup], o.pod.group} {
		if name != "" {
			return group{key: "group " + ns + name, name: name}
		}
	}
	l := o.Labels
	switch {
	case l[labelJobSetUID] != "":
		return group{key: "jobset " + l[labelJobSetUID], name: cmp.Or(l[labelJobSetName], l[labelJobSetUID]), uid: l[labelJobSetUID]}
	case l[labelLWSName] != "":
		name := l[labelLWSName] + "-" + l[labelLWSGroup]
		return group{key: "lws " + ns + cmp.Or(l[labelLWSKey], name), name: name, uid: l[labelLWSKey]}
	case cmp.Or(l[labelJobUID], l[labelOldJobUID]) != "":
		uid := cmp.Or(l[labelJobUID], l[labelOldJobUID])
		return group{key: "job " + uid, name: cmp.Or(l[labelJobName], l[labelOldJobName], o.Name), uid: uid}
	case c != nil && c.Kind != "ReplicaSet" && c.Kind != "ReplicationController" && c.Kind != "DaemonSet" && c.Kind != "Node":
		return group{key: "owner " + c.UID, name: c.Name, uid: c.UID}
	}
	return group{key: "pod " + o.UID, name: o.Name, uid: o.UID, alone: true}
}

// workloadOf is the Workload that a pod is part of, "" for none.
func (m *model) workloadOf(o *object, c *owner) string {
	if name := cmp.Or(o.Annotations[labelWorkload], o.Labels[labelWorkload]); name != "" {
		return o.Namespace + "/" + name
	}
	uids := []string{o.UID, o.Labels[labelJobSetUID], o.Labels[labelJobUID], o.Labels[labelOldJobUID]}
	if c != nil {
		uids = append(uids, c.UID)
	}
	for _, uid := range uids {
		if name := m.owned[uid]; uid != "" && name != "" {
			return name
		}
	}
	return ""
}

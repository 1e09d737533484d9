package kube

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

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
		if known || !ended || m.recent(rec, b) {
			b.tell(name, rec)
		}
		b.commits = append(b.commits, func() {
			if !ended {
				// One that is about to end stays the open one until it has: the next waits.
				if !m.told[name].invalid && (r.open == nil || r.open.RunId == rec.RunId) {
					if (r.open == nil || r.open.StartMs == nil) && rec.StartMs != nil && len(a.pods) > 0 {
						r.first = a.pods[0].start
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
	return cmp.Or(r.uid, r.key) + "@" + strconv.FormatInt(made.Unix(), 10)
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

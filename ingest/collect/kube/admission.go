package kube

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/spillway-io/spillway/schemas/event"
)

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
	rec.State, rec.PendingReason = event.State_PENDING, cmp.Or(w.reason(), waitsFor(pods))
	for _, host := range w.hosts {
		rec.PlannedNodes = append(rec.PlannedNodes, m.nodeOfHost(host))
	}
}

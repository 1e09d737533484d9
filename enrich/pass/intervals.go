package pass

import (
	"cmp"
	"slices"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
)

// forever is the open end of an interval, in Unix milliseconds.
var forever = schema.OpenEnd.UnixMilli()

// step is one change of what one source says of one node: value holds from at (Unix ms) until the next step.
type step[V any] struct {
	at       int64
	revision uint64
	hash     uint64 // of the newest raw record that says so, to recognise a refresh without decoding it
	value    V
}

// foldSteps applies raw records to the steps known so far and gives the new steps, in the order of their times. The
// value at a moment is that of the newest record (by revision) that speaks of that moment, so the order in which
// records arrive does not matter and a record may reach back in time. known must hold no step of a revision at or
// above the oldest record's: those are rebuilt from the records.
func foldSteps[V any](known, records []step[V], equal func(a, b V) bool) []step[V] {
	steps := slices.Clone(known)
	slices.SortFunc(steps, func(a, b step[V]) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(records, func(a, b step[V]) int { return cmp.Compare(a.revision, b.revision) })
	for _, r := range records {
		for len(steps) > 0 && steps[len(steps)-1].at >= r.at {
			steps = steps[:len(steps)-1]
		}
		if len(steps) == 0 || !equal(steps[len(steps)-1].value, r.value) {
			steps = append(steps, r)
		} else {
			steps[len(steps)-1].hash = r.hash
		}
	}
	return steps
}

// interval is a value over [from, to), in Unix milliseconds.
type interval[V any] struct {
	from, to int64
	value    V
}

// difference is the smallest [from, to) outside which two lists of intervals say the same; ok = false when they do
// everywhere. Both lists are in order of time and free of overlaps; where a list has no interval it says nothing.
func difference[V any](a, b []interval[V], equal func(a, b V) bool) (from, to int64, ok bool) {
	var cuts []int64
	for _, list := range [][]interval[V]{a, b} {
		for _, iv := range list {
			cuts = append(cuts, iv.from, iv.to)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for i := 0; i+1 < len(cuts); i++ {
		va, vb := at(a, cuts[i]), at(b, cuts[i])
		if va == nil && vb == nil || va != nil && vb != nil && equal(*va, *vb) {
			continue
		}
		if !ok {
			from, ok = cuts[i], true
		}
		to = cuts[i+1]
	}
	return from, to, ok
}

// at gives the value at a moment, nil where there is none.
func at[V any](list []interval[V], t int64) *V {
	i, _ := slices.BinarySearchFunc(list, t, func(iv interval[V], t int64) int {
		if iv.to <= t {
			return -1
		}
		return 1
	})
	if i < len(list) && list[i].from <= t {
		return &list[i].value
	}
	return nil
}

// intervalsOf turns steps into intervals; the last one is open.
func intervalsOf[V any](steps []step[V]) []interval[V] {
	out := make([]interval[V], len(steps))
	for i, s := range steps {
		out[i] = interval[V]{s.at, forever, s.value}
		if i > 0 {
			out[i-1].to = s.at
		}
	}
	return out
}

package pass

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// telling is what one view says of one node: the key of a sequence of facts.
type telling struct {
	node string
	view view
}

// changed says that a telling has new records of this revision or later.
type changed struct {
	telling
	first uint64
}

// recordsOf is the question for the records behind changes. It gives records of all of them from the lowest first
// revision on; since says which revision counts for which.
func recordsOf(file, table, cluster string, changes []changed, b batch) (q question, since map[telling]uint64) {
	first := changes[0].first
	since = map[telling]uint64{}
	q = question{file: file, names: []string{"node", "source", "topology"}, replace: []string{"@seen", b.seen(table)}}
	for _, c := range changes {
		q.wanted = append(q.wanted, []any{c.node, c.view.source, c.view.topology})
		since[c.telling] = c.first
		first = min(first, c.first)
	}
	q.params = clickhouse.Parameters{"cluster": cluster, "first": strconv.FormatUint(first, 10)}
	return q, since
}

// changedIn asks which tellings have something new in a batch, by cluster in name order.
func (p *Passes) changedIn(ctx context.Context, file, table string, b batch) ([]string, map[string][]changed, error) {
	out := map[string][]changed{}
	err := p.ask(ctx, question{file: file, replace: []string{"@batch", b.where(table)}}, func(rows driver.Rows) error {
		var cluster string
		var c changed
		if err := rows.Scan(&cluster, &c.node, &c.view.source, &c.view.topology, &c.first); err != nil {
			return err
		}
		out[cluster] = append(out[cluster], c)
		return nil
	})
	var clusters []string
	for c := range out {
		clusters = append(clusters, c)
	}
	slices.Sort(clusters)
	return clusters, out, err
}

// history is what one telling says over time, with the revisions and fingerprints it came from.
type history[V any] []interval[step[V]]

// refold gives the history anew after records of a revision and later; it changes neither argument.
func (h history[V]) refold(first uint64, records []step[V], equal func(a, b V) bool) history[V] {
	var known []step[V]
	for _, iv := range h {
		if iv.value.revision < first {
			known = append(known, iv.value)
		}
	}
	steps := foldSteps(known, records, equal)
	out := make(history[V], len(steps))
	for i, s := range steps {
		out[i] = interval[step[V]]{s.at, forever, s}
		if i > 0 {
			out[i-1].to = s.at
		}
	}
	return out
}

// values leaves out where the history came from.
func (h history[V]) values() []interval[V] {
	out := make([]interval[V], len(h))
	for i, iv := range h {
		out[i] = interval[V]{iv.from, iv.to, iv.value.value}
	}
	return out
}

// splice continues stored intervals with those computed from a moment on: the stored one that spans the moment is cut
// there, or goes on when the computed one says the same.
func splice[V any](stored, computed []interval[V], from int64, equal func(a, b V) bool) []interval[V] {
	if len(stored) == 0 || stored[0].from >= from || stored[0].to <= from {
		return computed
	}
	head := stored[0]
	if len(computed) > 0 && computed[0].from == from && equal(computed[0].value, head.value) {
		computed = slices.Clone(computed)
		computed[0].from = head.from
		return computed
	}
	head.to = from
	return append([]interval[V]{head}, computed...)
}

// edits are the rows to write so that stored intervals become the wanted ones: put replaces or adds by its start, drop
// withdraws. Intervals that stay are not written again.
func edits[V any](stored, wanted []interval[V], equal func(a, b V) bool) (put, drop []interval[V]) {
	byStart := func(iv interval[V], t int64) int { return cmp.Compare(iv.from, t) }
	for _, w := range wanted {
		i, found := slices.BinarySearchFunc(stored, w.from, byStart)
		if !found || stored[i].to != w.to || !equal(stored[i].value, w.value) {
			put = append(put, w)
		}
	}
	for _, s := range stored {
		if _, found := slices.BinarySearchFunc(wanted, s.from, byStart); !found {
			drop = append(drop, s)
		}
	}
	return put, drop
}

package pass

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

//go:embed sql/*.sql
var statements embed.FS

// question is one statement of sql/ with what it is asked about.
type question struct {
	file   string
	params clickhouse.Parameters
	// wanted goes along as a temporary table of that name; names says its columns, all of them String.
	names  []string
	wanted [][]any
	// replace holds conditions that are made here from numbers only: @batch, @seen.
	replace []string
}

// ask runs a question and calls each for every row.
func (p *Passes) ask(ctx context.Context, q question, each func(driver.Rows) error) error {
	text, err := statements.ReadFile("sql/" + q.file + ".sql")
	if err != nil {
		return fmt.Errorf("ask %s: %w", q.file, err)
	}
	options := []clickhouse.QueryOption{clickhouse.WithParameters(q.params)}
	if q.names != nil {
		table, err := wantedTable(q.names, q.wanted)
		if err != nil {
			return fmt.Errorf("ask %s: %w", q.file, err)
		}
		options = append(options, clickhouse.WithExternalTable(table))
	}
	rows, err := p.conn.Query(clickhouse.Context(ctx, options...), strings.NewReplacer(q.replace...).Replace(string(text)))
	if err != nil {
		return fmt.Errorf("ask %s: %w", q.file, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return fmt.Errorf("ask %s: %w", q.file, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("ask %s: %w", q.file, err)
	}
	return nil
}

func wantedTable(names []string, rows [][]any) (*ext.Table, error) {
	var columns []func(*ext.Table) error
	for _, name := range names {
		columns = append(columns, ext.Column(name, "String"))
	}
	table, err := ext.NewTable("wanted", columns...)
	if err != nil {
		return nil, fmt.Errorf("make table wanted: %w", err)
	}
	for _, row := range rows {
		if err := table.Append(row...); err != nil {
			return nil, fmt.Errorf("fill table wanted: %w", err)
		}
	}
	return table, nil
}

// namesOf makes the rows of a one-column wanted table.
func namesOf(names []string) [][]any {
	out := make([][]any, len(names))
	for i, n := range names {
		out[i] = []any{n}
	}
	return out
}

// seen is a SQL condition that holds for all rows of a raw table that this batch or an earlier one covers.
func (b batch) seen(table string) string {
	cond := "1"
	for _, r := range b.of(table) {
		cond += fmt.Sprintf(" AND NOT (kafka_partition = %d AND kafka_offset >= %d)", r.Partition, r.To)
	}
	return "(" + cond + ")"
}

// millis is a time as a parameter of a statement.
func millis(t int64) string { return strconv.FormatInt(t, 10) }

// moment is a time of this package as ClickHouse takes it.
func moment(t int64) time.Time { return time.UnixMilli(t).UTC() }

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

// writer collects the rows of one table and sends them as one block.
type writer struct {
	table string
	rows  [][]any
}

func (w *writer) add(row ...any) { w.rows = append(w.rows, row) }

func (p *Passes) write(ctx context.Context, w *writer) error {
	if len(w.rows) == 0 {
		return nil
	}
	b, err := p.conn.PrepareBatch(ctx, "INSERT INTO "+w.table)
	if err != nil {
		return fmt.Errorf("write %s: %w", w.table, err)
	}
	defer b.Close()
	for _, row := range w.rows {
		if err := b.Append(row...); err != nil {
			return fmt.Errorf("write %s: %w", w.table, err)
		}
	}
	if err := b.Send(); err != nil {
		return fmt.Errorf("write %s: %w", w.table, err)
	}
	return nil
}

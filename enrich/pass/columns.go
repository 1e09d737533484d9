package pass

import (
	"context"
	"fmt"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// column is one column of a table and the field of R that holds it. Times are Unix milliseconds with 0 for unknown,
// numbers that may be unknown are int64 with -1 for it: cheaper than pointers over millions of rows.
type column[R any] struct {
	name    string
	read    string             // the expression that reads it
	dest    func(r *R) any     // where Scan puts it
	collect func(rows []R) any // all rows, as the driver's columnar Append takes them
	same    func(a, b *R) bool // nil: no part of what the row says
}

func plain[R any, T comparable](name string, at func(*R) *T) column[R] {
	return column[R]{
		name: name, read: name, dest: func(r *R) any { return at(r) },
		collect: func(rows []R) any {
			out := make([]T, len(rows))
			for i := range rows {
				out[i] = *at(&rows[i])
			}
			return out
		},
		same: func(a, b *R) bool { return *at(a) == *at(b) },
	}
}

func list[R, T any](name, read string, at func(*R) *[]T, equal func(a, b T) bool) column[R] {
	return column[R]{
		name: name, read: read, dest: func(r *R) any { return at(r) },
		collect: func(rows []R) any {
			out := make([][]T, len(rows))
			for i := range rows {
				if out[i] = *at(&rows[i]); out[i] == nil {
					out[i] = []T{}
				}
			}
			return out
		},
		same: func(a, b *R) bool {
			x, y := *at(a), *at(b)
			if len(x) != len(y) {
				return false
			}
			for i := range x {
				if !equal(x[i], y[i]) {
					return false
				}
			}
			return true
		},
	}
}

func equal[T comparable](a, b T) bool { return a == b }

// instant is a DateTime64(3).
func instant[R any](name string, at func(*R) *int64) column[R] {
	c := plain(name, at)
	c.read = "toUnixTimestamp64Milli(" + name + ")"
	return c
}

// maybeInstant is a Nullable(DateTime64(3)).
func maybeInstant[R any](name string, at func(*R) *int64) column[R] {
	c := plain(name, at)
	c.read = "ifNull(toUnixTimestamp64Milli(" + name + "), 0)"
	c.collect = func(rows []R) any {
		out := make([]*int64, len(rows))
		for i := range rows {
			if v := at(&rows[i]); *v != 0 {
				out[i] = v
			}
		}
		return out
	}
	return c
}

// maybe is a Nullable number of type T.
func maybe[T uint16 | uint32, R any](name string, at func(*R) *int64) column[R] {
	c := plain(name, at)
	c.read = "ifNull(toInt64(" + name + "), -1)"
	c.collect = func(rows []R) any {
		values := make([]T, len(rows))
		out := make([]*T, len(rows))
		for i := range rows {
			if v := *at(&rows[i]); v >= 0 {
				values[i] = T(v)
				out[i] = &values[i]
			}
		}
		return out
	}
	return c
}

// columns are those of one table that this package reads or writes.
type columns[R any] []column[R]

// reads is the list of expressions of a SELECT.
func (c columns[R]) reads() string {
	list := make([]string, len(c))
	for i := range c {
		list[i] = c[i].read
	}
	return strings.Join(list, ", ")
}

func (c columns[R]) dests(r *R, to []any) []any {
	to = to[:0]
	for i := range c {
		to = append(to, c[i].dest(r))
	}
	return to
}

// same reports whether two rows say the same.
func (c columns[R]) same(a, b *R) bool {
	for i := range c {
		if c[i].same != nil && !c[i].same(a, b) {
			return false
		}
	}
	return true
}

// insert writes rows as one block.
func (c columns[R]) insert(ctx context.Context, conn driver.Conn, table string, rows []R) error {
	if len(rows) == 0 {
		return nil
	}
	names := make([]string, len(c))
	for i := range c {
		names[i] = c[i].name
	}
	b, err := conn.PrepareBatch(ctx, "INSERT INTO "+table+" ("+strings.Join(names, ", ")+")")
	if err != nil {
		return fmt.Errorf("write %s: %w", table, err)
	}
	defer b.Close()
	for i := range c {
		if err := b.Column(i).Append(c[i].collect(rows)); err != nil {
			return fmt.Errorf("write %s: column %s: %w", table, c[i].name, err)
		}
	}
	if err := b.Send(); err != nil {
		return fmt.Errorf("write %s: %w", table, err)
	}
	return nil
}

// cursor reads rows that come ordered by job, one job's at a time.
type cursor[R any] struct {
	columns columns[R]
	rows    driver.Rows
	next    R
	more    bool
	to      []any
}

func openCursor[R any](ctx context.Context, conn driver.Conn, c columns[R], query string) (*cursor[R], error) {
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	cur := &cursor[R]{columns: c, rows: rows, to: make([]any, 0, len(c))}
	return cur, cur.step()
}

func (c *cursor[R]) step() error {
	var zero R
	c.next = zero
	if c.more = c.rows.Next(); !c.more {
		return c.rows.Err()
	}
	c.to = c.columns.dests(&c.next, c.to)
	return c.rows.Scan(c.to...)
}

// take gives all rows of one job, whose rows come next or not at all.
func (c *cursor[R]) take(ofJob func(*R) bool) ([]R, error) {
	var out []R
	for c.more && ofJob(&c.next) {
		out = append(out, c.next)
		if err := c.step(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *cursor[R]) close() { c.rows.Close() }

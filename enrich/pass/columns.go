package pass

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
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
func maybe[T uint16 | uint32 | int32 | int64, R any](name string, at func(*R) *int64) column[R] {
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

// maybeList is an array of Nullable numbers, -1 for NULL.
func maybeList[T uint16 | uint32, R any](name string, at func(*R) *[]int64) column[R] {
	c := list(name, "arrayMap(x -> ifNull(toInt64(x), -1), "+name+")", at, equal[int64])
	c.collect = func(rows []R) any {
		out := make([][]*T, len(rows))
		for i := range rows {
			out[i] = make([]*T, len(*at(&rows[i])))
			for n, v := range *at(&rows[i]) {
				out[i][n] = known(T(v), v >= 0)
			}
		}
		return out
	}
	return c
}

// maybeBy is a Nullable column with a field of another kind; write gives what is stored of a field.
func maybeBy[T comparable, S, R any](name, read string, at func(*R) *T, write func(T) *S) column[R] {
	c := plain(name, at)
	c.read = read
	c.collect = func(rows []R) any {
		out := make([]*S, len(rows))
		for i := range rows {
			out[i] = write(*at(&rows[i]))
		}
		return out
	}
	return c
}

// details is a Map(String, String).
func details[R any](name string, at func(*R) *map[string]string) column[R] {
	return column[R]{
		name: name, read: name, dest: func(r *R) any { return at(r) },
		collect: func(rows []R) any {
			out := make([]map[string]string, len(rows))
			for i := range rows {
				out[i] = *at(&rows[i])
			}
			return out
		},
		same: func(a, b *R) bool { return maps.Equal(*at(a), *at(b)) },
	}
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

// only gives some of the columns.
func (c columns[R]) only(names ...string) columns[R] {
	var out columns[R]
	for _, one := range c {
		if slices.Contains(names, one.name) {
			out = append(out, one)
		}
	}
	return out
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

// newestRows selects the newest rows of a table where a condition holds for all rows of a key.
func newestRows[R any](c columns[R], table, where string) string {
	keys := "cluster, job_id, attempt"
	if table != schema.TableAttempts {
		keys += ", seq"
	}
	return "SELECT " + c.reads() + " FROM " + table + " WHERE " + where + " ORDER BY " + keys + ", version DESC LIMIT 1 BY " + keys
}

// read calls each for every row of a query, which selects the columns.
func read[R any](ctx context.Context, conn driver.Conn, c columns[R], query string, each func(R)) error {
	cur, err := openCursor(ctx, conn, c, query)
	if err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	defer cur.close()
	for cur.more {
		each(cur.next)
		if err := cur.step(); err != nil {
			return fmt.Errorf("read rows: %w", err)
		}
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

package pass

import (
	"context"
	"embed"
	"fmt"
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

// millis is a time as a parameter of a statement.
func millis(t int64) string { return strconv.FormatInt(t, 10) }

// moment is a time of this package as ClickHouse takes it.
func moment(t int64) time.Time { return time.UnixMilli(t).UTC() }

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

// Package read answers the questions people and schedulers ask, from the derived tables: one file a question, its SQL
// beside it in sql/. It never writes, never judges (the verdicts are read as they stand), and never builds SQL from a
// value: every value crosses as a query parameter.
package read

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// ErrNotFound says that nothing of that name is known; the wrapping text says what to do.
var ErrNotFound = errors.New("not found")

// ErrAmbiguous says that a name exists in several clusters and the caller must pick one.
var ErrAmbiguous = errors.New("ambiguous")

// Reader answers questions. It is safe for concurrent use.
type Reader struct {
	conn   driver.Conn
	now    func() time.Time
	capa   *capacityFollower
	labels *labels
	heard  *heard
	maps   *mapMemory

	backlog *backlog

	exceptions *exceptionMemory
}

// New gives a reader over a connection whose user needs SELECT only.
func New(conn driver.Conn, now func() time.Time) *Reader {
	return &Reader{conn: conn, now: now, capa: &capacityFollower{}, labels: &labels{}, heard: &heard{}, backlog: &backlog{}, maps: &mapMemory{byKey: map[string]*Map{}},
		exceptions: &exceptionMemory{asking: make(chan struct{}, 1)}}
}

// params are the named parameters of one statement, already in ClickHouse's text form.
type params map[string]string

func (p params) time(name string, t time.Time) params {
	p[name] = t.UTC().Format("2006-01-02 15:04:05.000")
	return p
}

func (p params) uint(name string, n uint64) params {
	p[name] = strconv.FormatUint(n, 10)
	return p
}

func (p params) flag(name string, on bool) params {
	p[name] = "0"
	if on {
		p[name] = "1"
	}
	return p
}

// rows runs one SQL file and scans its rows into T by column name. Every file may name the probe's cluster, which a question
// about all clusters leaves out, and use the function of evidence_now.sql.
func rows[T any](ctx context.Context, r *Reader, file string, p params) ([]T, error) {
	text, err := sqlFiles.ReadFile("sql/" + file + ".sql")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	now, err := sqlFiles.ReadFile("sql/evidence_now.sql")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	text = bytes.ReplaceAll(text, []byte("{evidence_now}"), bytes.TrimSpace(now))
	var out []T
	all := params{"probe_cluster": event.ProbeCluster}.time("measured_since", r.now().Add(-countersStopped))
	maps.Copy(all, p)
	ctx = clickhouse.Context(ctx, clickhouse.WithParameters(clickhouse.Parameters(all)))
	if err := r.conn.Select(ctx, &out, string(text)); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return out, nil
}

// closed turns the open end of the tables into nil.
func closed(t time.Time) *time.Time {
	if t.IsZero() || !t.Before(schema.OpenEnd) {
		return nil
	}
	return &t
}

// text turns the empty text of the tables into nil: unknown is null, never an empty word.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

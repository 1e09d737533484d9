// Package pass is the hop between the raw tables and the answers: it folds raw records into membership, node states,
// attempts and placements, judges what they touched, and keeps the capacity of every NVLink domain. It reads and
// writes ClickHouse only. It never talks to a source, never answers a reader, and never decides in Go what a spill is:
// that rule is sql/verdict.sql.
package pass

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

// Config tunes the passes.
type Config struct {
	// Interval is how often the raw tables are asked whether there is anything new, while there is not; a tenth as often in a
	// process that loads as well, since there the loader tells.
	Interval time.Duration `yaml:"interval"`
	// Gather is the pause after a pass while a few records a second come; while many come it is a fifteenth of the interval.
	Gather time.Duration `yaml:"gather"`
	// Window is how long a job could have waited for its GPUs: a spill is "timing" when enough would have been free by then.
	Window time.Duration `yaml:"window"`
	// Settle is how long the sources of a cluster take to report all of it for the first time. Placements older than
	// that are judged by the topology as it was first known.
	Settle time.Duration `yaml:"settle"`
	// GoneAfter is how long after a collector has told all that is listed the rest of what it told before counts as gone.
	GoneAfter time.Duration `yaml:"gone_after"`
	// SlotSizes are the sizes, in GPUs, for which free slots are counted.
	SlotSizes []int `yaml:"slot_sizes"`
	// Precedence lists the membership sources, strongest evidence first. A source that is not listed comes last.
	Precedence []string `yaml:"precedence"`
	// BatchRows bounds how many raw records of one Kafka partition one pass takes.
	BatchRows int `yaml:"batch_rows"`
	// ChunkRows bounds how many placements one statement judges; it bounds ClickHouse's memory.
	ChunkRows int `yaml:"chunk_rows"`
	// RetryMin and RetryMax bound the pause after a pass that failed; it doubles from one to the other.
	RetryMin time.Duration `yaml:"retry_min"`
	RetryMax time.Duration `yaml:"retry_max"`
}

// DefaultConfig is what an empty configuration means.
func DefaultConfig() Config {
	return Config{
		Interval:   300 * time.Millisecond,
		Gather:     2 * time.Second,
		Window:     15 * time.Minute,
		Settle:     5 * time.Minute,
		GoneAfter:  5 * time.Minute,
		SlotSizes:  []int{1, 2, 4, 8, 16, 32, 36, 64, 72},
		Precedence: event.MembershipSources(),
		BatchRows:  200_000,
		ChunkRows:  50_000,
		RetryMin:   time.Second,
		RetryMax:   30 * time.Second,
	}
}

// Validate says what is wrong with a configuration and how to mend it.
func (c Config) Validate() error {
	var errs []error
	positive := func(key string, ok bool) {
		if !ok {
			errs = append(errs, fmt.Errorf("enrich.%s must be greater than zero", key))
		}
	}
	positive("interval", c.Interval > 0)
	positive("gather", c.Gather > 0)
	positive("window", c.Window > 0)
	positive("batch_rows", c.BatchRows > 0)
	positive("chunk_rows", c.ChunkRows > 0)
	positive("retry_min", c.RetryMin > 0)
	if c.Settle < 0 {
		errs = append(errs, errors.New("enrich.settle must not be negative"))
	}
	if c.GoneAfter < 0 {
		errs = append(errs, errors.New("enrich.gone_after must not be negative"))
	}
	if c.RetryMax < c.RetryMin {
		errs = append(errs, errors.New("enrich.retry_max must not be less than enrich.retry_min"))
	}
	for i, source := range c.Precedence {
		switch {
		case !slices.Contains(event.MembershipSources(), source):
			errs = append(errs, fmt.Errorf("enrich.precedence: %q is no membership source: want some of %s", source, strings.Join(event.MembershipSources(), ", ")))
		case slices.Contains(c.Precedence[:i], source):
			errs = append(errs, fmt.Errorf("enrich.precedence: %q stands there twice", source))
		}
	}
	for i, n := range c.SlotSizes {
		if n <= 0 || n > 1<<16-1 || i > 0 && n <= c.SlotSizes[i-1] {
			errs = append(errs, fmt.Errorf("enrich.slot_sizes: %d: sizes are GPUs, from 1 to 65535, in rising order", n))
		}
	}
	return errors.Join(errs...)
}

// Deps are what the passes work with.
type Deps struct {
	Conn     driver.Conn           // the database that holds the tables is its default database
	Now      func() time.Time      // nil: time.Now
	Log      *slog.Logger          // nil: nothing is logged
	Registry prometheus.Registerer // nil: metrics are kept but not registered
	Tracer   trace.Tracer          // nil: no traces
	// Stored tells that raw records were stored; it may tell too much and never has to. nil: nobody tells.
	Stored <-chan struct{}
	// Emit sends spill records out, and records that end what its source no longer tells, and returns when they are stored.
	// nil: nobody asked for them. A record may be sent twice after a crash; the newest judged_at_ms of a key is the valid one.
	Emit func(ctx context.Context, records ...event.Record) error
}

// Passes is one run of the enrichment. Only one may work on a database at a time, or they end with ErrNotAlone; its methods
// are not for concurrent use.
type Passes struct {
	cfg    Config
	conn   driver.Conn
	now    func() time.Time
	log    *slog.Logger
	tracer trace.Tracer
	stored <-chan struct{}
	emit   func(ctx context.Context, records ...event.Record) error
	m      *metrics

	// version marks every row this pass writes. It grows from pass to pass, also when the clock goes back, so that
	// rows with a version above that of the last finished pass are those of a pass that did not finish.
	version uint64
	state   runState
}

// Stats says what one pass did.
type Stats struct {
	Rows    int           // raw records read
	Touched int           // placements that had to be judged
	Judged  int           // verdicts that are new or changed
	Took    time.Duration // in all
}

// New prepares the passes and touches nothing.
func New(cfg Config, deps Deps) (*Passes, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("prepare passes: %w", err)
	}
	if deps.Conn == nil {
		return nil, errors.New("prepare passes: no clickhouse connection given")
	}
	p := &Passes{
		cfg: cfg, conn: deps.Conn, now: deps.Now, log: deps.Log, tracer: deps.Tracer, stored: deps.Stored, emit: deps.Emit,
	}
	if p.now == nil {
		p.now = time.Now
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.tracer == nil {
		p.tracer = noop.NewTracerProvider().Tracer("")
	}
	p.m = newMetrics(deps.Registry, p.now)
	p.state.clusters, p.state.unseen = map[string]*cluster{}, map[[2]string]compared{}
	return p, nil
}

// Raw tables the passes follow.
const (
	rawPlacements  = schema.TablePlacementEvents
	rawMembership  = schema.TableMembershipEvents
	rawNodes       = schema.TableNodeEvents
	progressMarker = "" // raw_table of the row that closes a pass
)

// offsetRange is [From, To) of one partition of one raw table.
type offsetRange struct {
	Table     string
	Partition int32
	From, To  int64
	Jobs      [][2]string // cluster and id of those whose records it may hold; nil: there are more than namedJobs
}

// batch is what one pass handles: for each raw table and partition the offsets not judged yet.
type batch []offsetRange

// rows is how many records it may hold at most.
func (b batch) rows() (n int64) {
	for _, r := range b {
		n += r.To - r.From
	}
	return n
}

// of gives the ranges of one raw table.
func (b batch) of(table string) []offsetRange {
	var out []offsetRange
	for _, r := range b {
		if r.Table == table {
			out = append(out, r)
		}
	}
	return out
}

// jobs gives the jobs that the placement records of the batch tell of, or nil when it does not know all.
func (b batch) jobs() (out [][]any) {
	for _, r := range b.of(rawPlacements) {
		if r.Jobs == nil {
			return nil
		}
		for _, job := range r.Jobs {
			out = append(out, []any{job[0], job[1]})
		}
	}
	return out
}

// where is a SQL condition that holds for the rows of the batch in a raw table, and "0" when it has none there.
func (b batch) where(table string) string {
	cond := "0"
	for _, r := range b.of(table) {
		cond += fmt.Sprintf(" OR (kafka_partition = %d AND kafka_offset >= %d AND kafka_offset < %d)", r.Partition, r.From, r.To)
	}
	return "(" + cond + ")"
}

// seen is a SQL condition that holds for all rows of a raw table that this batch or an earlier one covers.
func (b batch) seen(table string) string {
	cond := "1"
	for _, r := range b.of(table) {
		cond += fmt.Sprintf(" AND NOT (kafka_partition = %d AND kafka_offset >= %d)", r.Partition, r.To)
	}
	return "(" + cond + ")"
}

// nodeSpan says that what was known of a node over [From, To) has changed.
type nodeSpan struct {
	Cluster, Node string
	From, To      time.Time
}

// clusterSpan says that something of a cluster over [From, To) has changed.
type clusterSpan struct {
	Cluster  string
	From, To time.Time
}

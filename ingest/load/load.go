// Package load is the hop from Kafka to ClickHouse: each record of the contract becomes one row of its raw table,
// exactly once in effect. It never interprets a record and never updates a row.
//
// What the guarantee rests on: one insert holds rows of one partition and becomes one part of the table, so it is
// stored whole or not at all, and its offsets with it; and the server itself leaves out offsets that are stored, one
// insert of a partition at a time (see store.insert). So whoever owns a partition may stop at any instant, send a block
// again, or be replaced while it sleeps: a loader that wakes up long after it lost its partitions stores nothing that
// its successor has stored, and nothing its successor will then store again. Where reading goes on is asked of the
// table, not of Kafka.
//
// On a cluster the same holds as long as a partition's inserts go through one server and the replica they reach. After
// a failover to a replica that lags, rows it has not received yet can be stored again; the server's setting
// insert_quorum rules that out and costs availability, so it is for the operator to choose.
package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/spillway-io/spillway/ingest/kafka"
	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/schemas/event"
)

// Deps is what a loader is given.
type Deps struct {
	Kafka      engine.Kafka
	ClickHouse chconn.Options
	// DeadLetter stores a record in the dead-letter topic and returns when it is there.
	DeadLetter func(context.Context, ...event.Record) error
	Stored     func(table string) // called after each insert, and must not block; may be nil
	Log        *slog.Logger
	Registry   prometheus.Registerer // may be nil
	Tracer     trace.Tracer          // may be nil
	Now        func() time.Time
}

// Loader is one member of the consumer group. Run several to scale out; partitions are shared among them.
type Loader struct {
	cfg   Config
	deps  Deps
	m     *metrics
	store *store

	held   atomic.Int64 // bytes of records in all batches
	active atomic.Int64 // partitions that records came from lately
}

// New checks the configuration; nothing is dialled before Run.
func New(cfg Config, deps Deps) (*Loader, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(deps.ClickHouse.Addresses) == 0 {
		return nil, errors.New("load: no clickhouse address given: set engine.clickhouse.addresses to host:port of the native protocol")
	}
	if deps.Tracer == nil {
		deps.Tracer = noop.Tracer{}
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	return &Loader{cfg: cfg, deps: deps, m: newMetrics(deps.Registry)}, nil
}

// Name is the component's name.
func (l *Loader) Name() string { return "load" }

// Run loads until ctx ends and then returns nil; what is in hand and not stored is read again by the next owner.
func (l *Loader) Run(ctx context.Context) error {
	l.store = newStore(l.deps.ClickHouse, l.cfg.InsertTimeout)
	defer l.store.close()
	topics := make([]string, 0, len(tables()))
	byTopic := map[string]table{}
	for _, t := range tables() {
		topics = append(topics, t.topic)
		byTopic[t.topic] = t
	}
	group := kafka.ConsumerConfig{Group: l.cfg.Group, SessionTimeout: l.cfg.SessionTimeout, Backoff: l.cfg.RetryMin}
	return kafka.Consume(ctx, l.deps.Kafka, group, topics, l.deps.Log, func(ctx context.Context, p *kafka.Partition, owned int) {
		t := byTopic[p.Topic]
		w := &worker{
			Loader: l, source: p, stream: stream{table: t, topic: p.Topic, partition: int32(p.ID)},
			block: t.block(), share: l.cfg.MaxBytes / owned, read: l.m.records.WithLabelValues(p.Topic),
		}
		w.run(ctx)
	})
}

// minBytes is the least that a block may hold, however many partitions share the memory.
const minBytes = 256 << 10

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// worker loads one partition for as long as this loader owns it. It reads, decodes and inserts in turn: while an insert
// waits for ClickHouse nothing is read, so a slow server slows reading down and memory stays bounded.
type worker struct {
	*Loader
	source *kafka.Partition
	stream stream
	share  int                // of the memory, if all partitions had the same
	read   prometheus.Counter // found once: it counts every record

	block     block
	batch     batch
	active    bool // counted in Loader.active
	largest   int  // bytes of the largest batch since the block's memory is in use
	buried    map[int64]bool
	inserted  time.Time     // when the last insert began
	linger    time.Duration // from then to the next one, at least
	committed time.Time
}

// batch is what was read and is not stored yet; its rows are in the worker's block.
type batch struct {
	bytes  int
	oldest time.Time // when its first record was stored in Kafka
	next   int64     // one above the highest offset read, stored or dead
	any    bool
	links  []trace.Link
}

// run returns when the partitions are shared anew.
func (w *worker) run(ctx context.Context) {
	log := w.deps.Log.With("topic", w.stream.topic, "partition", w.stream.partition)
	defer w.m.lag.DeleteLabelValues(w.stream.topic, strconv.Itoa(int(w.stream.partition)))
	defer w.idle()
	wait := w.cfg.RetryMin
	for {
		stored, err := w.load(ctx)
		if ctx.Err() != nil {
			return
		}
		if stored {
			wait = w.cfg.RetryMin
		}
		level, what := slog.LevelWarn, "read"
		switch {
		case errors.Is(err, errMadeAnew):
			level = slog.LevelError
		case errors.Is(err, kafka.ErrBroken):
			level, what = slog.LevelError, "broken_batch"
		}
		w.m.errors.WithLabelValues(w.stream.topic, what).Inc()
		log.Log(ctx, level, "loading stopped, going on after what is stored", "error", err, "in", wait)
		if !pause(ctx, wait) {
			return
		}
		wait = min(2*wait, w.cfg.RetryMax)
	}
}

// load reads on from what is stored until reading fails; stored tells whether anything was inserted meanwhile.
func (w *worker) load(ctx context.Context) (stored bool, err error) {
	w.discard()
	next, err := w.store.next(ctx, w.stream)
	if err != nil {
		return false, err
	}
	if w.buried, err = w.store.buried(ctx, w.stream, max(next, 0)); err != nil {
		return false, err
	}
	records, err := w.source.Open(ctx)
	if err != nil {
		return false, err
	}
	defer records.Close()
	if next, err = w.position(next, records.First, records.End); err != nil {
		return false, err
	}
	records.StartAt(next)
	w.lag(records.End - next)
	for {
		m, ok, err := records.Next(w.patience(records.Behind()))
		broken := errors.Is(err, kafka.ErrBroken) // what came before it does not wait until it is mended
		if err != nil && !(broken && w.batch.any) {
			return stored, err
		}
		if ok {
			// Offsets in between hold no record: the ends of transactions, or what compaction took. What the broker deleted ends
			// the reading, and position counts it.
			next = m.Offset + 1
			if err := w.add(ctx, m); err != nil {
				return stored, err
			}
			if !w.full() {
				continue
			}
		}
		if w.batch.any && (ok || broken || !records.Buffered() && w.patience(false) <= 0) {
			if err := w.flush(ctx); err != nil {
				return stored, err
			}
			if stored = true; w.deps.Stored != nil {
				w.deps.Stored(w.stream.table.name)
			}
		}
		if broken {
			return stored, err
		}
		if !w.batch.any {
			w.lag(records.End - next)
			if !ok {
				w.idle()
			}
		}
	}
}

// full says that the batch is large enough: it has the rows of an insert, or its part of the memory, which is shared
// among the partitions that have something to load.
func (w *worker) full() bool {
	if w.block.rows() >= w.cfg.MaxRows {
		return true
	}
	limit := int64(w.cfg.MaxBytes)
	return w.batch.bytes >= minBytes && (w.held.Load() >= limit || int64(w.batch.bytes) >= limit/max(1, w.Loader.active.Load()))
}

// idle gives the partition's part of the memory to the others.
func (w *worker) idle() {
	w.discard()
	if w.active {
		w.active = false
		w.Loader.active.Add(-1)
	}
	if w.largest > w.share {
		w.block, w.largest = renewed(w.stream.table, w.block), 0
	}
}

// idleWait is how long one question to the broker may stay open when there is nothing to do.
const idleWait = 3 * time.Second

// patience is how long to wait for more records. What is read while nothing was inserted lately goes at once; what
// comes thick and fast is gathered for the linger, what trickles for longer, since every insert makes a part that
// ClickHouse has to merge and costs the same for one record as for hundreds. What the broker has already is never long to
// wait for, so it goes along up to the size of an insert.
func (w *worker) patience(more bool) time.Duration {
	if !w.batch.any || more {
		return idleWait
	}
	return time.Until(w.inserted.Add(w.linger))
}

// A partition trickles while its inserts hold few rows and so many come in a second.
const (
	trickleRows      = 3
	tricklePerSecond = 3
)

// settle finds how long to gather after an insert that begins now.
func (w *worker) settle(rows int) {
	now := time.Now()
	w.linger = w.cfg.Linger
	if rows <= trickleRows && float64(rows) < tricklePerSecond*now.Sub(w.inserted).Seconds() {
		w.linger = max(w.cfg.Linger, w.cfg.Gather)
	}
	w.inserted = now
}

// errMadeAnew says that a topic is not the one whose records are stored.
var errMadeAnew = errors.New("the topic was made anew")

// position compares what is stored with what Kafka has: it finds a topic that was made anew, and records that Kafka
// deleted before they were stored.
func (w *worker) position(next, first, end int64) (int64, error) {
	switch {
	case next > end:
		return 0, fmt.Errorf("table %[1]s has offset %[2]d of %[3]s, but the topic ends at %[4]d: %[5]w: restore it; or load into a "+
			"new database; or, to keep what was derived from the old records, TRUNCATE TABLE %[1]s and "+
			"DELETE FROM pass_progress WHERE raw_table = '%[1]s'", w.stream.table.name, next-1, w.stream, end, errMadeAnew)
	case next < 0:
		return first, nil
	case next < first:
		w.skipped(first - next)
		return first, nil
	}
	return next, nil
}

// skipped counts offsets that hold no record any more: deleted by the broker before they were stored.
func (w *worker) skipped(offsets int64) {
	w.m.gaps.WithLabelValues(w.stream.topic).Add(float64(offsets))
	w.deps.Log.Error("kafka no longer has records that were not stored: raise the retention of the topics",
		"topic", w.stream.topic, "partition", w.stream.partition, "offsets", offsets)
}

func (w *worker) lag(records int64) {
	w.m.lag.WithLabelValues(w.stream.topic, strconv.Itoa(int(w.stream.partition))).Set(float64(max(records, 0)))
}

// add puts one record into the batch, or into the dead letters when it cannot be used.
func (w *worker) add(ctx context.Context, m kafka.Record) error {
	if !w.batch.any {
		w.batch.oldest, w.batch.any = m.Time, true
	}
	if !w.active {
		w.active = true
		w.Loader.active.Add(1)
	}
	w.read.Inc()
	w.batch.next = m.Offset + 1
	w.batch.bytes += len(m.Value)
	w.held.Add(int64(len(m.Value)))
	err := w.block.append(m.Offset, m.Value)
	if err == nil {
		w.link(m)
		return nil
	}
	if w.buried[m.Offset] {
		return nil
	}
	w.m.dropped.WithLabelValues(w.stream.topic, "undecodable").Inc()
	w.deps.Log.Warn("record cannot be used, sent to the dead letters", "topic", w.stream.topic, "partition", w.stream.partition,
		"offset", m.Offset, "error", err)
	// A dead letter that cannot be read becomes one in its turn; that one can be read, so there is an end to it.
	letter := event.NewDeadLetter(w.stream.topic, w.stream.partition, m.Offset, "load", err, m.Key, m.Value, w.deps.Now())
	if err := w.deps.DeadLetter(ctx, letter); err != nil {
		return fmt.Errorf("write a dead letter: %w", err)
	}
	return nil
}

// The most traces one insert is linked to.
const maxLinks = 32

func (w *worker) link(m kafka.Record) {
	if len(w.batch.links) >= maxLinks {
		return
	}
	traceparent := string(m.Header("traceparent"))
	if traceparent == "" {
		return
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	if span := trace.SpanContextFromContext(ctx); span.IsValid() && span.IsSampled() {
		w.batch.links = append(w.batch.links, trace.Link{SpanContext: span})
		if b, ok := w.block.(tracedBlock); ok {
			b.trace(traceparent)
		}
	}
}

// flush stores the batch in hand. It tries until it succeeds or ctx ends.
func (w *worker) flush(ctx context.Context) error {
	if rows := w.block.rows(); rows > 0 {
		ctx, span := w.deps.Tracer.Start(ctx, "insert", trace.WithLinks(w.batch.links...), trace.WithAttributes(
			attribute.String("table", w.stream.table.name), attribute.Int("rows", rows)))
		w.settle(rows)
		stored, err := w.insert(ctx)
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
			span.End()
			return err
		}
		span.End()
		w.m.seconds.WithLabelValues(w.stream.topic).Observe(time.Since(w.inserted).Seconds())
		w.m.batches.WithLabelValues(w.stream.topic).Inc()
		w.m.rows.WithLabelValues(w.stream.topic).Add(float64(stored))
		w.m.repeated.WithLabelValues(w.stream.topic).Add(float64(rows - stored))
		w.m.bytes.WithLabelValues(w.stream.topic).Add(float64(w.batch.bytes))
		w.m.delay.WithLabelValues(w.stream.topic).Observe(max(0, time.Since(w.batch.oldest).Seconds()))
	}
	w.commit(w.batch.next)
	w.discard()
	return nil
}

// insert sends the block again and again until the server has it; that is safe whatever the error was.
func (w *worker) insert(ctx context.Context) (stored int, err error) {
	for wait := w.cfg.RetryMin; ; wait = min(2*wait, w.cfg.RetryMax) {
		stored, err = w.store.insert(ctx, w.stream, w.block, w.deps.Now())
		if err == nil || ctx.Err() != nil {
			return stored, err
		}
		what := "insert"
		if errors.Is(err, errBusy) {
			what, wait = "busy", busyWait // it is over soon, or by the insert timeout
		} else {
			w.deps.Log.Warn("clickhouse did not take an insert, trying again", "topic", w.stream.topic,
				"partition", w.stream.partition, "rows", w.block.rows(), "error", err, "in", wait)
		}
		w.m.errors.WithLabelValues(w.stream.topic, what).Inc()
		if !pause(ctx, wait) {
			return 0, ctx.Err()
		}
	}
}

const busyWait = 10 * time.Millisecond

// commitEvery is how often the group's offset follows: it is a hint for lag tools, not what the guarantee rests on.
const commitEvery = 5 * time.Second

func (w *worker) commit(next int64) {
	if now := time.Now(); now.Sub(w.committed) >= commitEvery {
		w.committed = now
		if err := w.source.Commit(next); err != nil {
			w.deps.Log.Debug("committing the offset failed; the next one will do", "error", err)
		}
	}
}

func (w *worker) discard() {
	w.block.reset()
	w.held.Add(-int64(w.batch.bytes))
	// Memory that was larger than what is now this partition's part is not kept.
	w.largest = max(w.largest, w.batch.bytes)
	if part := int64(w.cfg.MaxBytes) / max(1, w.Loader.active.Load()); int64(w.largest) > max(part, int64(w.share))+minBytes {
		w.block, w.largest = renewed(w.stream.table, w.block), 0
	}
	w.batch = batch{links: w.batch.links[:0]}
}

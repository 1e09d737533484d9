// Package load is the hop from Kafka to ClickHouse: each record of the contract becomes one row of its raw table,
// exactly once in effect. It never interprets a record and never updates a row.
//
// The guarantee rests on three facts. One insert holds rows of one partition and becomes one part of the table, so it is
// stored whole or not at all, and its offsets with it. Whoever takes over a partition, or does not know whether an
// insert was stored, first waits until no insert of that partition is running and then goes on after the highest offset
// stored. And a loader that slept through its session throws its batch away instead of inserting it.
package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

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
	Log        *slog.Logger
	Registry   prometheus.Registerer // may be nil
	Tracer     trace.Tracer          // may be nil
	Now        func() time.Time
}

// Loader is one member of the consumer group. Run several to scale out; partitions are shared among them.
type Loader struct {
	cfg  Config
	deps Deps
	m    *metrics
}

// New checks the configuration; nothing is dialled before Run.
func New(cfg Config, deps Deps) (*Loader, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
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
	store, err := l.connect(ctx)
	if err != nil || store == nil {
		return err
	}
	defer store.close()
	topics := make([]string, 0, len(tables()))
	byTopic := map[string]table{}
	for _, t := range tables() {
		topics = append(topics, t.topic)
		byTopic[t.topic] = t
	}
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: l.cfg.Group, Brokers: l.deps.Kafka.Brokers, Dialer: l.deps.Kafka.Dialer(), Topics: topics,
		StartOffset: kafka.FirstOffset, SessionTimeout: l.cfg.SessionTimeout, RebalanceTimeout: l.cfg.SessionTimeout,
		HeartbeatInterval: l.cfg.SessionTimeout / 10, JoinGroupBackoff: time.Second,
		PartitionWatchInterval: 30 * time.Second, WatchPartitionChanges: true,
	})
	if err != nil {
		return fmt.Errorf("join consumer group %s: %w", l.cfg.Group, err)
	}
	defer group.Close()
	for {
		generation, err := group.Next(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, kafka.ErrGroupClosed):
			return nil
		case err != nil:
			l.deps.Log.Warn("joining the consumer group failed, trying again", "group", l.cfg.Group, "error", err)
			if !pause(ctx, l.cfg.RetryMin) {
				return nil
			}
			continue
		}
		for topic, assigned := range generation.Assignments {
			for _, a := range assigned {
				w := &worker{
					Loader: l, store: store, table: byTopic[topic], generation: generation,
					stream: stream{table: byTopic[topic].name, topic: topic, partition: int32(a.ID)},
				}
				generation.Start(w.run)
			}
		}
	}
}

// connect retries until ClickHouse answers; a nil store without an error means ctx ended first.
func (l *Loader) connect(ctx context.Context) (*store, error) {
	for wait := l.cfg.RetryMin; ; wait = min(2*wait, l.cfg.RetryMax) {
		s, err := openStore(ctx, l.deps.ClickHouse, l.cfg.InsertTimeout)
		if err == nil {
			return s, nil
		}
		l.m.errors.WithLabelValues("", "connect").Inc()
		l.deps.Log.Warn("clickhouse does not answer, trying again", "error", err, "in", wait)
		if !pause(ctx, wait) {
			return nil, nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// worker loads one partition for as long as this loader owns it.
type worker struct {
	*Loader
	store      *store
	table      table
	stream     stream
	generation *kafka.Generation
	batch      batch
	buried     map[int64]bool
	committed  time.Time
}

// batch is what was read and is not stored yet.
type batch struct {
	block block
	bytes int
	begun time.Time // when the first record was read
	last  int64     // highest offset read, stored or dead
	any   bool
	links []trace.Link
}

// errLapsed says that so much time passed since a batch was begun that its partition may belong to somebody else.
var errLapsed = errors.New("the session may have lapsed")

// run is started once a generation and partition. It returns when the generation ends; returning earlier would end the
// generation for all partitions, which is how a lapsed session is given up.
func (w *worker) run(ctx context.Context) {
	w.batch.block = w.table.block()
	log := w.deps.Log.With("topic", w.stream.topic, "partition", w.stream.partition)
	defer w.m.lag.DeleteLabelValues(w.stream.topic, strconv.Itoa(int(w.stream.partition)))
	for wait := w.cfg.RetryMin; ctx.Err() == nil; wait = min(2*wait, w.cfg.RetryMax) {
		stored, err := w.load(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errLapsed) {
			log.Warn("woke up after a long stop: giving the partitions back before inserting", "error", err)
			return
		}
		if stored {
			wait = w.cfg.RetryMin
		}
		w.m.errors.WithLabelValues(w.stream.topic, "load").Inc()
		log.Warn("loading failed, going on after what is stored", "error", err, "in", wait)
		pause(ctx, wait)
	}
}

// load reads on from what is stored until something fails; stored tells whether anything was inserted meanwhile.
func (w *worker) load(ctx context.Context) (stored bool, err error) {
	w.discard()
	next, err := w.store.next(ctx, w.stream)
	if err != nil {
		return false, err
	}
	if w.buried, err = w.store.buried(ctx, w.stream, max(next, 0)); err != nil {
		return false, err
	}
	if next, err = w.position(ctx, next); err != nil {
		return false, err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: w.deps.Kafka.Brokers, Dialer: w.deps.Kafka.Dialer(), Topic: w.stream.topic, Partition: int(w.stream.partition),
		MinBytes: 1, MaxBytes: 8 << 20, MaxWait: time.Second, QueueCapacity: 1000, ReadBackoffMin: 20 * time.Millisecond,
		// The default jumps to the first offset without a word.
		OffsetOutOfRangeError: true,
	})
	defer reader.Close()
	if err := reader.SetOffset(next); err != nil {
		return false, fmt.Errorf("go to offset %d: %w", next, err)
	}
	for {
		m, err := w.fetch(ctx, reader)
		switch {
		case err == nil:
			if err := w.add(ctx, m); err != nil {
				return stored, err
			}
			w.m.lag.WithLabelValues(m.Topic, strconv.Itoa(m.Partition)).Set(float64(m.HighWaterMark - m.Offset - 1))
			if w.batch.block.rows() < w.cfg.MaxRows && w.batch.bytes < w.cfg.MaxBytes {
				continue
			}
		case !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
			return stored, fmt.Errorf("read %s: %w", w.stream.topic, err)
		}
		if err := w.flush(ctx); err != nil {
			return stored, err
		}
		stored = true
	}
}

// fetch gives the next record, or DeadlineExceeded when the batch in hand has waited long enough.
func (w *worker) fetch(ctx context.Context, reader *kafka.Reader) (kafka.Message, error) {
	if w.batch.any {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, w.batch.begun.Add(w.cfg.Linger))
		defer cancel()
	}
	return reader.FetchMessage(ctx)
}

// position compares what is stored with what Kafka has: it finds a topic that was made anew, and records that Kafka
// deleted before they were stored.
func (w *worker) position(ctx context.Context, next int64) (int64, error) {
	conn, err := w.deps.Kafka.Dialer().DialLeader(ctx, "tcp", w.deps.Kafka.Brokers[0], w.stream.topic, int(w.stream.partition))
	if err != nil {
		return 0, fmt.Errorf("reach the leader of %s: %w", w.stream.topic, err)
	}
	defer conn.Close()
	first, last, err := conn.ReadOffsets()
	if err != nil {
		return 0, fmt.Errorf("read the offsets of %s: %w", w.stream.topic, err)
	}
	switch {
	case next > last:
		return 0, fmt.Errorf("%s has stored offset %d of %s partition %d, but the topic ends at %d: the topic was made anew; "+
			"load it into a new database, or restore the topic", w.stream.table, next-1, w.stream.topic, w.stream.partition, last)
	case next < first:
		if next >= 0 {
			w.m.gaps.WithLabelValues(w.stream.topic).Add(float64(first - next))
			w.deps.Log.Error("kafka deleted records before they were stored: raise the retention of the topics",
				"topic", w.stream.topic, "partition", w.stream.partition, "records", first-next)
		}
		return first, nil
	}
	return next, nil
}

// add puts one record into the batch, or into the dead letters when it cannot be used.
func (w *worker) add(ctx context.Context, m kafka.Message) error {
	if !w.batch.any {
		w.batch.begun, w.batch.any = time.Now(), true
	}
	w.m.records.WithLabelValues(m.Topic).Inc()
	w.batch.last = m.Offset
	err := w.batch.block.append(m.Offset, m.Value)
	if err == nil {
		w.batch.bytes += len(m.Value)
		w.link(m)
		return nil
	}
	if w.buried[m.Offset] {
		return nil
	}
	w.m.dropped.WithLabelValues(m.Topic, "undecodable").Inc()
	w.deps.Log.Warn("record cannot be used, sent to the dead letters", "topic", m.Topic, "partition", m.Partition,
		"offset", m.Offset, "error", err)
	if m.Topic == event.TopicDeadLetter {
		return nil // a dead letter of a dead letter would never end; it is counted above
	}
	letter := &event.DeadLetter{
		Topic: m.Topic, Partition: int32(m.Partition), Offset: m.Offset, Stage: "load", Reason: err.Error(), Key: m.Key,
		Value: m.Value, ObservedAtMs: w.deps.Now().UnixMilli(),
	}
	if err := w.deps.DeadLetter(ctx, letter); err != nil {
		return fmt.Errorf("write a dead letter: %w", err)
	}
	return nil
}

// The most traces one insert is linked to.
const maxLinks = 32

func (w *worker) link(m kafka.Message) {
	if len(w.batch.links) >= maxLinks {
		return
	}
	for _, h := range m.Headers {
		if h.Key == "traceparent" {
			ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": string(h.Value)})
			if span := trace.SpanContextFromContext(ctx); span.IsValid() && span.IsSampled() {
				w.batch.links = append(w.batch.links, trace.Link{SpanContext: span})
			}
			return
		}
	}
}

// flush stores the batch in hand.
func (w *worker) flush(ctx context.Context) error {
	if !w.batch.any {
		return nil
	}
	if rows := w.batch.block.rows(); rows > 0 {
		// A stopped process does not feel time pass; its clock does. Whoever took the partition over meanwhile has
		// stored these rows.
		if age := time.Since(w.batch.begun); age > w.cfg.SessionTimeout/2 {
			return fmt.Errorf("%w: the batch is %s old", errLapsed, age.Round(time.Millisecond))
		}
		ctx, span := w.deps.Tracer.Start(ctx, "insert", trace.WithLinks(w.batch.links...), trace.WithAttributes(
			attribute.String("table", w.stream.table), attribute.Int("rows", rows)))
		start := time.Now()
		err := w.store.insert(ctx, w.stream, w.batch.block.input(w.stream.partition, w.deps.Now()))
		w.m.seconds.WithLabelValues(w.stream.topic).Observe(time.Since(start).Seconds())
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
			span.End()
			return err
		}
		span.End()
		w.m.batches.WithLabelValues(w.stream.topic).Inc()
		w.m.rows.WithLabelValues(w.stream.topic).Add(float64(rows))
		w.m.bytes.WithLabelValues(w.stream.topic).Add(float64(w.batch.bytes))
	}
	w.commit()
	w.discard()
	return nil
}

// commitEvery is how often the group's offset follows: it is a hint for lag tools, not what the guarantee rests on.
const commitEvery = 5 * time.Second

func (w *worker) commit() {
	if now := time.Now(); now.Sub(w.committed) >= commitEvery {
		w.committed = now
		err := w.generation.CommitOffsets(map[string]map[int]int64{w.stream.topic: {int(w.stream.partition): w.batch.last + 1}})
		if err != nil {
			w.deps.Log.Debug("committing the offset failed; the next one will do", "topic", w.stream.topic, "error", err)
		}
	}
}

func (w *worker) discard() {
	if w.batch.block != nil {
		w.batch.block.reset()
	}
	w.batch = batch{block: w.batch.block}
}

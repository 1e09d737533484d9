package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/schemas/event"
)

// linger is how long the writer gathers records of one partition: every Emit waits for it at least once.
const linger = 2 * time.Millisecond

// batchBytes stays below what a broker takes by default (message.max.bytes, 1,048,588), and above event.MaxBytes.
const batchBytes = 1_000_000

// Deps is what a producer is given.
type Deps struct {
	Log      *slog.Logger
	Registry prometheus.Registerer // may be nil
	Tracer   trace.Tracer          // may be nil
	Now      func() time.Time
}

// Producer sends records to their topics. It is the Emitter of the collectors.
type Producer struct {
	kafka   engine.Kafka
	writer  *kafka.Writer
	close   func()
	deps    Deps
	carrier propagation.TraceContext
	records *prometheus.CounterVec
	bytes   *prometheus.CounterVec
	failed  *prometheus.CounterVec
	refused *prometheus.CounterVec
	seconds prometheus.Histogram
}

// NewProducer prepares a producer; it dials at the first Emit. Every record is acknowledged by all replicas in sync.
func NewProducer(k engine.Kafka, deps Deps) *Producer {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Tracer == nil {
		deps.Tracer = noop.Tracer{}
	}
	transport := k.Transport()
	transport.MetadataTTL = time.Second // the writer learns of a leader that moved by this alone; the default is 6 s
	p := &Producer{
		kafka: k, close: transport.CloseIdleConnections, deps: deps,
		writer: &kafka.Writer{
			Addr: kafka.TCP(k.Brokers...), Transport: transport,
			// Java's partitioner: a record of one key lands where any other client would put it.
			Balancer: kafka.Murmur2Balancer{Consistent: true},
			// The zero value would be fire and forget.
			RequiredAcks: kafka.RequireAll, MaxAttempts: 10, BatchTimeout: linger, BatchSize: 2000, BatchBytes: batchBytes,
			WriteTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, Compression: kafka.Lz4,
		},
		records: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_kafka_records_total", Help: "Records stored in Kafka."}, []string{"topic"}),
		bytes:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_kafka_bytes_total", Help: "Bytes of the values stored in Kafka, before compression."}, []string{"topic"}),
		failed:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_kafka_failed_total", Help: "Records that could not be stored after all attempts; their collector sends them again."}, []string{"topic"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_kafka_dropped_total", Help: "Records that break the contract, sent to the dead letters.", ConstLabels: prometheus.Labels{"reason": "contract"}}, []string{"topic"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "spillway_kafka_emit_seconds", Help: "Time until a call's records are stored.", Buckets: prometheus.ExponentialBuckets(.001, 2, 14)}),
	}
	if deps.Registry != nil {
		deps.Registry.MustRegister(p.records, p.bytes, p.failed, p.refused, p.seconds)
	}
	return p
}

// Emit implements collect.Emitter: it returns when all records are stored. A record that breaks the contract goes to the
// dead letters with its reason, is counted, and does not hold up the others.
func (p *Producer) Emit(ctx context.Context, records ...event.Record) error {
	if len(records) == 0 {
		return nil
	}
	ctx, span := p.deps.Tracer.Start(ctx, "emit", trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.Int("records", len(records))))
	defer span.End()
	start := time.Now()
	headers := []kafka.Header{{Key: "spillway-schema", Value: []byte("1")}}
	carrier := propagation.MapCarrier{}
	p.carrier.Inject(ctx, carrier)
	for key, value := range carrier {
		headers = append(headers, kafka.Header{Key: key, Value: []byte(value)})
	}
	messages := make([]kafka.Message, 0, len(records))
	for _, r := range records {
		key, value, err := event.Encode(r)
		if err != nil {
			p.refused.WithLabelValues(r.RecordTopic()).Inc()
			p.deps.Log.Warn("record breaks the contract", "topic", r.RecordTopic(), "key", r.RecordKey(), "error", err)
			if r, key, value, err = p.deadLetter(r, err); err != nil {
				span.SetStatus(codes.Error, err.Error())
				return err
			}
		}
		p.bytes.WithLabelValues(r.RecordTopic()).Add(float64(len(value)))
		messages = append(messages, kafka.Message{Topic: r.RecordTopic(), Key: key, Value: value, Headers: headers})
	}
	err := p.writer.WriteMessages(ctx, messages...)
	p.count(messages, err)
	p.seconds.Observe(time.Since(start).Seconds())
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		return fmt.Errorf("store %d records in kafka: %w", len(records), explained(p.kafka, err))
	}
	return nil
}

// deadLetter is the record to send in place of one that breaks the contract.
func (p *Producer) deadLetter(r event.Record, why error) (event.Record, []byte, []byte, error) {
	letter := event.NewDeadLetter(r.RecordTopic(), -1, -1, "collect", why, []byte(r.RecordKey()), event.Raw(r), p.deps.Now())
	key, value, err := event.Encode(letter)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("write the dead letter of a %s record: %w", r.RecordTopic(), err)
	}
	return letter, key, value, nil
}

// count tells stored and failed records apart: a batch may fail for one partition only.
func (p *Producer) count(messages []kafka.Message, err error) {
	var each kafka.WriteErrors
	partly := errors.As(err, &each) && len(each) == len(messages)
	for i, m := range messages {
		if err == nil || partly && each[i] == nil {
			p.records.WithLabelValues(m.Topic).Inc()
		} else {
			p.failed.WithLabelValues(m.Topic).Inc()
		}
	}
}

// Close sends what is pending and closes the connections.
func (p *Producer) Close() error {
	err := p.writer.Close()
	p.close()
	if err != nil {
		return fmt.Errorf("close the kafka producer: %w", err)
	}
	return nil
}

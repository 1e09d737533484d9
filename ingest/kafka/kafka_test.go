package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const noon = 1_795_953_600_000 // Unix ms

// topics are what the tests run with, whatever the default.
var topics = TopicConfig{Partitions: 4, Replication: 1, Retention: time.Hour}

var quiet = slog.New(slog.DiscardHandler)

func node(name string) *event.Node {
	return &event.Node{Cluster: "alpha", Node: name, Source: "test", ObservedAtMs: noon}
}

// brokers is a Kafka of three brokers that a test can disturb, with the contract's topics.
func brokers(t testing.TB) (*kfake.Cluster, engine.Kafka) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(3))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	k := engine.Kafka{Brokers: c.ListenAddrs()}
	if err := EnsureTopics(t.Context(), k, topics); err != nil {
		t.Fatal(err)
	}
	return c, k
}

func producer(t testing.TB, k engine.Kafka, deps Deps) *Producer {
	t.Helper()
	if deps.Log == nil {
		deps.Log = quiet
	}
	p := NewProducer(k, deps)
	t.Cleanup(func() { p.Close() })
	return p
}

// read gives all records of a topic by partition.
func read(t testing.TB, k engine.Kafka, topic string) map[int][]Record {
	t.Helper()
	out := map[int][]Record{}
	for id := range topics.Partitions {
		s, err := (&Partition{Topic: topic, ID: id, kafka: k}).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for s.next < s.End {
			m, ok, err := s.Next(time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				m.Key, m.Value, m.headers = bytes.Clone(m.Key), bytes.Clone(m.Value), bytes.Clone(m.headers)
				out[id] = append(out[id], m)
			}
		}
		s.Close()
	}
	return out
}

func metric(t testing.TB, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestTopicsAreMadeOnceAndLeftAlone(t *testing.T) {
	_, k := brokers(t)
	again := topics
	again.Partitions = 9
	if err := EnsureTopics(t.Context(), k, again); err != nil {
		t.Fatal(err)
	}
	conn, err := k.Dialer().DialContext(t.Context(), "tcp", k.Brokers[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	parts, err := conn.ReadPartitions(event.Topics()...)
	if err != nil || len(parts) != len(event.Topics())*topics.Partitions {
		t.Errorf("%d partitions of %d topics, %v", len(parts), len(event.Topics()), err)
	}
}

func TestTopicConfig(t *testing.T) {
	for name, change := range map[string]func(*TopicConfig){
		"no partitions": func(c *TopicConfig) { c.Partitions = 0 },
		"no copies":     func(c *TopicConfig) { c.Replication = 0 },
		"no retention":  func(c *TopicConfig) { c.Retention = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			c := DefaultTopicConfig()
			change(&c)
			if err := EnsureTopics(t.Context(), engine.Kafka{}, c); err == nil || !strings.Contains(err.Error(), "must be at least 1") {
				t.Errorf("got %v", err)
			}
		})
	}
	if err := EnsureTopics(t.Context(), engine.Kafka{Brokers: []string{"127.0.0.1:1"}}, DefaultTopicConfig()); err == nil || !strings.Contains(err.Error(), "is the broker up") {
		t.Errorf("no broker gave %v", err)
	}
}

// TestKeysLandWhereJavaPutsThem holds the partitioner to values of Kafka's own tests of its murmur2.
func TestKeysLandWhereJavaPutsThem(t *testing.T) {
	balancer := NewProducer(engine.Kafka{}, Deps{Log: quiet}).writer.Balancer
	partitions := make([]int, 1000)
	for i := range partitions {
		partitions[i] = i
	}
	for key, hash := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		want := int(hash&0x7fffffff) % len(partitions)
		if got := balancer.Balance(kafka.Message{Key: []byte(key)}, partitions...); got != want {
			t.Errorf("%s lands on partition %d, want %d", key, got, want)
		}
	}
}

func TestEmitIsAcknowledgedByAll(t *testing.T) {
	c, k := brokers(t)
	acks := make(chan int16, 100)
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		acks <- r.(*kmsg.ProduceRequest).Acks
		return nil, nil, false
	})
	if err := producer(t, k, Deps{}).Emit(t.Context(), node("n")); err != nil {
		t.Fatal(err)
	}
	if got := <-acks; got != -1 {
		t.Errorf("the record was sent with acks=%d, want -1 (all)", got)
	}
}

func TestRecordsOfOneKeyStayInOrder(t *testing.T) {
	_, k := brokers(t)
	p := producer(t, k, Deps{})
	const keys, each = 40, 50
	var wg sync.WaitGroup
	for w := range 4 { // a key belongs to one goroutine, as an entity belongs to one collector
		wg.Go(func() {
			for i := 0; i < each; i += 10 {
				var records []event.Record
				for n := i; n < i+10; n++ {
					for key := w; key < keys; key += 4 {
						r := node(fmt.Sprint(key))
						r.Revision = uint64(n)
						records = append(records, r)
					}
				}
				if err := p.Emit(t.Context(), records...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	next := map[string]uint64{}
	where := map[string]int{}
	for id, messages := range read(t, k, event.TopicNode) {
		for _, m := range messages {
			r, err := event.Decode(event.TopicNode, m.Value)
			if err != nil {
				t.Fatal(err)
			}
			n := r.(*event.Node)
			if was, ok := where[string(m.Key)]; ok && was != id {
				t.Fatalf("key %s is on partitions %d and %d", m.Key, was, id)
			}
			where[string(m.Key)] = id
			if n.GetRevision() != next[n.GetNode()] {
				t.Fatalf("key %s: revision %d where %d was due", m.Key, n.GetRevision(), next[n.GetNode()])
			}
			next[n.GetNode()]++
		}
	}
	if len(next) != keys {
		t.Errorf("%d keys came, want %d", len(next), keys)
	}
}

func TestABadRecordGoesToTheDeadLettersAndTheOthersGoOn(t *testing.T) {
	_, k := brokers(t)
	reg := prometheus.NewRegistry()
	p := producer(t, k, Deps{Registry: reg})
	noText := node("n")
	noText.Reason = "\xff"
	long := &event.Placement{Cluster: "alpha", JobId: "1", Scheduler: "s", Source: "s", State: event.State_PENDING, ObservedAtMs: noon,
		PlannedNodes: []string{strings.Repeat("x", event.MaxBytes)}}
	badLetter := &event.DeadLetter{Topic: "t", Stage: "load", ObservedAtMs: noon}
	bad := []event.Record{&event.Node{Cluster: "a/b", Node: "n", Source: "s", ObservedAtMs: noon}, noText, long, badLetter}
	records := []event.Record{node("before")}
	records = append(append(records, bad...), node("after"))
	if err := p.Emit(t.Context(), records...); err != nil {
		t.Fatal(err)
	}
	stored := 0
	for _, messages := range read(t, k, event.TopicNode) {
		stored += len(messages)
	}
	if stored != 2 {
		t.Errorf("%d good records were stored, want 2", stored)
	}
	want := []string{`cluster "a/b" holds a slash`, "invalid UTF-8", "at most 900000 are taken", "reason is empty"}
	letters := 0
	for _, messages := range read(t, k, event.TopicDeadLetter) {
		for _, m := range messages {
			r, err := event.Decode(event.TopicDeadLetter, m.Value)
			if err != nil {
				t.Fatal(err)
			}
			d := r.(*event.DeadLetter)
			for i, w := range want {
				if strings.Contains(d.GetReason(), w) {
					letters++
					if d.GetTopic() != bad[i].RecordTopic() || d.GetPartition() != -1 || d.GetStage() != "collect" {
						t.Errorf("a letter of a %s says %v", bad[i].RecordTopic(), d)
					}
				}
			}
		}
	}
	if letters != len(bad) {
		t.Errorf("%d of %d reasons are in the dead letters", letters, len(bad))
	}
	if n := metric(t, reg, "spillway_kafka_dropped_total"); n != float64(len(bad)) {
		t.Errorf("%v records were counted as dropped, want %d", n, len(bad))
	}
	if n := metric(t, reg, "spillway_kafka_records_total"); n != 6 {
		t.Errorf("%v records were counted as stored, want 6", n)
	}
}

func TestEmitOutlivesALeaderThatMoves(t *testing.T) {
	c, k := brokers(t)
	p := producer(t, k, Deps{})
	random := rand.New(rand.NewPCG(8, 9))
	const total = 60
	for i := range total {
		if i%10 == 5 {
			for id := range int32(topics.Partitions) {
				if err := c.MoveTopicPartition(event.TopicNode, id, int32(random.IntN(3))); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := p.Emit(t.Context(), node(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for _, messages := range read(t, k, event.TopicNode) {
		for _, m := range messages {
			seen[string(m.Key)] = true
		}
	}
	if len(seen) != total {
		t.Errorf("%d of %d records are stored", len(seen), total)
	}
}

// TestEmitBlocksWhileKafkaDoes: that is the back-pressure a collector gets.
func TestEmitBlocksWhileKafkaDoes(t *testing.T) {
	c, k := brokers(t)
	p := producer(t, k, Deps{})
	asked, release := make(chan struct{}, 100), make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked <- struct{}{}
		c.SleepControl(func() { <-release })
		return nil, nil, false
	})
	done := make(chan error, 1)
	go func() { done <- p.Emit(t.Context(), node("n")) }()
	<-asked
	select {
	case err := <-done:
		t.Fatalf("Emit returned %v before the record was stored", err)
	default:
	}
	// A caller that cannot wait ends its context.
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan error, 1)
	go func() { cancelled <- p.Emit(ctx, node("m")) }()
	cancel()
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled Emit gave %v", err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAFailureIsReportedAndCounted(t *testing.T) {
	c, k := brokers(t)
	reg := prometheus.NewRegistry()
	p := producer(t, k, Deps{Registry: reg})
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := r.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range r.(*kmsg.ProduceRequest).Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic = topic.Topic
			for _, part := range topic.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = part.Partition, int16(kafka.TopicAuthorizationFailed)
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	err := p.Emit(t.Context(), node("n"))
	if err == nil || !errors.Is(err, kafka.TopicAuthorizationFailed) && !strings.Contains(err.Error(), "store 1 records in kafka") {
		t.Errorf("got %v", err)
	}
	if n := metric(t, reg, "spillway_kafka_failed_total"); n != 1 {
		t.Errorf("%v failures were counted, want 1", n)
	}
}

func TestRecordsCarryTheirTraceAndVersion(t *testing.T) {
	_, k := brokers(t)
	tracer := sdktrace.NewTracerProvider().Tracer("test")
	p := producer(t, k, Deps{Tracer: tracer})
	ctx, span := tracer.Start(t.Context(), "collect")
	defer span.End()
	if err := p.Emit(ctx, node("n")); err != nil {
		t.Fatal(err)
	}
	for _, messages := range read(t, k, event.TopicNode) {
		for _, m := range messages {
			if parent := string(m.Header("traceparent")); !strings.HasPrefix(parent, "00-"+span.SpanContext().TraceID().String()+"-") {
				t.Errorf("traceparent is %q", parent)
			}
			if version := string(m.Header("spillway-schema")); version != "1" || m.Header("other") != nil {
				t.Errorf("schema is %q, a header that is not there %q", version, m.Header("other"))
			}
		}
	}
}

func BenchmarkEmit(b *testing.B) {
	for _, size := range []int{1, 1000} {
		b.Run(fmt.Sprintf("records=%d", size), func(b *testing.B) {
			_, k := brokers(b)
			p := producer(b, k, Deps{})
			records := make([]event.Record, size)
			for i := range records {
				records[i] = node(strconv.Itoa(i))
			}
			for b.Loop() {
				if err := p.Emit(b.Context(), records...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/record")
		})
	}
}

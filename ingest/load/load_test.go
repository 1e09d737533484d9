package load

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/internal/testenv"
	spillkafka "github.com/spillway-io/spillway/ingest/kafka"
	"github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// bench is a broker, a migrated database and a producer.
type bench struct {
	kafka    engine.Kafka
	store    *testenv.Server
	producer *spillkafka.Producer
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{store: testenv.ClickHouse(t), kafka: testenv.Kafka(t)}
	ctx := context.Background()
	if err := clickhouse.Migrate(ctx, b.store.Conn, clickhouse.Options{Database: b.store.Database}); err != nil {
		t.Fatal(err)
	}
	if err := spillkafka.EnsureTopics(ctx, b.kafka, spillkafka.DefaultTopicConfig()); err != nil {
		t.Fatal(err)
	}
	b.producer = spillkafka.NewProducer(b.kafka, spillkafka.Deps{Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		if err := b.producer.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// start runs one loader until the returned function is called.
func (b *bench) start(t testing.TB, cfg Config) (stop func()) {
	t.Helper()
	l, err := New(cfg, Deps{Kafka: b.kafka, ClickHouse: b.store.Owner, DeadLetter: b.producer.Emit, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// counts gives rows and distinct (partition, offset) pairs of a table.
func (b *bench) counts(t testing.TB, table string) (rows, distinct uint64) {
	t.Helper()
	row := b.store.QueryRow(context.Background(), "SELECT count(), uniqExact(kafka_partition, kafka_offset) FROM "+table)
	if err := row.Scan(&rows, &distinct); err != nil {
		t.Fatal(err)
	}
	return rows, distinct
}

func (b *bench) wait(t testing.TB, table string, want uint64) {
	t.Helper()
	testenv.Eventually(t, 60*time.Second, func() error {
		if rows, distinct := b.counts(t, table); rows != want || distinct != want {
			return fmt.Errorf("%s has %d rows, %d distinct, want %d", table, rows, distinct, want)
		}
		return nil
	})
}

func placement(i int) *event.Placement {
	at := int64(1_795_959_895_000)
	start, gpus, nodeGPUs := at, uint32(8), uint32(4)
	return &event.Placement{
		Cluster: "alpha", Scheduler: "slurm", JobId: fmt.Sprint(i), State: event.State_RUNNING, StartMs: &start, Gpus: &gpus,
		Source: "test", ObservedAtMs: at, Revision: uint64(i), Intent: &event.Intent{Mode: event.Intent_REQUIRED, Level: "domain"},
		Placements: []*event.NodePlacement{
			{Node: "n1", GpuIndex: []uint32{0, 1, 2, 3}, Gpus: &nodeGPUs}, {Node: "n2"},
		},
	}
}

func TestEveryRecordBecomesOneRow(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	stop := b.start(t, DefaultConfig())
	defer stop()
	for i := range 500 {
		if err := b.producer.Emit(ctx, placement(i)); err != nil {
			t.Fatal(err)
		}
	}
	level := []*event.Level{{Level: "block", Value: "rack01"}, {Level: "domain", Value: "rack01"}}
	clique := uint32(7)
	node := uint32(4)
	yes := true
	err := b.producer.Emit(ctx,
		&event.Membership{Cluster: "alpha", Node: "n1", Source: "nvml", Levels: level, ObservedAtMs: 1_795_959_895_000,
			Gpus: []*event.GpuFabric{{Index: 0, ClusterUuid: "u", CliqueId: &clique, State: "completed"}, {Index: 1}}},
		&event.Node{Cluster: "alpha", Node: "n1", Source: "slurm", GpusPresent: &node, Schedulable: &yes, ObservedAtMs: 1_795_959_895_000},
		&event.Source{Cluster: "alpha", Source: "slurm", ObservedAtMs: 1_795_959_895_000},
	)
	if err != nil {
		t.Fatal(err)
	}
	b.wait(t, "placement_events", 500)
	b.wait(t, "membership_events", 1)
	b.wait(t, "node_events", 1)
	b.wait(t, "source_events", 1)

	var state, mode string
	var nodes []string
	var gpus []*uint16
	var index [][]uint16
	row := b.store.QueryRow(ctx, "SELECT toString(state), toString(intent_mode), nodes, node_gpus, node_gpu_index FROM placement_events WHERE job_id = '7'")
	if err := row.Scan(&state, &mode, &nodes, &gpus, &index); err != nil {
		t.Fatal(err)
	}
	if state != "running" || mode != "required" || len(nodes) != 2 || *gpus[0] != 4 || gpus[1] != nil || len(index[0]) != 4 || len(index[1]) != 0 {
		t.Errorf("got %s %s %v %v %v", state, mode, nodes, gpus, index)
	}
}

func TestAPoisonedRecordGoesToTheDeadLettersAndTheStreamGoesOn(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	stop := b.start(t, DefaultConfig())
	if err := b.producer.Emit(ctx, placement(1)); err != nil {
		t.Fatal(err)
	}
	transport := b.kafka.Transport()
	defer transport.CloseIdleConnections()
	raw := &kafka.Writer{Addr: kafka.TCP(b.kafka.Brokers...), Topic: event.TopicPlacement, RequiredAcks: kafka.RequireAll,
		Transport: transport, BatchTimeout: time.Millisecond}
	for _, value := range []string{"not protobuf", "", "\x0a\x01x"} {
		if err := raw.WriteMessages(ctx, kafka.Message{Key: []byte("alpha/1"), Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	broken := placement(2)
	broken.StartMs = nil // running without a start: refused before Kafka
	if err := b.producer.Emit(ctx, broken, placement(3)); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "placement_events", 2)
	b.wait(t, "dead_letters", 4)
	stop()

	// Started again the poison is read again, and known to be dead already.
	stop = b.start(t, DefaultConfig())
	if err := b.producer.Emit(ctx, placement(4)); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "placement_events", 3)
	b.wait(t, "dead_letters", 4)
	stop()
}

func TestStopsAtRandomLoseAndDoubleNothing(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	const total = 4000
	sent := make(chan error, 1)
	go func() {
		for i := 0; i < total; i += 20 {
			records := make([]event.Record, 20)
			for k := range records {
				records[k] = placement(i + k)
			}
			if err := b.producer.Emit(ctx, records...); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	cfg := DefaultConfig()
	cfg.Linger, cfg.MaxRows = 5*time.Millisecond, 50
	for round := range 6 {
		stop := b.start(t, cfg)
		second := func() {}
		if round%2 == 1 { // two loaders share the partitions, then one goes
			second = b.start(t, cfg)
		}
		time.Sleep(time.Duration(100+137*round) * time.Millisecond)
		stop()
		second()
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	stop := b.start(t, DefaultConfig())
	defer stop()
	b.wait(t, "placement_events", total)
}

func TestATopicMadeAnewIsRefused(t *testing.T) {
	b := newBench(t)
	ctx := context.Background()
	err := b.store.Exec(ctx, `INSERT INTO node_events (kafka_partition, kafka_offset, loaded_at, cluster, node, source)
		SELECT number, 1000, now64(3), 'alpha', 'n', 's' FROM numbers(4)`)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{
		Loader: &Loader{cfg: DefaultConfig(), deps: Deps{Kafka: b.kafka}, m: newMetrics(nil)},
		stream: stream{table: "node_events", topic: event.TopicNode, partition: 0},
	}
	if _, err := w.position(ctx, 1001); err == nil {
		t.Error("an offset beyond the end of the topic was taken")
	}
}

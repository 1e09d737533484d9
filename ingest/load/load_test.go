package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	kafkago "github.com/segmentio/kafka-go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/spillway-io/spillway/ingest/kafka"
	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		runChild(text)
		return
	}
	testenv.Main(m)
}

// bench is a broker, a migrated database and a producer.
type bench struct {
	kafka    engine.Kafka
	store    *testenv.Server
	producer *kafka.Producer
}

func newBench(t testing.TB) *bench {
	t.Helper()
	return newBenchOn(t, testenv.Kafka(t))
}

// newBenchOn is newBench with a broker of the caller's.
func newBenchOn(t testing.TB, k engine.Kafka) *bench {
	t.Helper()
	b := &bench{store: testenv.ClickHouse(t), kafka: k}
	ctx := context.Background()
	if err := clickhouse.Migrate(ctx, b.store.Conn, clickhouse.Options{Database: b.store.Database}); err != nil {
		t.Fatal(err)
	}
	if err := kafka.EnsureTopics(ctx, b.kafka, twoPartitions); err != nil {
		t.Fatal(err)
	}
	b.producer = kafka.NewProducer(b.kafka, kafka.Deps{Log: quiet})
	t.Cleanup(func() {
		if err := b.producer.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

var quiet = slog.New(slog.DiscardHandler)

// deps are what a loader of this bench is given.
func (b *bench) deps() Deps {
	return Deps{Kafka: b.kafka, ClickHouse: b.store.Owner, DeadLetter: b.producer.Emit, Log: quiet}
}

// start runs one loader until the returned function is called.
func start(t testing.TB, cfg Config, deps Deps) (stop func()) {
	t.Helper()
	l, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// config makes small batches, so that a few thousand records are many inserts.
func config(group string) Config {
	c := DefaultConfig()
	c.Group, c.Linger, c.MaxRows, c.RetryMin = group, 2*time.Millisecond, 40, 20*time.Millisecond
	return c
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

// wait is until a table has so many rows, each once. More is a failure at once: no later moment mends it.
func (b *bench) wait(t testing.TB, table string, want uint64) {
	t.Helper()
	testenv.Eventually(t, 90*time.Second, func() error {
		rows, distinct := b.counts(t, table)
		if rows > want || rows != distinct {
			t.Fatalf("%s has %d rows of %d offsets, want %d", table, rows, distinct, want)
		}
		if rows < want {
			return fmt.Errorf("%s has %d rows, want %d", table, rows, want)
		}
		return nil
	})
}

// waitFor is until a table has at least so many rows.
func (b *bench) waitFor(t testing.TB, table string, least uint64) {
	t.Helper()
	testenv.Eventually(t, 90*time.Second, func() error {
		if rows, _ := b.counts(t, table); rows < least {
			return fmt.Errorf("%s has %d rows, want at least %d", table, rows, least)
		}
		return nil
	})
}

// exact compares what is stored with what was sent: every job once, and offsets without a gap.
func (b *bench) exact(t testing.TB, jobs uint64) {
	t.Helper()
	var rows, distinct, ids, gaps uint64
	row := b.store.QueryRow(context.Background(), `SELECT sum(n), sum(d), sum(j), countIf(n != last + 1) FROM (
		SELECT count() AS n, uniqExact(kafka_offset) AS d, uniqExact(job_id) AS j, max(kafka_offset) AS last
		FROM placement_events GROUP BY kafka_partition)`)
	if err := row.Scan(&rows, &distinct, &ids, &gaps); err != nil {
		t.Fatal(err)
	}
	if rows != jobs || distinct != jobs || ids != jobs || gaps != 0 {
		t.Errorf("sent %d jobs; stored %d rows, %d offsets, %d jobs, %d partitions with gaps", jobs, rows, distinct, ids, gaps)
	}
}

const noon = 1_795_959_895_000 // Unix ms

func placement(i int) *event.Placement {
	start, gpus, nodeGPUs := int64(noon), uint32(8), uint32(4)
	return &event.Placement{
		Cluster: "alpha", Scheduler: "slurm", JobId: fmt.Sprint(i), State: event.State_RUNNING, StartMs: &start, Gpus: &gpus,
		Source: "test", ObservedAtMs: noon, Revision: uint64(i), Intent: &event.Intent{Mode: event.Intent_REQUIRED, Level: "domain"},
		Placements: []*event.NodePlacement{
			{Node: "n1", GpuIndex: []uint32{0, 1, 2, 3}, Gpus: &nodeGPUs, Pods: []string{"team/a", "team/b"}}, {Node: "n2"},
		},
	}
}

// emit sends placements [from, to) in calls of 20.
func (b *bench) emit(ctx context.Context, from, to int) error {
	for i := from; i < to; i += 20 {
		var records []event.Record
		for k := i; k < min(i+20, to); k++ {
			records = append(records, placement(k))
		}
		if err := b.producer.Emit(ctx, records...); err != nil {
			return err
		}
	}
	return nil
}

func TestEveryRecordBecomesOneRow(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	start(t, DefaultConfig(), b.deps())
	if err := b.emit(ctx, 0, 500); err != nil {
		t.Fatal(err)
	}
	level := []*event.Level{{Level: "block", Value: "rack01"}, {Level: "domain", Value: "rack01"}}
	clique := uint32(7)
	node := uint32(4)
	yes := true
	err := b.producer.Emit(ctx,
		&event.Membership{Cluster: "alpha", Node: "n1", Source: "nvml", Levels: level, ObservedAtMs: noon,
			Gpus: []*event.GpuFabric{{Index: 0, ClusterUuid: "u", CliqueId: &clique, State: "completed"}, {Index: 1}}},
		&event.Node{Cluster: "alpha", Node: "n1", Source: "slurm", GpusPresent: &node, Schedulable: &yes, ObservedAtMs: noon},
		&event.Source{Cluster: "alpha", Source: "slurm", ObservedAtMs: noon},
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
	var pods [][]string
	row := b.store.QueryRow(ctx, "SELECT toString(state), toString(intent_mode), nodes, node_gpus, node_gpu_index, node_pods FROM placement_events WHERE job_id = '7'")
	if err := row.Scan(&state, &mode, &nodes, &gpus, &index, &pods); err != nil {
		t.Fatal(err)
	}
	if state != "running" || mode != "required" || len(nodes) != 2 || *gpus[0] != 4 || gpus[1] != nil || len(index[0]) != 4 || len(index[1]) != 0 ||
		len(pods) != 2 || len(pods[0]) != 2 || len(pods[1]) != 0 {
		t.Errorf("got %s %s %v %v %v %v", state, mode, nodes, gpus, index, pods)
	}
}

// TestWhatOthersSendIsKept: records that no collector here sends, and columns that are lists.
func TestWhatOthersSendIsKept(t *testing.T) {
	b := newBench(t)
	start(t, DefaultConfig(), b.deps())
	if err := b.producer.Emit(t.Context(), records()[event.TopicDomain], records()[event.TopicWorkload], records()[event.TopicSource]); err != nil {
		t.Fatal(err)
	}
	for table, c := range map[string]struct{ columns, want string }{
		"domain_events":   {"cluster, domain, source, phase, level, level_value, nodes, owner, revision", "('alpha','d','computedomain','ready',['block','domain'],['rack01','rack01'],['n1','n2'],'ns/job',1)"},
		"workload_events": {"cluster, job_id, workload_key, step_seconds, samples_per_second, goodput", "('alpha','7','k',2.5,NULL,0.5)"},
		"source_events":   {"told_source, toUnixTimestamp64Milli(told_good[1]) - toUnixTimestamp64Milli(told_since[1])", "(['slurm.nodes'],1000)"},
	} {
		b.wait(t, table, 1)
		var got string
		if err := b.store.QueryRow(t.Context(), "SELECT toString(tuple("+c.columns+")) FROM "+table).Scan(&got); err != nil || got != c.want {
			t.Errorf("%s has %s, %v; want %s", table, got, err, c.want)
		}
	}
}

// TestUnknownIsStoredAsNull sends records that set only what they must: unknown is NULL, never zero.
func TestUnknownIsStoredAsNull(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	start(t, DefaultConfig(), b.deps())
	err := b.producer.Emit(ctx,
		&event.Placement{Cluster: "a", Scheduler: "s", JobId: "1", Source: "s", State: event.State_PENDING, ObservedAtMs: noon},
		&event.Membership{Cluster: "a", Node: "n", Source: "s", ObservedAtMs: noon, Gpus: []*event.GpuFabric{{}}},
		&event.Node{Cluster: "a", Node: "n", Source: "s", ObservedAtMs: noon},
		&event.Source{Cluster: "a", Source: "s", ObservedAtMs: noon},
		&event.Workload{Cluster: "a", JobId: "1", ObservedAtMs: noon},
	)
	if err != nil {
		t.Fatal(err)
	}
	for table, nulls := range map[string]string{
		"placement_events": `[restart, array_task, time_limit_ms, requested_gpus, requested_nodes, gpus, segment_nodes, max_switches,
			max_switch_wait_ms, toInt64(submit), toInt64(eligible), toInt64(start), toInt64(end), toInt64(end_earliest), toInt64(planned_start),
			priority, preemptible, toInt64(preemptible_from), toInt64(checkpoint), checkpoint_every_ms, restart_ms]`,
		"membership_events": "[toInt64(valid_from), gpu_clique_id[1], gpu_health_mask[1]]",
		"node_events":       "[toInt64(valid_from), gpus_present, gpus_healthy, gpus_allocatable, schedulable]",
		"source_events":     "[toInt64(good_at), interval_ms]",
		"workload_events":   "[step_seconds, samples_per_second, goodput]",
	} {
		b.wait(t, table, 1)
		var known uint64
		if err := b.store.QueryRow(ctx, "SELECT toUInt64(arrayCount(x -> x IS NOT NULL, "+nulls+")) FROM "+table).Scan(&known); err != nil || known != 0 {
			t.Errorf("%s has %d known values, %v; want none", table, known, err)
		}
	}
}

// TestColumnsAreThoseOfTheTables compares names both ways, so that neither a step nor a loader forgets the other.
func TestColumnsAreThoseOfTheTables(t *testing.T) {
	b := newBench(t)
	var loaded []string
	for _, table := range tables() {
		loaded = append(loaded, table.name)
		var want, got []string
		err := b.store.QueryRow(t.Context(), "SELECT arraySort(groupArray(name)) FROM system.columns WHERE database = currentDatabase() AND table = ?", table.name).Scan(&want)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, "kafka_partition", "loaded_at") // part of the query
		full := table.block()
		if err := full.append(0, encode(t, records()[table.topic])); err != nil {
			t.Fatal(err)
		}
		if traced, ok := full.(tracedBlock); ok { // a column that goes along only where there is something to tell
			traced.trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		}
		for _, c := range full.input() {
			got = append(got, c.Name)
		}
		if diff := cmp.Diff(want, got, cmp.Transformer("sort", sorted)); diff != "" {
			t.Errorf("%s (- table, + loader):\n%s", table.name, diff)
		}
		if table.topic == "" || table.block().rows() != 0 {
			t.Errorf("%s: no topic, or a new block is not empty", table.name)
		}
	}
	if diff := cmp.Diff(clickhouse.RawTables(), loaded, cmp.Transformer("sort", sorted)); diff != "" {
		t.Errorf("- raw tables, + loaded tables:\n%s", diff)
	}
}

// TestEveryTopicIsLoaded: what anyone sends to a topic of the contract is kept. Verdicts are in the store before they are
// sent out.
func TestEveryTopicIsLoaded(t *testing.T) {
	var loaded []string
	for _, table := range tables() {
		loaded = append(loaded, table.topic)
	}
	if diff := cmp.Diff(event.Topics(), append(loaded, event.TopicSpill), cmp.Transformer("sort", sorted)); diff != "" {
		t.Errorf("- topics, + loaded topics:\n%s", diff)
	}
}

// poison writes values as they are.
func (b *bench) poison(t testing.TB, topic string, values ...string) {
	t.Helper()
	transport := b.kafka.Transport()
	defer transport.CloseIdleConnections()
	w := &kafkago.Writer{
		Addr: kafkago.TCP(b.kafka.Brokers...), Topic: topic, RequiredAcks: kafkago.RequireAll, Transport: transport,
		BatchTimeout: time.Millisecond, Balancer: kafkago.Murmur2Balancer{},
	}
	for _, v := range values {
		if err := w.WriteMessages(context.Background(), kafkago.Message{Key: []byte("alpha/1"), Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAPoisonedRecordGoesToTheDeadLettersAndTheStreamGoesOn(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	stop := start(t, DefaultConfig(), b.deps())
	if err := b.producer.Emit(ctx, placement(1)); err != nil {
		t.Fatal(err)
	}
	b.poison(t, event.TopicPlacement, "not protobuf", "", "\x0a\x01x")
	broken := placement(2)
	broken.StartMs = nil // running without a start: refused before Kafka
	if err := b.producer.Emit(ctx, broken, placement(3)); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "placement_events", 2)
	b.wait(t, "dead_letters", 4)
	// A dead letter that is poison itself becomes one, and there is an end to it.
	b.poison(t, event.TopicDeadLetter, "\xff\xff")
	b.wait(t, "dead_letters", 5)
	stop()

	// Started again the poison at the end of a partition is read again, and known to be dead already.
	stop = start(t, DefaultConfig(), b.deps())
	if err := b.producer.Emit(ctx, placement(4)); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "placement_events", 3)
	stop()
	b.wait(t, "dead_letters", 5)

	var reason, value string
	var offset int64
	row := b.store.QueryRow(ctx, "SELECT reason, value, topic_offset FROM dead_letters WHERE value = 'not protobuf'")
	if err := row.Scan(&reason, &value, &offset); err != nil || !strings.Contains(reason, "decode spillway.placement.v1") {
		t.Errorf("the dead letter says %q of %q at %d, %v", reason, value, offset, err)
	}
}

func TestALetterWrittenTwiceIsStoredOnce(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	start(t, DefaultConfig(), b.deps())
	letter := func(offset int64, stage string) *event.DeadLetter {
		return &event.DeadLetter{Topic: "x", Partition: 3, Offset: offset, Stage: stage, Reason: "r", ObservedAtMs: noon}
	}
	// Twice in one call, and again in a later one; those of other stages have no offset to tell them apart.
	for range 2 {
		err := b.producer.Emit(ctx, letter(1, "load"), letter(1, "load"), letter(2, "load"), letter(-1, "collect"), letter(-1, "collect"))
		if err != nil {
			t.Fatal(err)
		}
		b.waitFor(t, "dead_letters", 4)
	}
	b.wait(t, "dead_letters", 6)
}

func TestStopsAtAnyInstantLoseAndDoubleNothing(t *testing.T) {
	b := newBench(t)
	const total = 3000
	sent := make(chan error, 1)
	go func() { sent <- b.emit(context.Background(), 0, total) }()
	random := rand.New(rand.NewPCG(1, 2))
	for round, goal := 0, uint64(0); goal < total; round++ {
		stop := start(t, config("one"), b.deps())
		if round%3 == 2 { // two share the partitions for a while: 1-2-1
			second := start(t, config("one"), b.deps())
			defer second()
		}
		goal += uint64(200 + random.IntN(400))
		b.waitFor(t, "placement_events", min(goal, total))
		stop()
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	b.wait(t, "placement_events", total)
	b.exact(t, total)
}

// TestLoadersKilledAtAnyInstant kills processes, which get no chance to tidy up.
func TestLoadersKilledAtAnyInstant(t *testing.T) {
	b := newBench(t)
	const total = 3000
	sent := make(chan error, 1)
	go func() { sent <- b.emit(context.Background(), 0, total) }()
	random := rand.New(rand.NewPCG(10, 11))
	for round, goal := 0, 0; goal < total; round++ {
		// A group of its own: Kafka keeps the partitions of a dead member for the length of its session.
		kill := startChild(t, child{Group: fmt.Sprint("round ", round), Brokers: b.kafka.Brokers, ClickHouse: accountOf(b.store.Owner)})
		goal = min(goal+200+random.IntN(600), total)
		b.waitFor(t, "placement_events", uint64(goal))
		kill()
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	b.wait(t, "placement_events", total)
	b.exact(t, total)
}

// TestTwoOwnersOfEveryPartition is the hardest case of a zombie: two groups, so that each of two loaders believes all
// the time to own every partition, and a third that comes and goes.
func TestTwoOwnersOfEveryPartition(t *testing.T) {
	b := newBench(t)
	const total = 3000
	sent := make(chan error, 1)
	go func() { sent <- b.emit(context.Background(), 0, total) }()
	start(t, config("one"), b.deps())
	start(t, config("two"), b.deps())
	for goal := uint64(300); goal < total; goal += 600 {
		stop := start(t, config("three"), b.deps())
		b.waitFor(t, "placement_events", goal)
		stop()
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	b.wait(t, "placement_events", total)
	b.exact(t, total)
}

func TestConnectionsCutAnywhereLoseAndDoubleNothing(t *testing.T) {
	b := newBench(t)
	random := rand.New(rand.NewPCG(3, 4))
	var mu sync.Mutex
	p := newProxy(t, b.store.Owner.Addresses[0], func() limits {
		mu.Lock()
		defer mu.Unlock()
		// Before the data is sent, within it, after it and before the answer, within the answer; some live longer, so
		// that there is progress.
		longer := 1 + 9*random.IntN(2)
		return limits{up: longer * (500 + random.IntN(40_000)), down: longer * (300 + random.IntN(6_000))}
	})
	deps := b.deps()
	deps.ClickHouse.Addresses = []string{p.address}
	reg := prometheus.NewRegistry()
	deps.Registry = reg
	cfg := config("one")
	cfg.RetryMax = 50 * time.Millisecond
	start(t, cfg, deps)
	total := 0
	for ; p.cuts.Load() < 60; total += 100 {
		if err := b.emit(t.Context(), total, total+100); err != nil {
			t.Fatal(err)
		}
		b.waitFor(t, "placement_events", uint64(total+50)) // the rest is on its way while more comes
	}
	b.wait(t, "placement_events", uint64(total))
	b.exact(t, uint64(total))
	t.Logf("%d rows, %d connections cut, %v rows sent that were stored already", total, p.cuts.Load(), metric(t, reg, "spillway_load_repeated_rows_total"))
}

// TestAnAnswerThatGetsLostDoublesNothing: the rows are stored, and the loader is told nothing but that its connection
// broke.
func TestAnAnswerThatGetsLostDoublesNothing(t *testing.T) {
	b := newBench(t)
	var p *proxy
	p = newProxy(t, b.store.Owner.Addresses[0], func() limits {
		l := limits{up: -1, down: -1}
		if p.cuts.Load() < 10 {
			l.mute = "INSERT INTO placement_events"
		}
		return l
	})
	deps := b.deps()
	deps.ClickHouse.Addresses = []string{p.address}
	reg := prometheus.NewRegistry()
	deps.Registry = reg
	start(t, config("one"), deps)
	const total = 400
	for i := 0; i < total; i += 40 {
		if err := b.emit(t.Context(), i, i+40); err != nil {
			t.Fatal(err)
		}
		b.wait(t, "placement_events", uint64(i+40))
	}
	b.exact(t, total)
	// A repetition is counted once it was answered.
	testenv.Eventually(t, 30*time.Second, func() error {
		if n := metric(t, reg, "spillway_load_repeated_rows_total"); n == 0 {
			return errors.New("no row was sent twice: the test proves nothing")
		}
		return nil
	})
}

// TestASenderThatFallsAsleepHoldsNobodyUp is a loader stopped in the middle of an insert, its connection alive: the
// server ends that insert, and a new owner goes on.
func TestASenderThatFallsAsleepHoldsNobodyUp(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	p := newProxy(t, b.store.Owner.Addresses[0], func() limits { return limits{up: -1, down: -1, freezeAt: "INSERT INTO placement_events"} })
	deps := b.deps()
	deps.ClickHouse.Addresses = []string{p.address}
	cfg := config("asleep")
	cfg.InsertTimeout = 2 * time.Second
	stop := start(t, cfg, deps)
	if err := b.producer.Emit(ctx, placement(0)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 30*time.Second, func() error {
		if p.frozen.Load() == 0 {
			return errors.New("no insert was begun")
		}
		return nil
	})
	begun := time.Now()
	cfg.Group = "awake" // a new owner in all but name: in the group of the old one it would have to wait for its session to end
	start(t, cfg, b.deps())
	b.wait(t, "placement_events", 1)
	t.Logf("the new owner stored the row %s after the old one fell asleep", time.Since(begun).Round(time.Millisecond))
	p.thaw()
	stop()
	b.exact(t, 1)
}

func TestClickHouseAwayForAWhile(t *testing.T) {
	b := newBench(t)
	p := newProxy(t, b.store.Owner.Addresses[0], func() limits { return limits{up: -1, down: -1} })
	p.refuse.Store(true)
	deps := b.deps()
	deps.ClickHouse.Addresses = []string{p.address}
	reg := prometheus.NewRegistry()
	deps.Registry = reg
	cfg := config("one")
	cfg.RetryMax = 100 * time.Millisecond
	start(t, cfg, deps)
	if err := b.emit(t.Context(), 0, 300); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 30*time.Second, func() error {
		if n := metric(t, reg, "spillway_load_errors_total"); n < 20 {
			return fmt.Errorf("%v errors were counted", n)
		}
		return nil
	})
	p.refuse.Store(false)
	b.wait(t, "placement_events", 300)
	b.exact(t, 300)
	testenv.Eventually(t, 10*time.Second, func() error {
		if n := metric(t, reg, "spillway_load_lag_records"); n != 0 {
			return fmt.Errorf("the lag is %v, want 0", n)
		}
		return nil
	})
}

// TestReadingGoesOnWhereTheTableEnds: what Kafka believes to be read does not matter.
func TestReadingGoesOnWhereTheTableEnds(t *testing.T) {
	b := newBench(t)
	stop := start(t, config("one"), b.deps())
	if err := b.emit(t.Context(), 0, 500); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "placement_events", 500)
	stop()
	reg := prometheus.NewRegistry()
	deps := b.deps()
	deps.Registry = reg
	start(t, config("a group that never committed"), deps)
	if err := b.emit(t.Context(), 500, 510); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "placement_events", 510)
	b.exact(t, 510)
	if n := metric(t, reg, "spillway_load_records_total"); n != 10 {
		t.Errorf("%v records were read again, want the 10 new ones", n)
	}
}

func TestATopicMadeAnewIsRefusedWithTheRemedy(t *testing.T) {
	b := newBench(t)
	err := b.store.Exec(t.Context(), `INSERT INTO node_events (kafka_partition, kafka_offset, loaded_at, cluster, node, source)
		SELECT number, 1000, now64(3), 'alpha', 'n', 's' FROM numbers(4)`)
	if err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	deps := b.deps()
	deps.Log = slog.New(slog.NewTextHandler(&log, nil))
	start(t, config("one"), deps)
	want := "table node_events has offset 1000 of spillway.node.v1/0, but the topic ends at 0: the topic was made anew: restore it; " +
		"or load into a new database; or, to keep what was derived from the old records, TRUNCATE TABLE node_events and"
	testenv.Eventually(t, 30*time.Second, func() error {
		if !strings.Contains(log.String(), want) {
			return fmt.Errorf("the log does not say %q:\n%s", want, log.String())
		}
		return nil
	})
	// The other topics are loaded meanwhile, and the remedy works.
	if err := b.emit(t.Context(), 0, 10); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "placement_events", 10)
	if err := b.store.Exec(t.Context(), "TRUNCATE TABLE node_events"); err != nil {
		t.Fatal(err)
	}
	if err := b.producer.Emit(t.Context(), &event.Node{Cluster: "alpha", Node: "n", Source: "s", ObservedAtMs: noon}); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "node_events", 1)
}

func TestPosition(t *testing.T) {
	for name, c := range map[string]struct {
		next, first, end, want int64
		gaps                   float64
	}{
		"an empty table begins with what Kafka still has":          {-1, 70, 90, 70, 0},
		"a table goes on after its last offset":                    {80, 70, 90, 80, 0},
		"a table that has everything waits for the next":           {90, 70, 90, 90, 0},
		"records deleted before they were stored are counted":      {50, 70, 90, 70, 20},
		"an empty topic and an empty table begin at the beginning": {-1, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			w := &worker{Loader: &Loader{deps: Deps{Log: quiet}, m: newMetrics(reg)}}
			if got, err := w.position(c.next, c.first, c.end); err != nil || got != c.want || metric(t, reg, "spillway_load_gap_records_total") != c.gaps {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
	w := &worker{Loader: &Loader{deps: Deps{Log: quiet}, m: newMetrics(nil)}}
	if _, err := w.position(91, 70, 90); !errors.Is(err, errMadeAnew) {
		t.Errorf("offsets beyond the end of the topic gave %v", err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	b := newBench(t)
	const total, size = 400, 100 << 10
	for i := range total {
		p := placement(i)
		p.Name = strings.Repeat("x", size)
		if err := b.producer.Emit(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	reg := prometheus.NewRegistry()
	deps := b.deps()
	deps.Registry = reg
	cfg := DefaultConfig()
	cfg.MaxBytes = 1 // each partition gets the least
	cfg.Linger = time.Minute
	start(t, cfg, deps)
	b.waitFor(t, "placement_events", total-4*3) // the last of each partition wait for the linger
	if n := metric(t, reg, "spillway_load_batches_total"); n < total/3-4 {
		t.Errorf("%v inserts for %d records of %d bytes: more than %d bytes were held", n, total, size, minBytes+size)
	}
}

func TestInsertsAreLinkedToTheTracesOfTheirRecords(t *testing.T) {
	b := newBench(t)
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	deps := b.deps()
	deps.Tracer = provider.Tracer("load")
	stop := start(t, DefaultConfig(), deps)
	producer := kafka.NewProducer(b.kafka, kafka.Deps{Log: quiet, Tracer: provider.Tracer("kafka")})
	defer producer.Close()
	if err := producer.Emit(t.Context(), placement(1)); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "placement_events", 1)
	stop()
	var stored string
	if err := b.store.QueryRow(t.Context(), "SELECT traceparent FROM placement_events").Scan(&stored); err != nil {
		t.Fatal(err)
	}
	traces := map[string]string{}
	var linked string
	for _, s := range spans.Ended() {
		traces[s.Name()] = s.SpanContext().SpanID().String()
		if s.Name() == "insert" && len(s.Links()) == 1 {
			linked = s.Links()[0].SpanContext.SpanID().String()
		}
	}
	if linked == "" || linked != traces["emit"] || !strings.Contains(stored, linked) {
		t.Errorf("the insert is linked to %q, the row says %q, the record was sent by %v", linked, stored, traces)
	}
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no group":             {func(c *Config) { c.Group = "" }, "load.group is empty"},
		"no rows":              {func(c *Config) { c.MaxRows = 0 }, "must be positive"},
		"retries that shrink":  {func(c *Config) { c.RetryMax = c.RetryMin / 2 }, "retry_max at least retry_min"},
		"a session of a blink": {func(c *Config) { c.SessionTimeout = time.Second }, "give it at least 3s"},
		"an insert of a blink": {func(c *Config) { c.InsertTimeout = time.Millisecond }, "give an insert at least 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			c.change(&cfg)
			if _, err := New(cfg, Deps{ClickHouse: chconn.Options{Addresses: []string{"x:1"}}}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want %q", err, c.want)
			}
		})
	}
	if _, err := New(DefaultConfig(), Deps{}); err == nil || !strings.Contains(err.Error(), "clickhouse.addresses") {
		t.Errorf("no address gave %v", err)
	}
}

// TestATrickleIsGathered: what comes after a rest goes at once, and only few rows a second make the next insert wait longer.
func TestATrickleIsGathered(t *testing.T) {
	cfg := DefaultConfig()
	for name, c := range map[string]struct {
		rows  int
		since time.Duration // the insert before
		want  time.Duration
	}{
		"one row after a rest":                     {1, time.Minute, cfg.Gather},
		"two rows in a second":                     {2, time.Second, cfg.Gather},
		"one row after the linger: seven a second": {1, cfg.Linger, cfg.Linger},
		"a burst after a rest":                     {40, time.Minute, cfg.Linger},
	} {
		w := &worker{Loader: &Loader{cfg: cfg}, inserted: time.Now().Add(-c.since)}
		w.settle(c.rows)
		if w.linger != c.want {
			t.Errorf("%s: waits for %s, want %s", name, w.linger, c.want)
		}
		if w.batch.any = true; w.patience(false) > c.want {
			t.Errorf("%s: is patient for %s, longer than %s", name, w.patience(false), c.want)
		}
	}
}

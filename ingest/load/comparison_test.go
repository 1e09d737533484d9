package load

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"
	kafkago "github.com/segmentio/kafka-go"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	metricsv1 "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	"golang.org/x/sync/errgroup"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/spillway-io/spillway/ingest/kafka"
	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

// The rows of the comparison; those of a way that takes long are the first of them.
const (
	comparedNodes  = 512
	comparedGPUs   = 4
	comparedRows   = 1_000 * comparedNodes * comparedGPUs // 2,048,000
	comparedSome   = 250 * comparedNodes * comparedGPUs
	comparedFew    = 50 * comparedNodes * comparedGPUs
	comparedFewest = 40 * comparedNodes * comparedGPUs
	wideMessage    = 128 // scrapes of a wide Native message
)

// way is one way for counters into ClickHouse.
type way struct {
	name string
	rows int
	run  func(c *comparison, w *way) measured
	unit string
	// against is the metric that has the loader's CPU over this way's.
	against string
	// apart gives ClickHouse a core for itself, and the client and the broker another, as a deployment has it: where all
	// share the cores, the CPU of the client and of the broker is taken from the server.
	apart bool
	// sorted gives the ceiling rows that are in the order of the table's key, as the loader sends them; else they are in
	// the order in which they came.
	sorted bool

	topic string
	seen  []measured
}

// measured is what one run took: CPU seconds of what is started for it, of ClickHouse and of the broker. Those of the
// ceiling and of the loader do not hold the start of the process.
type measured struct{ wall, client, server, broker float64 }

// comparison has the engines, and the same rows in the topics of all ways.
type comparison struct {
	*bench
	b       *testing.B
	server  int // process ids
	broker  int
	records string         // file of all records, for the ceiling
	sums    map[int]string // what is stored by number of rows
	peak    float64        // memory of a loader, MB

	structure string   // of the rows in Native and JSON
	names     []string // their columns
	otel      struct {
		binary string
		points uint64
		bits   uint64
	}
	round int
}

// BenchmarkComparison puts the same rows into ClickHouse in several ways, in turn, from a real Apache Kafka. Give it the
// rounds: -benchtime 5x. It needs Linux, Apache Kafka and, for the collector, modules that its own go.mod names.
func BenchmarkComparison(b *testing.B) {
	c := newComparison(b)
	ceiling := &way{name: "columns straight into the table (ceiling)", rows: comparedRows, run: (*comparison).ceiling}
	sorted := &way{name: "ceiling, rows in order", rows: comparedRows, run: (*comparison).ceiling, sorted: true, against: "of-sorted-ceiling-cpu"}
	ours := &way{name: "loader", rows: comparedRows, run: (*comparison).loader, topic: event.TopicCounters}
	ceilingApart := &way{name: "ceiling, ClickHouse with a core of its own", rows: comparedRows, run: (*comparison).ceiling, apart: true}
	oursApart := &way{name: "loader, ClickHouse with a core of its own", rows: comparedRows, run: (*comparison).loader, topic: event.TopicCounters, apart: true}
	engine := func(format string, wide bool, rows int, topic, against string) *way {
		name := "Kafka engine, " + format + ", a scrape a message"
		if wide {
			name = fmt.Sprintf("Kafka engine, %s, %d scrapes a message", format, wideMessage)
		}
		return &way{name: name, rows: rows, run: (*comparison).kafkaEngine, unit: format, topic: topic, against: against}
	}
	ways := []*way{
		ceiling, ours, sorted,
		engine("Native", false, comparedFew, "native", "of-native-cpu"),
		engine("Native", true, comparedRows, "native-wide", "of-wide-native-cpu"),
		engine("JSONEachRow", false, comparedFew, "json", "of-json-cpu"),
		engine("JSONEachRow", true, comparedSome, "json-wide", "of-wide-json-cpu"),
		{name: "OpenTelemetry collector", rows: comparedFewest, run: (*comparison).collector, topic: "otel", against: "of-otel-cpu"},
		ceilingApart, oursApart,
	}
	c.fill()
	c.warm(ours)
	fmt.Println() // what a benchmark logs is cut, so it is printed
	for i := 0; b.Loop(); i++ {
		for k := range ways {
			w := ways[(i+k+len(ways)-1)%len(ways)] // nobody is always first
			if w.topic == "otel" && c.otel.binary == "" {
				continue
			}
			if w.apart && !c.share(false) {
				continue
			}
			c.round++
			m := w.run(c, w)
			if w.apart {
				c.share(true)
			}
			w.seen = append(w.seen, m)
			fmt.Printf("%-50s %9.0f rows/s, CPU s/Mrow: client %.3f, clickhouse %.3f; broker %.3f\n", w.name, float64(w.rows)/m.wall,
				m.client*1e6/float64(w.rows), m.server*1e6/float64(w.rows), m.broker*1e6/float64(w.rows))
		}
	}
	for _, w := range ways {
		if len(w.seen) == 0 {
			continue
		}
		million := 1e6 / float64(w.rows)
		fmt.Printf("%-50s %s rows/s; core-s per million rows: client %s + clickhouse %s = %s; broker %s\n", w.name,
			spread(w.seen, func(m measured) float64 { return float64(w.rows) / m.wall }, "%.0f"),
			spread(w.seen, func(m measured) float64 { return m.client * million }, "%.2f"),
			spread(w.seen, func(m measured) float64 { return m.server * million }, "%.2f"),
			spread(w.seen, func(m measured) float64 { return (m.client + m.server) * million }, "%.2f"),
			spread(w.seen, func(m measured) float64 { return m.broker * million }, "%.2f"))
	}
	b.ReportMetric(ours.rate()/ceiling.rate(), "of-ceiling-rows/s")
	b.ReportMetric(ours.cpu()/ceiling.cpu(), "of-ceiling-cpu")
	if len(oursApart.seen) > 0 {
		b.ReportMetric(oursApart.rate()/ceilingApart.rate(), "of-ceiling-rows/s-apart")
	}
	b.ReportMetric(ours.rate()/sorted.rate(), "of-sorted-ceiling-rows/s")
	for _, w := range ways {
		if w.against != "" && len(w.seen) > 0 {
			b.ReportMetric(ours.cpu()/w.cpu(), w.against)
		}
	}
	b.ReportMetric(c.peak, "loader-peak-MB")
	b.ReportMetric(0, "ns/op")
}

func (w *way) rate() float64 {
	return median(w.seen, func(m measured) float64 { return float64(w.rows) / m.wall })
}

// cpu is core-seconds a row, client and server.
func (w *way) cpu() float64 {
	return median(w.seen, func(m measured) float64 { return (m.client + m.server) / float64(w.rows) })
}

func sortedBy(seen []measured, of func(measured) float64) (out []float64) {
	for _, m := range seen {
		out = append(out, of(m))
	}
	slices.Sort(out)
	return out
}

func median(seen []measured, of func(measured) float64) float64 {
	values := sortedBy(seen, of)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

func spread(seen []measured, of func(measured) float64, format string) string {
	values := sortedBy(seen, of)
	return fmt.Sprintf(format+" ["+format+"-"+format+"]", median(seen, of), values[0], values[len(values)-1])
}

func newComparison(b *testing.B) *comparison {
	k := testenv.StartApacheKafkaToMeasure(b)
	c := &comparison{b: b, bench: &bench{kafka: k.Kafka, store: testenv.ClickHouse(b)}, sums: map[int]string{}}
	if err := clickhouse.Migrate(b.Context(), c.store.Conn, clickhouse.Options{Database: c.store.Database}); err != nil {
		b.Fatal(err)
	}
	if err := kafka.EnsureTopics(b.Context(), c.kafka, twoPartitions); err != nil {
		b.Fatal(err)
	}
	transport := c.kafka.Transport()
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(c.kafka.Brokers...), Transport: transport, Timeout: 10 * time.Second}
	q := &kafkago.CreateTopicsRequest{}
	for _, topic := range []string{"native", "native-wide", "json", "json-wide", "otel"} {
		q.Topics = append(q.Topics, kafkago.TopicConfig{Topic: topic, NumPartitions: 2, ReplicationFactor: 1})
	}
	if _, err := client.CreateTopics(b.Context(), q); err != nil {
		b.Fatal(err)
	}
	servers, brokers := testenv.ChildrenOf("__clickhouse-child"), testenv.ChildrenOf("kafka.Kafka")
	if len(servers) != 1 || len(brokers) != 1 {
		b.Skipf("CPU times are read from Linux's /proc, which shows %d servers and %d brokers", len(servers), len(brokers))
	}
	c.server, c.broker = servers[0], brokers[0]
	c.otel.binary = filepath.Join(b.TempDir(), "collector")
	build := exec.Command("go", "build", "-o", c.otel.binary, ".")
	build.Dir = "comparison"
	if out, err := build.CombinedOutput(); err != nil {
		b.Logf("without the collector, which cannot be built: %v: %s", err, out)
		c.otel.binary = ""
	}
	return c
}

// fill writes all rows to the topics of all ways, and to a file.
func (c *comparison) fill() {
	c.records = filepath.Join(c.b.TempDir(), "records")
	file, err := os.Create(c.records)
	if err != nil {
		c.b.Fatal(err)
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	transport := c.kafka.Transport()
	defer transport.CloseIdleConnections()
	// Nodes go to the partitions in turn, so that the ways from Kafka have two equal halves to work on, as the ceiling has.
	turn := map[string]int{}
	inTurn := kafkago.BalancerFunc(func(m kafkago.Message, partitions ...int) int {
		if _, ok := turn[string(m.Key)]; !ok {
			turn[string(m.Key)] = len(turn)
		}
		return partitions[turn[string(m.Key)]%len(partitions)]
	})
	writer := &kafkago.Writer{Addr: kafkago.TCP(c.kafka.Brokers...), Transport: transport, RequiredAcks: kafkago.RequireAll,
		BatchSize: 2000, BatchBytes: 1_000_000, BatchTimeout: 2 * time.Millisecond, Compression: kafkago.Lz4, Balancer: inTurn}
	defer writer.Close()
	f := newFleet(comparedNodes, comparedGPUs)
	one, wide := newCountersBlock().(*countersBlock), newCountersBlock().(*countersBlock)
	for i, rows := 0, 0; rows < comparedRows; i++ {
		var messages []kafkago.Message
		for n := range f.nodes {
			record := ten(f.scrape(n, i, countersBegin))
			key, value, err := event.Encode(record)
			if err != nil {
				c.b.Fatal(err)
			}
			message := func(topic string, value []byte) {
				messages = append(messages, kafkago.Message{Topic: topic, Key: key, Value: value})
			}
			out.Write(binary.AppendUvarint(nil, uint64(len(value))))
			out.Write(value)
			message(event.TopicCounters, value)
			for _, b := range []*countersBlock{one, wide} {
				if err := b.append(0, value); err != nil {
					c.b.Fatal(err)
				}
			}
			if rows < comparedFew {
				message("native", c.nativeBlock(one))
				message("json", jsonRows(one))
			}
			if rows < comparedFewest {
				message("otel", c.otelMessage(record))
			}
			one.reset()
			if n%wideMessage == wideMessage-1 {
				message("native-wide", c.nativeBlock(wide))
				if rows < comparedSome {
					message("json-wide", jsonRows(wide))
				}
				wide.reset()
			}
			rows += comparedGPUs
		}
		if err := writer.WriteMessages(c.b.Context(), messages...); err != nil {
			c.b.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		c.b.Fatal(err)
	}
	// What every way has to store. The file's records are numbered as they come.
	c.ceiling(&way{rows: comparedRows})
	c.sums[comparedRows] = c.sum("1")
	for _, rows := range []int{comparedSome, comparedFew} {
		c.sums[rows] = c.sum(fmt.Sprint("kafka_offset < ", rows/comparedGPUs))
	}
}

// warm reads the topic of the loader, and runs one, until the JVM has compiled what serves them, as it has in any broker
// that is not new: before that, the broker takes several times the CPU, from the same cores.
func (c *comparison) warm(loader *way) {
	const reads, loads = 20, 12
	partitions, err := kafka.Partitions(c.b.Context(), c.kafka, event.TopicCounters)
	if err != nil {
		c.b.Fatal(err)
	}
	for range reads {
		for _, p := range partitions {
			records, err := p.Open(c.b.Context())
			if err != nil {
				c.b.Fatal(err)
			}
			for more := true; more; {
				if _, more, err = records.Next(10 * time.Millisecond); err != nil {
					c.b.Fatal(err)
				}
			}
			records.Close()
		}
	}
	for range loads {
		c.round++
		c.loader(loader)
	}
}

// nativeBlock is the rows of a block as ClickHouse's format Native has them.
func (c *comparison) nativeBlock(b *countersBlock) []byte {
	in := b.input()[1:] // without the offset
	if c.structure == "" {
		var columns []string
		for _, column := range in {
			columns = append(columns, column.Name+" "+string(column.Data.Type()))
			c.names = append(c.names, column.Name)
		}
		c.structure = strings.Join(columns, ", ")
	}
	var out proto.Buffer
	if err := (proto.Block{Columns: len(in), Rows: b.rows()}).EncodeRawBlock(&out, 0, in); err != nil {
		c.b.Fatal(err)
	}
	return slices.Clone(out.Buf)
}

// jsonRows is the same as JSONEachRow.
func jsonRows(b *countersBlock) (out []byte) {
	const layout = "2006-01-02 15:04:05.000"
	for i := range b.rows() {
		out = fmt.Appendf(out, `{"observed_at":%q,"since":%q,"entity":%d,"gpu":%d,`, b.observed.Row(i).UTC().Format(layout),
			b.since.times.Row(i).UTC().Format(layout), b.entity[i], b.gpu[i])
		for k := range b.texts {
			if text := textOf(&b.texts[k], i); text != "" {
				out = fmt.Appendf(out, "%q:%q,", textNames[k], text)
			}
		}
		for k, n := range b.numbers {
			switch {
			case n.known == 0:
			case len(n.ints) > 0:
				out = fmt.Appendf(out, "%q:%d,", countersColumns[k].name, n.ints[i])
			default:
				out = fmt.Appendf(out, "%q:%s,", countersColumns[k].name, strconv.FormatFloat(float64(n.floats[i]), 'g', -1, 32))
			}
		}
		out = append(out[:len(out)-1], "}\n"...)
	}
	return out
}

// otelMessage is a record as OpenTelemetry has it: a point for each number.
func (c *comparison) otelMessage(r *event.Counters) []byte {
	text := func(key, value string) *commonv1.KeyValue {
		return &commonv1.KeyValue{Key: key, Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: value}}}
	}
	var metrics []*metricsv1.Metric
	for _, m := range []struct {
		name    string
		counter bool
		values  []float64
	}{
		{"nvlink_tx_bytes", true, r.NvlinkTxBytes}, {"nvlink_rx_bytes", true, r.NvlinkRxBytes}, {"nvlink_errors", true, r.NvlinkErrors},
		{"nvlink_recoveries", true, r.NvlinkRecoveries}, {"nvlink_symbol_errors", true, r.NvlinkSymbolErrors},
		{"nvlink_tx_bytes_per_second", false, r.NvlinkTxBytesPerSecond}, {"nvlink_rx_bytes_per_second", false, r.NvlinkRxBytesPerSecond},
		{"sm_active", false, r.SmActive}, {"tensor_active", false, r.TensorActive}, {"pcie_rx_bytes_per_second", false, r.PcieRxBytesPerSecond},
	} {
		var points []*metricsv1.NumberDataPoint
		for i, v := range m.values {
			points = append(points, &metricsv1.NumberDataPoint{
				Attributes:   []*commonv1.KeyValue{text("gpu", strconv.Itoa(int(r.GpuIndex[i]))), text("uuid", r.GpuUuid[i]), text("model", r.GpuModel[i])},
				TimeUnixNano: uint64(r.ObservedAtMs) * 1e6, StartTimeUnixNano: uint64(r.GpuSinceMs[i]) * 1e6,
				Value: &metricsv1.NumberDataPoint_AsDouble{AsDouble: v},
			})
			c.otel.points++
			c.otel.bits += math.Float64bits(v)
		}
		metric := &metricsv1.Metric{Name: m.name}
		if m.counter {
			metric.Data = &metricsv1.Metric_Sum{Sum: &metricsv1.Sum{DataPoints: points, IsMonotonic: true,
				AggregationTemporality: metricsv1.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}}
		} else {
			metric.Data = &metricsv1.Metric_Gauge{Gauge: &metricsv1.Gauge{DataPoints: points}}
		}
		metrics = append(metrics, metric)
	}
	out, err := protobuf.Marshal(&metricsv1.MetricsData{ResourceMetrics: []*metricsv1.ResourceMetrics{{
		Resource: &resourcev1.Resource{Attributes: []*commonv1.KeyValue{text("cluster", r.Cluster), text("node", r.Node),
			text("source", r.Source), text("driver_version", r.DriverVersion)}},
		ScopeMetrics: []*metricsv1.ScopeMetrics{{Metrics: metrics}},
	}}})
	if err != nil {
		c.b.Fatal(err)
	}
	return out
}

// sum tells how many rows of counters there are and what is in them, whatever their order and where they came from.
func (c *comparison) sum(where string) string {
	expressions := []string{"entity", "gpu", "part", "state", "missing", "reset", "observed_at", "isNull(since), ifNull(since, observed_at)"}
	expressions = append(expressions, textNames[:]...)
	for _, column := range countersColumns {
		expressions = append(expressions, fmt.Sprintf("isNull(%[1]s), ifNull(%[1]s, 0)", column.name))
	}
	var rows, hash uint64
	c.scan(fmt.Sprintf("SELECT count(), sum(cityHash64(%s)) FROM counters WHERE %s", strings.Join(expressions, ", "), where), &rows, &hash)
	return fmt.Sprintf("%d rows of content %x", rows, hash)
}

func (c *comparison) scan(query string, into ...any) {
	c.b.Helper()
	if err := c.store.QueryRow(context.Background(), query).Scan(into...); err != nil {
		c.b.Fatal(err)
	}
}

func (c *comparison) exec(query string) {
	c.b.Helper()
	if err := c.store.Exec(context.Background(), query); err != nil {
		c.b.Fatal(err)
	}
}

// until polls, seldom enough to cost nothing, until a count is reached. Wall time is from the first rows on, unless those
// are most of all: to start and to join a group is no part of the rate.
func (c *comparison) until(want uint64, count func() uint64) (rate float64) {
	c.b.Helper()
	started, begun, first := time.Now(), time.Now(), uint64(0)
	for {
		n := count()
		if first == 0 && n > 0 {
			if n < want/2 {
				begun, first = time.Now(), n
			} else {
				begun, first = started, 1
			}
		}
		if n >= want {
			if first == 1 {
				first = 0
			}
			return float64(want-first) / time.Since(begun).Seconds()
		}
		if time.Since(started) > 5*time.Minute {
			c.b.Fatalf("%d of %d came", n, want)
		}
		pause(context.Background(), 250*time.Millisecond)
	}
}

// during measures what run takes: it gives the client's process, whose CPU time counts from its start, or 0.
func (c *comparison) during(rows int, run func() (rate, client float64)) (m measured) {
	c.settle()
	server, broker := cpuSeconds(c.b, c.server), cpuSeconds(c.b, c.broker)
	rate, client := run()
	c.settle() // merges are part of what a way costs
	return measured{wall: float64(rows) / rate, client: client, server: cpuSeconds(c.b, c.server) - server, broker: cpuSeconds(c.b, c.broker) - broker}
}

// settle waits until ClickHouse merges nothing.
func (c *comparison) settle() {
	for quietFor := 0; quietFor < 5; pause(context.Background(), 100*time.Millisecond) {
		var merges uint64
		c.scan("SELECT count() FROM system.merges", &merges)
		if quietFor++; merges > 0 {
			quietFor = 0
		}
	}
}

func (c *comparison) rowsStored() (n uint64) {
	c.scan("SELECT count() FROM counters", &n)
	return n
}

// check compares what is stored with what has to be.
func (c *comparison) check(w *way) {
	c.b.Helper()
	if want := c.sums[w.rows]; want != "" {
		if got := c.sum("1"); got != want {
			c.b.Fatalf("%s: got %s, want %s", w.name, got, want)
		}
	}
}

func (c *comparison) loader(w *way) measured {
	c.exec("TRUNCATE TABLE counters")
	m := c.during(w.rows, func() (float64, float64) {
		progress := filepath.Join(c.b.TempDir(), fmt.Sprint("progress-", c.round))
		pid, kill := startChildProcess(c.b, child{Group: fmt.Sprint("compared-", c.round), Brokers: c.kafka.Brokers, ClickHouse: accountOf(c.store.Owner),
			Default: true, Progress: progress})
		defer kill()
		var begun time.Time // when it read the first records
		var before float64  // its CPU until then
		testenv.Eventually(c.b, 5*time.Minute, func() error {
			text, err := os.ReadFile(progress)
			if err != nil {
				return err
			}
			if begun.IsZero() {
				begun, before = time.Now(), cpuSeconds(c.b, pid)
			}
			if stored, _ := strconv.ParseFloat(string(text), 64); stored < float64(w.rows) {
				return fmt.Errorf("%s rows of %d are stored", text, w.rows)
			}
			return nil
		})
		rate := float64(w.rows) / time.Since(begun).Seconds()
		c.peak = max(c.peak, peakMemory(c.b, pid))
		return rate, cpuSeconds(c.b, pid) - before
	})
	c.check(w)
	return m
}

// share lets ClickHouse, the broker and the clients run on all cores, or keeps ClickHouse on one and the others on
// another; false where that cannot be done.
func (c *comparison) share(all bool) bool {
	server, others := fmt.Sprint(runtime.NumCPU()-1), "0"
	if all {
		server = "0-" + server
		others = server
	}
	for _, pin := range []struct {
		pid   int
		cores string
	}{{c.server, server}, {c.broker, others}, {os.Getpid(), others}} {
		if exec.Command("taskset", "-acp", pin.cores, strconv.Itoa(pin.pid)).Run() != nil {
			return false
		}
	}
	return runtime.NumCPU() > 1
}

// peakMemory is the most a process had in memory, in MB.
func peakMemory(t testing.TB, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kb / 1024
}

func (c *comparison) kafkaEngine(w *way) measured {
	c.exec("TRUNCATE TABLE counters")
	messages := DefaultConfig().MaxRows / comparedGPUs
	if strings.HasSuffix(w.topic, "-wide") {
		messages /= wideMessage
	}
	m := c.during(w.rows, func() (float64, float64) {
		c.exec(fmt.Sprintf(`CREATE TABLE queue (%s) ENGINE = Kafka SETTINGS kafka_broker_list = '%s', kafka_topic_list = '%s', kafka_group_name = 'compared-%d',
			kafka_format = '%s', kafka_num_consumers = 2, kafka_thread_per_consumer = 1, kafka_poll_max_batch_size = %d, kafka_max_block_size = %d, kafka_flush_interval_ms = 2000`,
			c.structure, c.kafka.Brokers[0], w.topic, c.round, w.unit, messages, DefaultConfig().MaxRows))
		c.exec(fmt.Sprintf(`CREATE MATERIALIZED VIEW queue_view TO counters AS SELECT toInt32(_partition) AS kafka_partition, toInt64(_offset) AS kafka_offset,
			now64(3, 'UTC') AS loaded_at, %s FROM queue`, strings.Join(c.names, ", ")))
		rate := c.until(uint64(w.rows), c.rowsStored)
		c.exec("DROP TABLE queue_view SYNC")
		c.exec("DROP TABLE queue SYNC")
		return rate, 0
	})
	c.check(w)
	return m
}

func (c *comparison) collector(w *way) measured {
	for _, table := range []string{"otel_metrics_gauge", "otel_metrics_sum"} {
		c.exec("DROP TABLE IF EXISTS " + table + " SYNC")
	}
	config := filepath.Join(c.b.TempDir(), "collector.yaml")
	o := c.store.Owner
	text := fmt.Sprintf(`receivers:
  kafka:
    brokers: ["%s"]
    group_id: compared-%d
    initial_offset: earliest
    metrics: {topics: [%s], encoding: otlp_proto}
exporters:
  clickhouse:
    endpoint: tcp://%s
    database: %s
    username: %q
    password: %q
    compress: none
    timeout: 60s # after 5 s, the default, it sends the same points again
    async_insert: false
    sending_queue: {num_consumers: 2, block_on_overflow: true, sizer: items, queue_size: 400000, batch: {flush_timeout: 1s, min_size: 100000, max_size: 100000}}
service:
  telemetry: {metrics: {level: none}, logs: {level: error}}
  pipelines:
    metrics: {receivers: [kafka], exporters: [clickhouse]}
`, c.kafka.Brokers[0], c.round, w.topic, o.Addresses[0], o.Database, o.User, o.Password)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		c.b.Fatal(err)
	}
	m := c.during(w.rows, func() (float64, float64) {
		cmd := exec.Command(c.otel.binary, "--config=file:"+config)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			c.b.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		defer func() {
			cmd.Process.Kill()
			<-ended
		}()
		rate := c.until(c.otel.points, func() (n uint64) {
			if len(ended) > 0 {
				c.b.Fatal("the collector ended")
			}
			c.scan("SELECT ifNull(sum(total_rows), 0) FROM system.tables WHERE database = currentDatabase() AND name IN ('otel_metrics_gauge', 'otel_metrics_sum')", &n)
			return n
		})
		return rate / float64(c.otel.points) * float64(w.rows), cpuSeconds(c.b, cmd.Process.Pid)
	})
	var points, bits uint64
	c.scan(`SELECT count(), sum(reinterpretAsUInt64(Value)) FROM (SELECT Value FROM otel_metrics_gauge UNION ALL SELECT Value FROM otel_metrics_sum)`, &points, &bits)
	if points != c.otel.points || bits != c.otel.bits {
		fmt.Printf("the collector stored %d points of content %x, and was sent %d of %x\n", points, bits, c.otel.points, c.otel.bits)
	}
	return m
}

// ceiling inserts the columns of the same rows, ready in memory, over as many connections as there are partitions.
func (c *comparison) ceiling(w *way) measured {
	c.exec("TRUNCATE TABLE counters")
	self, err := os.Executable()
	if err != nil {
		c.b.Fatal(err)
	}
	setting, err := json.Marshal(child{ClickHouse: accountOf(c.store.Owner), Ceiling: c.records, Sorted: w.sorted})
	if err != nil {
		c.b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+string(setting))
	cmd.Stderr = os.Stderr
	to, err := cmd.StdinPipe()
	if err != nil {
		c.b.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		c.b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.b.Fatal(err)
	}
	defer func() {
		to.Close()
		if err := cmd.Wait(); err != nil {
			c.b.Fatal(err)
		}
	}()
	lines := bufio.NewReader(from)
	if _, err := lines.ReadString('\n'); err != nil { // the columns are ready
		c.b.Fatal(err)
	}
	m := c.during(w.rows, func() (float64, float64) {
		before, begun := cpuSeconds(c.b, cmd.Process.Pid), time.Now()
		fmt.Fprintln(to)
		if _, err := lines.ReadString('\n'); err != nil {
			c.b.Fatal(err)
		}
		return float64(w.rows) / time.Since(begun).Seconds(), cpuSeconds(c.b, cmd.Process.Pid) - before
	})
	c.check(w)
	return m
}

// asTheyCame is the columns of a block in the order in which its rows came.
func asTheyCame(b *countersBlock, in proto.Input) proto.Input {
	for i, column := range in {
		switch sent := column.Data.(type) {
		case *proto.ColInt8:
			in[i].Data = asTheyCameTo[proto.ColInt8](b, *sent)
		case *proto.ColInt64:
			in[i].Data = asTheyCameTo[proto.ColInt64](b, *sent)
		case *proto.ColUInt16:
			in[i].Data = asTheyCameTo[proto.ColUInt16](b, *sent)
		case *proto.ColUInt64:
			in[i].Data = asTheyCameTo[proto.ColUInt64](b, *sent)
		case *proto.ColFloat32:
			in[i].Data = asTheyCameTo[proto.ColFloat32](b, *sent)
		case *proto.ColDateTime64:
			came := *sent
			came.Data = *asTheyCameTo[[]proto.DateTime64](b, sent.Data)
			in[i].Data = &came
		case *dictionary:
			came := *sent
			came.Keys16 = *asTheyCameTo[[]uint16](b, sent.Keys16)
			in[i].Data = &came
		default:
			panic(fmt.Sprintf("column %s is a %T", column.Name, sent))
		}
	}
	return in
}

func asTheyCameTo[S ~[]T, T any](b *countersBlock, sent S) *S {
	came := make(S, len(sent))
	for i, from := range b.order.from {
		came[from] = sent[i]
	}
	return &came
}

// runCeiling is the other side of ceiling.
func runCeiling(o chconn.Options, path string, sorted bool) error {
	const connections = 2 // as the topic has partitions
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReader(file)
	var inserts [connections][]proto.Input
	var blocks [connections]block
	finish := func(k int) {
		b := blocks[k].(*countersBlock)
		rows := b.input()
		if !sorted {
			rows = asTheyCame(b, rows)
		}
		var partition proto.ColInt32
		loaded := millis()
		now := proto.ToDateTime64(time.Now(), proto.PrecisionMilli)
		for range b.rows() {
			partition.Append(int32(k))
			loaded.AppendRaw(now)
		}
		for i, column := range rows { // types are the table's own, so that the server has nothing to convert
			none := make(proto.ColUInt8, b.rows())
			switch data := column.Data.(type) {
			case *proto.ColUInt64:
				rows[i].Data = &proto.ColNullable[uint64]{Nulls: none, Values: data}
			case *proto.ColFloat32:
				rows[i].Data = &proto.ColNullable[float32]{Nulls: none, Values: data}
			case *proto.ColDateTime64:
				if column.Name == "since" {
					rows[i].Data = &proto.ColNullable[time.Time]{Nulls: none, Values: data}
				}
			}
		}
		inserts[k] = append(inserts[k], append(rows, proto.InputColumn{Name: "kafka_partition", Data: &partition}, proto.InputColumn{Name: "loaded_at", Data: loaded}))
		blocks[k] = nil
	}
	for i := 0; ; i++ {
		size, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			break
		}
		value := make([]byte, size)
		if _, err2 := io.ReadFull(in, value); err != nil || err2 != nil {
			return fmt.Errorf("read %s: %w %w", path, err, err2)
		}
		k := i % connections
		if blocks[k] == nil {
			blocks[k] = newCountersBlock()
		}
		if err := blocks[k].append(int64(i), value); err != nil {
			return err
		}
		if blocks[k].rows() >= DefaultConfig().MaxRows {
			finish(k)
		}
	}
	for k, b := range blocks {
		if b != nil && b.rows() > 0 {
			finish(k)
		}
	}
	runtime.GC()
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	s := newStore(o, time.Minute)
	defer s.close()
	var group errgroup.Group
	for k, all := range inserts {
		group.Go(func() error {
			for _, rows := range all {
				q := ch.Query{Body: rows.Into("counters"), Input: rows, Settings: append(s.settings[:len(s.settings):len(s.settings)], ch.Setting{Key: "deduplicate_insert", Value: "disable"})}
				if err := s.do(context.Background(), stream{table: countersTable(), partition: int32(k)}, q); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = group.Wait()
	fmt.Println("stored")
	return err
}

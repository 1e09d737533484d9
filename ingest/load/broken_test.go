package load

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

// storedBatch is where a record batch lies in the broker's file, and the offsets it holds.
type storedBatch struct{ at, end, from, to int64 }

// batches walks through the file of a partition.
func batches(t testing.TB, file string) (out []storedBatch) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < int64(len(raw)); {
		b := storedBatch{at: at, end: at + 12 + int64(binary.BigEndian.Uint32(raw[at+8:])), from: int64(binary.BigEndian.Uint64(raw[at:]))}
		b.to = b.from + int64(binary.BigEndian.Uint32(raw[at+23:])) + 1
		out = append(out, b)
		at = b.end
	}
	return out
}

// deleteRecords gives up all records of a partition before an offset, as Kafka's own tool does.
func deleteRecords(t testing.TB, k engine.Kafka, topic string, partition int32, before int64) {
	t.Helper()
	conn, err := net.Dial("tcp", k.Brokers[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	q := kmsg.NewPtrDeleteRecordsRequest()
	q.TimeoutMillis = 10_000
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = partition, before
	of := kmsg.NewDeleteRecordsRequestTopic()
	of.Topic, of.Partitions = topic, []kmsg.DeleteRecordsRequestTopicPartition{p}
	q.Topics = []kmsg.DeleteRecordsRequestTopic{of}
	if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, q, 1)); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 8)
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head)-4)
	if _, err := io.ReadFull(conn, body); err != nil {
		t.Fatal(err)
	}
	answer := kmsg.NewPtrDeleteRecordsResponse()
	if err := answer.ReadFrom(body); err != nil || answer.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("the broker did not delete: %v, %+v", err, answer)
	}
}

// TestABrokenBatchStopsItsPartitionOnly lets a bit fall over on the broker's disk. What is before it is stored, the other
// partitions go on, the log says where it is, and the way out that it names leads out.
func TestABrokenBatchStopsItsPartitionOnly(t *testing.T) {
	cfg := engine.DefaultConfig()
	cfg.DataDir = t.TempDir()
	b := newBenchOn(t, testenv.KafkaAt(t, cfg).Kafka)
	const jobs = 30
	for i := 0; i < jobs; i += 10 { // a call makes one batch in each partition
		if err := b.emit(t.Context(), i, i+10); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(cfg.DataDir, "kafka", "partitions", event.TopicPlacement+"-0", "*.dat"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the partition has the files %v: %v", files, err)
	}
	list := batches(t, files[0])
	if len(list) < 3 {
		t.Fatalf("the partition has the batches %v, want three", list)
	}
	broken, end := list[1], list[len(list)-1].to
	file, err := os.OpenFile(files[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	last := make([]byte, 1)
	if _, err := file.ReadAt(last, broken.end-1); err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte{last[0] ^ 1}, broken.end-1); err != nil {
		t.Fatal(err)
	}

	var log lockedBuffer
	deps := b.deps()
	reg := prometheus.NewRegistry()
	deps.Log, deps.Registry = slog.New(slog.NewTextHandler(&log, nil)), reg
	start(t, config("one"), deps)
	b.wait(t, "placement_events", uint64(jobs-(end-broken.from)))
	for _, want := range []string{
		"level=ERROR", "topic=" + event.TopicPlacement + " partition=0",
		fmt.Sprintf("read %s/0 from offset %d: the record batch is broken: its checksum does not fit; its offsets end before %d", event.TopicPlacement, broken.from, broken.to),
		fmt.Sprintf("kafka-delete-records.sh: topic %s, partition 0, offset %d; ", event.TopicPlacement, broken.to),
	} {
		testenv.Eventually(t, time.Minute, func() error {
			if !strings.Contains(log.String(), want) {
				return fmt.Errorf("the log does not say %q:\n%s", want, log.String())
			}
			return nil
		})
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := false
	for _, f := range families {
		for _, m := range f.GetMetric() {
			counted = counted || f.GetName() == "spillway_load_errors_total" && strings.Contains(m.String(), "broken_batch")
		}
	}
	if !counted {
		t.Error("no error is counted as a broken batch")
	}
	if err := b.producer.Emit(t.Context(), &event.Node{Cluster: "alpha", Node: "n", Source: "s", ObservedAtMs: noon}); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "node_events", 1)

	deleteRecords(t, b.kafka, event.TopicPlacement, 0, broken.to)
	b.wait(t, "placement_events", uint64(jobs-(broken.to-broken.from)))
	testenv.Eventually(t, time.Minute, func() error {
		if gaps := metric(t, reg, "spillway_load_gap_records_total"); gaps != float64(broken.to-broken.from) {
			return fmt.Errorf("%v records are counted as gone, want %d", gaps, broken.to-broken.from)
		}
		return nil
	})
}

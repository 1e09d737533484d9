package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// createTopic makes a topic with the given number of partitions.
func createTopic(t *testing.T, k Kafka, topic string, partitions int) {
	t.Helper()
	conn, err := k.Dialer().DialContext(t.Context(), "tcp", k.Brokers[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.CreateTopics(kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
}

// writer is a producer as the pipeline uses one: nothing counts as sent before every replica has it.
func writer(t *testing.T, k Kafka, topic string) *kafka.Writer {
	t.Helper()
	transport := k.Transport()
	w := &kafka.Writer{Addr: kafka.TCP(k.Brokers...), Topic: topic, RequiredAcks: kafka.RequireAll, Balancer: &kafka.Hash{},
		Transport: transport, BatchTimeout: 5 * time.Millisecond, MaxAttempts: 3}
	t.Cleanup(func() {
		w.Close()
		transport.CloseIdleConnections()
	})
	return w
}

func produce(t *testing.T, k Kafka, topic string, values ...string) {
	t.Helper()
	w := writer(t, k, topic)
	defer w.Close()
	for _, v := range values {
		if err := w.WriteMessages(t.Context(), kafka.Message{Key: []byte(v), Value: []byte(v)}); err != nil {
			t.Fatalf("produce %s: %v", v, err)
		}
	}
}

// consumeAll reads every record of every partition without a group.
func consumeAll(t *testing.T, k Kafka, topic string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := k.Dialer().DialContext(ctx, "tcp", k.Brokers[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	partitions, err := conn.ReadPartitions(topic)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, p := range partitions {
		leader, err := k.Dialer().DialLeader(ctx, "tcp", k.Brokers[0], topic, p.ID)
		if err != nil {
			t.Fatal(err)
		}
		first, last, err := leader.ReadOffsets()
		leader.Close()
		if err != nil {
			t.Fatal(err)
		}
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: k.Brokers, Topic: topic, Partition: p.ID, Dialer: k.Dialer(), MaxWait: 50 * time.Millisecond})
		r.SetOffset(first)
		for at := first; at < last; at++ {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				t.Fatalf("read partition %d offset %d of %d: %v", p.ID, at, last, err)
			}
			if m.Offset != at {
				t.Fatalf("partition %d: got offset %d, want %d", p.ID, m.Offset, at)
			}
			values = append(values, string(m.Value))
		}
		r.Close()
	}
	slices.Sort(values)
	return values
}

func series(prefix string, n int) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return values
}

func TestRecordsSurviveARestartOfTheBroker(t *testing.T) {
	cfg := kafkaOnly(t.TempDir())
	e := mustStart(t, cfg)
	createTopic(t, e.Kafka, "a", 3)
	produce(t, e.Kafka, "a", series("first", 30)...)
	mustStop(t, e)

	e = mustStart(t, cfg)
	produce(t, e.Kafka, "a", series("second", 30)...)
	want := append(series("first", 30), series("second", 30)...)
	if got := consumeAll(t, e.Kafka, "a"); !slices.Equal(got, want) {
		t.Errorf("got %d records, want %d: %v", len(got), len(want), got)
	}
}

func TestRecordsAndOffsetsSurviveAKill(t *testing.T) {
	dir := t.TempDir()
	mustStop(t, mustStart(t, clickHouseOnly(dir))) // skips where there is no engine
	h := startHosted(t, dir)
	k := Kafka{Brokers: []string{h.broker}}
	createTopic(t, k, "a", 2)
	produce(t, k, "a", series("x", 40)...)
	consumeGroup(t, k, "a", "readers", 25)
	h.kill()

	e := mustStart(t, kafkaOnly(dir))
	if got, want := consumeAll(t, e.Kafka, "a"), series("x", 40); !slices.Equal(got, want) {
		t.Errorf("after the kill there are %d records, want %d", len(got), len(want))
	}
	if got := consumeGroup(t, e.Kafka, "a", "readers", 15); len(got) != 15 {
		t.Errorf("after the kill the group reads %d records, want the 15 it had not committed", len(got))
	}
}

// consumeGroup reads n records as a member of a group, commits each and leaves.
func consumeGroup(t *testing.T, k Kafka, topic, group string, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: k.Brokers, Topic: topic, GroupID: group, Dialer: k.Dialer(), MaxWait: 50 * time.Millisecond})
	defer r.Close()
	var values []string
	for range n {
		m, err := r.FetchMessage(ctx)
		if err != nil {
			t.Fatalf("fetch record %d of %d: %v", len(values), n, err)
		}
		if err := r.CommitMessages(ctx, m); err != nil {
			t.Fatalf("commit: %v", err)
		}
		values = append(values, string(m.Value))
	}
	return values
}

func TestAGroupReaderResumesWhereItCommitted(t *testing.T) {
	cfg := kafkaOnly(t.TempDir())
	e := mustStart(t, cfg)
	createTopic(t, e.Kafka, "a", 2)
	produce(t, e.Kafka, "a", series("x", 40)...)
	seen := consumeGroup(t, e.Kafka, "a", "readers", 10)
	seen = append(seen, consumeGroup(t, e.Kafka, "a", "readers", 10)...)
	mustStop(t, e)

	e = mustStart(t, cfg)
	seen = append(seen, consumeGroup(t, e.Kafka, "a", "readers", 20)...)
	slices.Sort(seen)
	if !slices.Equal(seen, series("x", 40)) {
		t.Errorf("the group saw %v, want each record once", seen)
	}
}

// Generations are what a loader needs that must finish its batch before its partitions go to somebody else.
func TestAGenerationHandsPartitionsAndOffsets(t *testing.T) {
	cfg := kafkaOnly(t.TempDir())
	e := mustStart(t, cfg)
	createTopic(t, e.Kafka, "a", 3)
	for want := range int64(3) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{ID: "loaders", Brokers: e.Kafka.Brokers, Topics: []string{"a"}, Dialer: e.Kafka.Dialer(), StartOffset: kafka.FirstOffset})
		if err != nil {
			t.Fatal(err)
		}
		gen, err := group.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		offsets := map[int]int64{}
		for _, p := range gen.Assignments["a"] {
			if want > 0 && p.Offset != 10*want {
				t.Errorf("round %d: partition %d starts at %d, want %d", want, p.ID, p.Offset, 10*want)
			}
			offsets[p.ID] = 10 * (want + 1)
		}
		if len(offsets) != 3 {
			t.Errorf("round %d: got %d partitions, want 3", want, len(offsets))
		}
		if err := gen.CommitOffsets(map[string]map[int]int64{"a": offsets}); err != nil {
			t.Fatal(err)
		}
		group.Close()
		cancel()
		if want == 1 { // once with a restart of the broker in between
			mustStop(t, e)
			e = mustStart(t, cfg)
		}
	}
}

func TestTheBrokerTakesItsConfiguredPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	cfg := kafkaOnly(t.TempDir())
	cfg.Kafka.Port = port
	wantError(t, cfg, ErrPortInUse, strconv.Itoa(port), "engine.kafka.port")
	l.Close()
	e := mustStart(t, cfg)
	if want := net.JoinHostPort("127.0.0.1", strconv.Itoa(port)); e.Kafka.Brokers[0] != want {
		t.Errorf("the broker is at %s, want %s", e.Kafka.Brokers[0], want)
	}
}

func TestTopicsAreMadeByWritingOnlyWhenConfigured(t *testing.T) {
	cfg := kafkaOnly(t.TempDir())
	e := mustStart(t, cfg)
	w := writer(t, e.Kafka, "new")
	w.AllowAutoTopicCreation = true
	if err := w.WriteMessages(t.Context(), kafka.Message{Value: []byte("x")}); !errors.Is(err, kafka.UnknownTopicOrPartition) {
		t.Errorf("writing to a missing topic: got %v, want %v", err, kafka.UnknownTopicOrPartition)
	}
	mustStop(t, e)

	cfg.Kafka.AutoCreate = true
	e = mustStart(t, cfg)
	w = writer(t, e.Kafka, "new")
	w.AllowAutoTopicCreation = true
	eventually(t, 20*time.Second, func() error {
		return w.WriteMessages(t.Context(), kafka.Message{Value: []byte("x")})
	})
	conn, err := e.Kafka.Dialer().DialContext(t.Context(), "tcp", e.Kafka.Brokers[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	partitions, err := conn.ReadPartitions("new")
	if err != nil || len(partitions) != 1 {
		t.Errorf("the topic has %d partitions, %v; want 1", len(partitions), err)
	}
}

func TestRetentionBoundsTheLogOnDisk(t *testing.T) {
	cfg := kafkaOnly(t.TempDir())
	cfg.Kafka.RetentionMB = 4
	e := mustStart(t, cfg)
	createTopic(t, e.Kafka, "a", 1)
	w := writer(t, e.Kafka, "a")
	w.BatchBytes = 1 << 20
	for i := range 40 {
		value := make([]byte, 500<<10)
		value[0] = byte(i)
		if err := w.WriteMessages(t.Context(), kafka.Message{Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	before := bytesBelow(t, cfg.DataDir)
	e.broker.cluster.ApplyRetention()
	after := bytesBelow(t, cfg.DataDir)
	if before < 19<<20 || after > 6<<20 {
		t.Errorf("the log took %d bytes before and %d after retention; want 20 MB before and no more than 6 MB after", before, after)
	}
	leader, err := e.Kafka.Dialer().DialLeader(t.Context(), "tcp", e.Kafka.Brokers[0], "a", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer leader.Close()
	first, last, err := leader.ReadOffsets()
	if err != nil || last != 40 || last-first < 7 {
		t.Errorf("offsets are %d to %d, %v; want the newest 4 MB up to 40", first, last, err)
	}
}

func bytesBelow(t *testing.T, dir string) int64 {
	t.Helper()
	var n int64
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		n += info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A record counts as sent only when it is kept. A disk that fills and is freed again must neither lose an acknowledged
// record nor damage those around it.
func TestAFullDiskRefusesRecordsAndLosesNone(t *testing.T) {
	disk := smallDisk(t, 2<<20)
	cfg := kafkaOnly(filepath.Join(disk, "var"))
	e := mustStart(t, cfg)
	createTopic(t, e.Kafka, "a", 1)
	w := writer(t, e.Kafka, "a")
	w.MaxAttempts = 1
	var acknowledged []string
	refused := 0
	send := func(name string, size int) {
		value := name + strings.Repeat(".", size)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := w.WriteMessages(ctx, kafka.Message{Value: []byte(value)}); err != nil {
			refused++
			return
		}
		acknowledged = append(acknowledged, value)
	}
	for i := 0; refused < 5 && i < 10000; i++ {
		send(fmt.Sprintf("full%05d", i), 9000)
	}
	if refused == 0 {
		t.Fatal("the broker took more than the disk holds")
	}
	if err := os.Remove(filepath.Join(disk, "filler")); err != nil {
		t.Fatal(err)
	}
	before := len(acknowledged)
	for i := range 50 {
		send(fmt.Sprintf("freed%05d", i), 9000)
	}
	if len(acknowledged) < before+50 {
		t.Errorf("with room again only %d of 50 records were taken", len(acknowledged)-before)
	}
	check := func(when string) {
		got := consumeAll(t, e.Kafka, "a")
		for _, v := range acknowledged {
			if _, found := slices.BinarySearch(got, v); !found {
				t.Fatalf("%s: the acknowledged record %s is gone", when, v[:9])
			}
		}
	}
	check("before a restart")
	mustStop(t, e)
	e = mustStart(t, cfg)
	check("after a restart")
}

func TestADamagedBrokerDirectoryIsNamed(t *testing.T) {
	cfg := kafkaOnly(t.TempDir())
	e := mustStart(t, cfg)
	createTopic(t, e.Kafka, "a", 1)
	mustStop(t, e)
	damage(t, filepath.Join(cfg.DataDir, "kafka", "topics.json"), "garbage")
	wantError(t, cfg, ErrCorruptData, "kafka")
}

func TestATornLogEndsAtItsLastWholeRecord(t *testing.T) {
	cfg := kafkaOnly(t.TempDir())
	e := mustStart(t, cfg)
	createTopic(t, e.Kafka, "a", 1)
	produce(t, e.Kafka, "a", series("x", 20)...)
	mustStop(t, e)
	logs, err := filepath.Glob(filepath.Join(cfg.DataDir, "kafka", "partitions", "*", "*.dat"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs are %v, %v; want one", logs, err)
	}
	info, err := os.Stat(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(logs[0], info.Size()-5); err != nil {
		t.Fatal(err)
	}
	e, err = Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	if got, want := consumeAll(t, e.Kafka, "a"), series("x", 19); !slices.Equal(got, want) {
		t.Errorf("got %v, want the 19 whole records", got)
	}
	produce(t, e.Kafka, "a", "y")
	if got := consumeAll(t, e.Kafka, "a"); len(got) != 20 {
		t.Errorf("after one more there are %d records, want 20", len(got))
	}
}

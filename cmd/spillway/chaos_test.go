package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/goccy/go-yaml"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/spillway-io/spillway/ingest/kafka"
	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

// chaosRounds is how many rounds TestChaos goes without SPILLWAY_CHAOS_ROUNDS.
const chaosRounds = 10

// TestChaos proves the loading guarantee: under load, at random instants, something breaks; when it is whole again, what
// is stored is what Kafka holds, exactly: the same offsets, each once, with the same content, and every record that
// cannot be used is a dead letter. Kafka is Apache Kafka, ClickHouse the real one, and the loaders are processes.
// SPILLWAY_CHAOS_SEED repeats a run's choices, SPILLWAY_CHAOS_FAULT takes only faults whose name holds it.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("rounds of chaos take long")
	}
	rounds := chaosRounds
	if n, err := strconv.Atoi(os.Getenv("SPILLWAY_CHAOS_ROUNDS")); err == nil {
		rounds = n
	}
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("SPILLWAY_CHAOS_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("SPILLWAY_CHAOS_SEED=%d", seed)
	c := newChaos(t, rand.New(rand.NewPCG(seed, 1)))
	faults := slices.DeleteFunc(c.faults(), func(f fault) bool { return !strings.Contains(f.name, os.Getenv("SPILLWAY_CHAOS_FAULT")) })
	for round := range rounds {
		fault := faults[round%len(faults)]
		if round%len(faults) == 0 {
			c.rng.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
			fault = faults[0]
		}
		c.round(round, fault)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d rounds: %d records in Kafka, %d rows stored, %d dead letters: all as sent, none lost, none doubled", rounds, c.records, c.rows, c.poison)
}

type fault struct {
	name  string
	brake func() // breaks something
	mend  func()
}

// chaos is a flow that things happen to.
type chaos struct {
	t        *testing.T
	rng      *rand.Rand
	kafka    *testenv.ApacheKafka
	engine   engine.Config
	disk     string // a small disk of ClickHouse's own; "" = not possible here
	engines  *engine.Engines
	conn     driver.Conn
	program  string
	config   string
	loaders  []*exec.Cmd
	verified map[string]map[int]int64 // by topic and partition: offsets below are as they should be

	records, rows, poison, sent int
}

var chaosTopics = map[string]string{event.TopicPlacement: "placement_events", event.TopicNode: "node_events", event.TopicCounters: "counters"}

func newChaos(t *testing.T, rng *rand.Rand) *chaos {
	c := &chaos{t: t, rng: rng, kafka: testenv.StartApacheKafka(t), verified: map[string]map[int]int64{}}
	dir := t.TempDir()
	c.engine = engine.DefaultConfig()
	c.engine.Kafka.Mode = engine.ModeNone
	c.engine.DataDir = filepath.Join(dir, "store")
	if err := os.Mkdir(c.engine.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", c.engine.DataDir, "tmpfs", 0, "size=1536m"); err == nil {
		c.disk = c.engine.DataDir
		t.Cleanup(func() { syscall.Unmount(c.disk, syscall.MNT_DETACH) })
	} else {
		t.Logf("LEFT OUT: a full disk, which takes the right to mount one: %v", err)
	}
	c.startClickHouse()
	_, port, _ := strings.Cut(c.engines.ClickHouse.Owner.Addresses[0], ":")
	c.engine.ClickHouse.TCPPort, _ = strconv.Atoi(port)
	t.Cleanup(func() {
		c.conn.Close()
		c.engines.Stop()
	})
	c.program = filepath.Join(dir, "spillway")
	if out, err := exec.Command("go", "build", "-o", c.program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the loader: %v: %s", err, out)
	}
	c.writeConfig(dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := kafka.EnsureTopics(ctx, c.kafka.Kafka, kafka.TopicConfig{Partitions: 4, Replication: 1, Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	// What breaks may be the tables, so they are there before the first round.
	if out, err := exec.Command(c.program, "migrate", "-c", c.config).CombinedOutput(); err != nil {
		t.Fatalf("make the tables: %v: %s", err, out)
	}
	t.Cleanup(func() { c.scale(0) })
	c.scale(1)
	return c
}

func (c *chaos) writeConfig(dir string) {
	owner := c.engines.ClickHouse.Owner
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte(owner.Password), 0o600); err != nil {
		c.t.Fatal(err)
	}
	text, err := yaml.Marshal(map[string]any{
		"engine": map[string]any{
			"clickhouse": map[string]any{"addresses": owner.Addresses, "user": owner.User, "password_file": password, "database": owner.Database},
			"kafka":      map[string]any{"brokers": c.kafka.Brokers},
		},
		"load":      map[string]any{"session_timeout": "3s", "insert_timeout": "3s", "retry_max": "1s", "max_rows": 5000},
		"telemetry": map[string]any{"listen": "", "log_level": "warn"},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.config = filepath.Join(dir, "spillway.yaml")
	if err := os.WriteFile(c.config, text, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *chaos) startClickHouse() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	engines, err := engine.Start(ctx, c.engine, slog.New(slog.DiscardHandler))
	if err != nil {
		c.t.Fatal(err)
	}
	c.engines = engines
	if c.conn != nil {
		c.conn.Close()
	}
	if c.conn, err = chconn.Open(engines.ClickHouse.Owner); err != nil {
		c.t.Fatal(err)
	}
}

// scale makes it n loaders; those that are too many are asked to end.
func (c *chaos) scale(n int) {
	for len(c.loaders) > n {
		last := c.loaders[len(c.loaders)-1]
		c.loaders = c.loaders[:len(c.loaders)-1]
		last.Process.Signal(syscall.SIGTERM)
		last.Wait()
	}
	for len(c.loaders) < n {
		cmd := exec.Command(c.program, "load", "-c", c.config)
		log, err := os.OpenFile(c.config+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			c.t.Fatal(err)
		}
		cmd.Stderr = log
		err = cmd.Start()
		log.Close()
		if err != nil {
			c.t.Fatal(err)
		}
		c.loaders = append(c.loaders, cmd)
	}
}

func (c *chaos) killLoader() {
	i := c.rng.IntN(len(c.loaders))
	c.loaders[i].Process.Kill()
	c.loaders[i].Wait()
	c.loaders = slices.Delete(c.loaders, i, i+1)
}

func (c *chaos) faults() []fault {
	loaders := func() int { return 1 + c.rng.IntN(2) }
	list := []fault{
		{"loader killed", func() { c.killLoader() }, func() { c.scale(loaders()) }},
		{"loader killed, another one there", func() { c.scale(2); c.pause(300); c.killLoader() }, func() { c.scale(loaders()) }},
		{"ClickHouse killed", c.killClickHouse, c.startClickHouse},
		{"Kafka killed", func() { c.kafka.Kill() }, func() { c.kafka.Start() }},
		{"loader stopped for longer than its session, another one takes over", func() {
			c.scale(2)
			c.pause(500)
			frozen := c.loaders[0].Process
			frozen.Signal(syscall.SIGSTOP)
			time.Sleep(4500 * time.Millisecond)
			frozen.Signal(syscall.SIGCONT)
		}, func() { c.scale(loaders()) }},
		{"loaders from one to four to two", func() { c.scale(1); c.pause(800); c.scale(4); c.pause(1500); c.scale(2) }, func() {}},
		{"connections to Kafka cut", func() { c.kafka.Cut(); c.pause(1500) }, func() { c.kafka.Mend() }},
		{"ClickHouse refuses inserts", func() { c.refuse(true) }, func() { c.refuse(false) }},
		{"ClickHouse stopped for longer than an insert may take", func() { c.freezeClickHouse(4 * time.Second) }, func() {}},
		{"everything killed", func() { c.killLoader(); c.killClickHouse(); c.kafka.Kill() }, func() { c.kafka.Start(); c.startClickHouse(); c.scale(loaders()) }},
	}
	if c.disk != "" {
		filler := filepath.Join(c.disk, "filler")
		list = append(list, fault{"full disk", func() {
			f, err := os.Create(filler)
			if err != nil {
				c.t.Fatal(err)
			}
			defer f.Close()
			buf := make([]byte, 2<<20)
			for err == nil { // at the speed of a disk once it gets tight
				var disk syscall.Statfs_t
				if syscall.Statfs(c.disk, &disk) == nil && int64(disk.Bavail)*disk.Bsize < 300<<20 {
					time.Sleep(20 * time.Millisecond)
				}
				_, err = f.Write(buf)
			}
			c.pause(2000)
		}, func() { os.Remove(filler) }})
	}
	return list
}

// pause is up to so many milliseconds.
func (c *chaos) pause(ms int) { time.Sleep(time.Duration(c.rng.IntN(ms)+1) * time.Millisecond) }

func (c *chaos) clickHousePIDs() []int {
	pids := testenv.ChildrenOf(c.engine.DataDir)
	if len(pids) == 0 {
		c.t.Fatal("ClickHouse's process is not to be found")
	}
	return pids
}

func (c *chaos) killClickHouse() {
	for _, pid := range c.clickHousePIDs() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	<-c.engines.Dead()
	c.engines.Stop()
}

func (c *chaos) freezeClickHouse(d time.Duration) {
	for _, pid := range c.clickHousePIDs() {
		syscall.Kill(pid, syscall.SIGSTOP)
		defer syscall.Kill(pid, syscall.SIGCONT)
	}
	time.Sleep(d)
}

func (c *chaos) refuse(on bool) {
	for _, table := range chaosTopics {
		change := "RESET SETTING parts_to_throw_insert, parts_to_delay_insert"
		if on {
			change = "MODIFY SETTING parts_to_delay_insert = 1, parts_to_throw_insert = 1"
		}
		if err := c.conn.Exec(context.Background(), "ALTER TABLE "+table+" "+change); err != nil {
			c.t.Fatal(err)
		}
	}
	if on {
		c.pause(2000)
	}
}

// round lets things break while records flow, mends them, and compares.
func (c *chaos) round(n int, f fault) {
	begun := time.Now()
	ctx, stop := context.WithCancel(context.Background())
	var acked []event.Record
	var flowing sync.WaitGroup
	flowing.Go(func() { acked = c.produce(ctx, n) })
	c.pause(1000)
	f.brake()
	c.pause(300)
	f.mend()
	c.pause(500)
	stop()
	flowing.Wait()
	mended := time.Now()
	held := c.held()
	c.t.Logf("round %3d: %-70s %5d records", n, f.name, len(acked))
	c.compare(held, acked, mended)
	c.t.Logf("round %3d: as sent %.1f s after it was whole again (%.1f s in all)", n, time.Since(mended).Seconds(), time.Since(begun).Seconds())
}

// produce sends records until ctx ends, and gives those that Kafka has acknowledged. Some are sent twice, some are no
// records at all.
func (c *chaos) produce(ctx context.Context, round int) (acked []event.Record) {
	producer := kafka.NewProducer(c.kafka.Kafka, kafka.Deps{Log: slog.New(slog.DiscardHandler), Now: time.Now})
	defer producer.Close()
	rng := rand.New(rand.NewPCG(uint64(round), 7))
	transport := c.kafka.Transport()
	defer transport.CloseIdleConnections()
	poison := &kafkago.Writer{Addr: kafkago.TCP(c.kafka.Brokers...), Transport: transport, RequiredAcks: kafkago.RequireAll, BatchTimeout: time.Millisecond, MaxAttempts: 1}
	defer poison.Close()
	for ctx.Err() == nil {
		var batch []event.Record
		for range 1 + rng.IntN(60) {
			batch = append(batch, c.record(rng))
		}
		if rng.IntN(5) == 0 {
			batch = append(batch, batch...)
		}
		sending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if producer.Emit(sending, batch...) == nil {
			acked = append(acked, batch...)
		}
		if rng.IntN(10) == 0 {
			topics := []string{event.TopicPlacement, event.TopicNode, event.TopicCounters}
			poison.WriteMessages(sending, kafkago.Message{Topic: topics[rng.IntN(3)], Value: []byte(fmt.Sprintf("\xffnot a record %d", rng.Uint64()))})
		}
		cancel()
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
	return acked
}

// record is one of its own: its revision or moment occurs in no other.
func (c *chaos) record(rng *rand.Rand) event.Record {
	c.sent++
	now := time.Now().UnixMilli()
	unique := uint64(c.sent)
	switch rng.IntN(4) {
	case 0:
		return &event.Node{Cluster: "c", Node: fmt.Sprintf("n%03d", rng.IntN(200)), Source: "slurm", GpusPresent: new(uint32(4)), ObservedAtMs: now, Revision: unique}
	case 1:
		gpus := rng.IntN(8)
		r := &event.Counters{Cluster: "c", Node: fmt.Sprintf("n%03d", rng.IntN(200)), Source: event.SourceDCGM, ObservedAtMs: now, DriverVersion: strconv.Itoa(c.sent)}
		for g := range gpus {
			r.GpuIndex = append(r.GpuIndex, uint32(g))
			r.SmActive = append(r.SmActive, float64(g)/8)
		}
		return r
	}
	return &event.Placement{
		Cluster: "c", JobId: strconv.Itoa(rng.IntN(5000)), Scheduler: "slurm", Source: "slurm.squeue", State: event.State_RUNNING, StartMs: &now,
		ObservedAtMs: now, Revision: unique, Placements: []*event.NodePlacement{{Node: "n1", Gpus: new(uint32(4))}},
	}
}

// message is what Kafka holds at an offset.
type message struct {
	record event.Record // nil: poison
	says   string       // what a stored row of it has to say
	rows   int
}

// says is the content of a record as both sides can tell it.
func says(r event.Record) string {
	switch r := r.(type) {
	case *event.Placement:
		return r.GetJobId() + " " + strconv.FormatUint(r.GetRevision(), 10)
	case *event.Node:
		return r.GetNode() + " " + strconv.FormatUint(r.GetRevision(), 10)
	case *event.Counters:
		return r.GetNode() + " " + r.GetDriverVersion()
	}
	return ""
}

// held reads what Kafka holds beyond what is verified, by topic, partition and offset.
func (c *chaos) held() map[string]map[int]map[int64]message {
	out := map[string]map[int]map[int64]message{}
	for topic := range chaosTopics {
		out[topic] = map[int]map[int64]message{}
		for partition := range 4 {
			out[topic][partition] = map[int64]message{}
			testenv.Eventually(c.t, 30*time.Second, func() error { return c.readPartition(topic, partition, out[topic][partition]) })
		}
	}
	return out
}

func (c *chaos) readPartition(topic string, partition int, out map[int64]message) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := (&kafkago.Dialer{Timeout: 2 * time.Second}).DialLeader(ctx, "tcp", c.kafka.Brokers[0], topic, partition)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	next, end := c.verified[topic][partition], int64(0)
	if _, end, err = conn.ReadOffsets(); err != nil {
		return err
	}
	for next < end {
		if _, err := conn.Seek(next, kafkago.SeekAbsolute); err != nil {
			return err
		}
		batch := conn.ReadBatch(1, 8<<20)
		for {
			m, err := batch.ReadMessage()
			if err != nil {
				break
			}
			next = m.Offset + 1
			r, err := event.Decode(topic, m.Value)
			if err != nil {
				out[m.Offset] = message{}
				continue
			}
			rows := 1
			if counters, ok := r.(*event.Counters); ok {
				rows = len(counters.GetGpuIndex())
			}
			out[m.Offset] = message{record: r, says: says(r), rows: rows}
		}
		if err := batch.Close(); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

var storedSays = map[string]string{
	"placement_events": "concat(job_id, ' ', toString(revision))", "node_events": "concat(node, ' ', toString(revision))", "counters": "concat(node, ' ', driver_version)",
}

// compare waits until all that Kafka holds is stored, and finds what is not as it should be.
func (c *chaos) compare(held map[string]map[int]map[int64]message, acked []event.Record, since time.Time) {
	c.t.Helper()
	inKafka := map[string]bool{}
	for topic, table := range chaosTopics {
		if c.verified[topic] == nil {
			c.verified[topic] = map[int]int64{}
		}
		for partition, messages := range held[topic] {
			from := c.verified[topic][partition]
			to := from
			wantRows, poison := 0, 0
			for offset, m := range messages {
				to = max(to, offset+1)
				wantRows += m.rows
				if m.record == nil {
					poison++
				}
				inKafka[topic+m.says] = true
			}
			testenv.Eventually(c.t, time.Until(since.Add(90*time.Second)), func() error {
				var rows, letters uint64
				if err := c.conn.QueryRow(context.Background(), fmt.Sprintf("SELECT (SELECT count() FROM %s WHERE kafka_partition = ? AND kafka_offset >= ? AND kafka_offset < ?),"+
					" (SELECT uniqExact(topic_offset) FROM dead_letters WHERE topic = ? AND topic_partition = ? AND topic_offset >= ? AND topic_offset < ?)", table),
					partition, from, to, topic, partition, from, to).Scan(&rows, &letters); err != nil {
					return err
				}
				if rows < uint64(wantRows) || letters < uint64(poison) {
					return fmt.Errorf("%s/%d from %d to %d: %d rows of %d, %d dead letters of %d", topic, partition, from, to, rows, wantRows, letters, poison)
				}
				return nil
			})
			c.same(topic, table, partition, from, to, messages)
			c.records, c.rows, c.poison = c.records+len(messages), c.rows+wantRows, c.poison+poison
			c.verified[topic][partition] = to
		}
	}
	for _, r := range acked {
		if !inKafka[r.RecordTopic()+says(r)] {
			c.t.Errorf("record %s %q was acknowledged and is not in Kafka", r.RecordTopic(), says(r))
			return
		}
	}
}

// same compares what is stored of a partition with what it holds, offset by offset.
func (c *chaos) same(topic, table string, partition int, from, to int64, messages map[int64]message) {
	c.t.Helper()
	rows, err := c.conn.Query(context.Background(), fmt.Sprintf("SELECT kafka_offset, any(%[2]s), count(), uniqExact(%[2]s) FROM %[1]s WHERE kafka_partition = ? AND kafka_offset >= ? AND kafka_offset < ? GROUP BY kafka_offset",
		table, storedSays[table]), partition, from, to)
	if err != nil {
		c.t.Fatal(err)
	}
	defer rows.Close()
	stored := 0
	for rows.Next() {
		var offset int64
		var text string
		var n, kinds uint64
		if err := rows.Scan(&offset, &text, &n, &kinds); err != nil {
			c.t.Fatal(err)
		}
		m, ok := messages[offset]
		if !ok || m.record == nil || text != m.says || int(n) != m.rows || kinds != 1 {
			c.t.Errorf("%s/%d at %d: stored are %d rows that say %q, Kafka holds %+v", topic, partition, offset, n, text, m)
			return
		}
		stored++
	}
	if err := rows.Err(); err != nil {
		c.t.Fatal(err)
	}
	for _, m := range messages {
		if m.rows > 0 {
			stored--
		}
	}
	if stored != 0 {
		c.t.Errorf("%s/%d from %d to %d: %d offsets more are stored than Kafka holds", topic, partition, from, to, stored)
	}
}

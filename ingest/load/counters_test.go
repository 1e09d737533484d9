package load

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/spillway-io/spillway/schemas/event"
)

// fleet makes counters like those of a real one: jobs in three of four nodes, whose rates wander around a level and stop
// now and then for a checkpoint, exporters with their own rounding, errors that hardly ever come.
type fleet struct {
	rng   *rand.Rand
	nodes []*fleetNode
	gpus  int
	nics  bool
}

type fleetNode struct {
	name       string
	level      float64 // bytes per second and direction of a GPU; 0 = idle
	phase      time.Duration
	uuids      []string
	tx, rx     []float64
	symbols    []float64
	nicTx, nic []float64
}

func newFleet(nodes, gpus int) *fleet {
	f := &fleet{rng: rand.New(rand.NewPCG(1, 2)), gpus: gpus}
	for n := range nodes {
		node := &fleetNode{name: fmt.Sprintf("gb200-r%02d-n%02d", n/18+1, n%18+1), phase: time.Duration(f.rng.IntN(10_000)) * time.Millisecond}
		if f.rng.Float64() < .75 {
			node.level = 60e9 + 340e9*f.rng.Float64()
		}
		for range gpus {
			node.uuids = append(node.uuids, fmt.Sprintf("GPU-%08x-%04x-%04x-%04x-%012x", f.rng.Uint32(), f.rng.IntN(1<<16), f.rng.IntN(1<<16), f.rng.IntN(1<<16), f.rng.Uint64()>>16))
			node.tx = append(node.tx, math.Floor(1e15*f.rng.Float64()))
			node.rx = append(node.rx, math.Floor(1e15*f.rng.Float64()))
			node.symbols = append(node.symbols, float64(f.rng.IntN(1000)))
			node.nicTx, node.nic = append(node.nicTx, 1e14), append(node.nic, 1e14)
		}
		f.nodes = append(f.nodes, node)
	}
	return f
}

// scrape is the record of one node in the i-th round of ten seconds.
func (f *fleet) scrape(n, i int, begin time.Time) *event.Counters {
	node, rng := f.nodes[n], f.rng
	at := begin.Add(time.Duration(i)*10*time.Second + node.phase + time.Duration(rng.IntN(20))*time.Millisecond)
	c := &event.Counters{Cluster: "east", Node: node.name, Source: event.SourceDCGM, ObservedAtMs: at.UnixMilli(), DriverVersion: "570.86.15"}
	busy := node.level > 0 && i%90 > 3
	near := func(level, spread float64) float64 { return max(0, level*(1+spread*rng.NormFloat64())) }
	ratio := func(level, spread float64) float64 {
		if !busy {
			return 0
		}
		return math.Round(min(1, level+spread*rng.NormFloat64())*1e6) / 1e6
	}
	for g := range f.gpus {
		rate := 0.0
		if busy {
			rate = near(node.level, .05)
		}
		back := near(rate, .003)
		node.tx[g], node.rx[g] = math.Floor(node.tx[g]+rate*10*1.06), math.Floor(node.rx[g]+back*10*1.06)
		if rng.Float64() < .02 {
			node.symbols[g] += float64(rng.IntN(30))
		}
		pcieTx, pcieRx := near(3e5, .2), near(5e5, .2)
		if busy {
			pcieTx, pcieRx = near(3e9, .15), near(5e9, .15)
		}
		c.GpuIndex = append(c.GpuIndex, uint32(g))
		c.GpuUuid = append(c.GpuUuid, node.uuids[g])
		c.GpuModel = append(c.GpuModel, "NVIDIA GB200")
		c.GpuSinceMs = append(c.GpuSinceMs, begin.UnixMilli())
		c.NvlinkTxBytes = append(c.NvlinkTxBytes, node.tx[g])
		c.NvlinkRxBytes = append(c.NvlinkRxBytes, node.rx[g])
		c.NvlinkBytesPerSecond = append(c.NvlinkBytesPerSecond, math.Floor(near(rate+back, .02)/1_024_000)*1_024_000)
		c.NvlinkTxBytesPerSecond = append(c.NvlinkTxBytesPerSecond, math.Floor(near(rate, .02)))
		c.NvlinkRxBytesPerSecond = append(c.NvlinkRxBytesPerSecond, math.Floor(near(back, .02)))
		c.NvlinkErrors = append(c.NvlinkErrors, 0)
		c.NvlinkDiscards = append(c.NvlinkDiscards, 0)
		c.NvlinkRecoveries = append(c.NvlinkRecoveries, 0)
		c.NvlinkRecoveryFailures = append(c.NvlinkRecoveryFailures, 0)
		c.NvlinkSymbolErrors = append(c.NvlinkSymbolErrors, node.symbols[g])
		c.NvlinkEffectiveErrors = append(c.NvlinkEffectiveErrors, 0)
		c.NvlinkEffectiveBer = append(c.NvlinkEffectiveBer, float64(1+rng.IntN(9))*1e-15)
		c.GraphicsActive = append(c.GraphicsActive, ratio(.985, .01))
		c.SmActive = append(c.SmActive, ratio(.82, .03))
		c.TensorActive = append(c.TensorActive, ratio(.38, .03))
		c.PcieTxBytesPerSecond = append(c.PcieTxBytesPerSecond, math.Floor(pcieTx))
		c.PcieRxBytesPerSecond = append(c.PcieRxBytesPerSecond, math.Floor(pcieRx))
		if f.nics {
			node.nicTx[g] = math.Floor(node.nicTx[g] + 10*near(2e9, .3))
			node.nic[g] = math.Floor(node.nic[g] + 10*near(2e9, .3))
			c.Nic = append(c.Nic, fmt.Sprint("mlx5_", g))
			c.NicPort = append(c.NicPort, 1)
			c.NicState = append(c.NicState, event.LinkState_UP)
			c.NicSpeedBytesPerSecond = append(c.NicSpeedBytesPerSecond, 5e10)
			c.NicTxBytes = append(c.NicTxBytes, node.nicTx[g])
			c.NicRxBytes = append(c.NicRxBytes, node.nic[g])
			c.NicTxWait = append(c.NicTxWait, 1000)
		}
	}
	return c
}

// ten leaves ten numbers of each GPU.
func ten(c *event.Counters) *event.Counters {
	c.NvlinkBytesPerSecond, c.NvlinkDiscards, c.NvlinkRecoveryFailures, c.NvlinkEffectiveErrors = nil, nil, nil, nil
	c.NvlinkEffectiveBer, c.GraphicsActive, c.PcieTxBytesPerSecond = nil, nil, nil
	return c
}

var countersBegin = time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)

// fullCounters has every kind of entity, and numbers that are absent.
func fullCounters() *event.Counters {
	nan := math.NaN()
	return &event.Counters{
		Cluster: "east", Node: "n1", Source: event.SourceDCGM, ObservedAtMs: countersBegin.UnixMilli(), DriverVersion: "570",
		GpuIndex: []uint32{0, 1}, GpuUuid: []string{"GPU-a", "GPU-b"}, GpuModel: []string{"GB200", "GB200"},
		GpuMissing: []bool{false, true}, GpuSinceMs: []int64{countersBegin.UnixMilli(), 0}, GpuReset: []bool{true, false},
		NvlinkTxBytes: []float64{5<<20 + 7, nan}, NvlinkBytesPerSecond: []float64{1234567890, nan}, SmActive: []float64{.5001, nan},
		NvlinkErrors: []float64{3, 0},
		MigGpu:       []uint32{0}, MigId: []uint32{4}, MigProfile: []string{"1g.24gb"}, MigSmActive: []float64{.25},
		LinkGpu: []uint32{0, 1}, Link: []uint32{7, 8}, LinkState: []event.LinkState{event.LinkState_UP, event.LinkState_MISSING},
		LinkDowns: []float64{2, nan},
		Nic:       []string{"mlx5_0"}, NicPort: []uint32{1}, NicGid: []string{"fe80::1"}, NicLinkLayer: []string{"InfiniBand"},
		NicState: []event.LinkState{event.LinkState_DOWN}, NicSpeedBytesPerSecond: []float64{5e10}, NicTxBytes: []float64{9 << 20},
		JobGpu: []uint32{0, 0, 0, 1}, JobMig: []int32{-1, -1, 4, -1}, JobId: []string{"17", "18", "19", ""}, JobNamespace: []string{"", "", "", "ml"},
		JobPod: []string{"", "", "", "train-0"},
	}
}

// everyCounter has one entity of each kind and every number there is.
func everyCounter() *event.Counters {
	c := &event.Counters{}
	m := c.ProtoReflect()
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		v := map[protoreflect.Kind]protoreflect.Value{
			protoreflect.StringKind: protoreflect.ValueOfString("x"), protoreflect.DoubleKind: protoreflect.ValueOfFloat64(1 << 21),
			protoreflect.BoolKind: protoreflect.ValueOfBool(true), protoreflect.EnumKind: protoreflect.ValueOfEnum(1),
			protoreflect.Int64Kind: protoreflect.ValueOfInt64(countersBegin.UnixMilli()), protoreflect.Uint32Kind: protoreflect.ValueOfUint32(1),
			protoreflect.Sint32Kind: protoreflect.ValueOfInt32(event.JobMigNone),
		}[f.Kind()]
		if name := string(f.Name()); name == "gpu_index" || strings.HasSuffix(name, "_gpu") {
			v = protoreflect.ValueOfUint32(0) // the one GPU
		}
		if f.IsList() {
			m.Mutable(f).List().Append(v)
		} else {
			m.Set(f, v)
		}
	}
	return c
}

func TestCountersBecomeRows(t *testing.T) {
	w := newBench(t)
	stop := start(t, config("counters"), w.deps())
	defer stop()
	ctx := context.Background()
	if err := w.producer.Emit(ctx, fullCounters(), &event.Counters{Cluster: "east", Node: "n2", Source: event.SourceDCGM, ObservedAtMs: countersBegin.UnixMilli()}); err != nil {
		t.Fatal(err)
	}
	w.waitRows(t, "counters", 6)
	rows, err := w.store.Query(ctx, `SELECT toString((entity, gpu, part, name, uuid, model, jobs, state, missing, reset, since, tx_bytes,
		bytes_per_second, sm_active, errors, downs, speed_bytes_per_second)) FROM counters ORDER BY entity, gpu, part`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		got = append(got, line)
	}
	want := []string{
		"('gpu',0,0,'','GPU-a','GB200','17,18,19#4','',false,true,'2026-11-29 10:00:00.000',5242880,1235222500,0.5,3,NULL,NULL)",
		"('gpu',1,0,'','GPU-b','GB200','ml/train-0','',true,false,NULL,NULL,NULL,NULL,0,NULL,NULL)",
		"('mig',0,4,'','','1g.24gb','','',false,false,NULL,NULL,NULL,0.25,NULL,NULL,NULL)",
		"('link',0,7,'','','','','up',false,false,NULL,NULL,NULL,NULL,NULL,2,NULL)",
		"('link',1,8,'','','','','missing',false,false,NULL,NULL,NULL,NULL,NULL,NULL,NULL)",
		"('nic',0,1,'mlx5_0','fe80::1','InfiniBand','','down',false,false,NULL,9437184,NULL,NULL,NULL,NULL,50000000000)",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// waitRows is until a table has so many rows, whatever their offsets.
func (b *bench) waitRows(t testing.TB, table string, want uint64) {
	t.Helper()
	for begun := time.Now(); ; pause(context.Background(), 20*time.Millisecond) {
		var rows uint64
		if err := b.store.QueryRow(context.Background(), "SELECT count() FROM "+table).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if rows == want {
			return
		}
		if rows > want || time.Since(begun) > 90*time.Second {
			t.Fatalf("%s has %d rows, want %d", table, rows, want)
		}
	}
}

// agree says whether a block takes exactly the records that the contract's reader takes.
func agree(t *testing.T, value []byte) {
	t.Helper()
	b := newCountersBlock().(*countersBlock)
	if err := b.append(0, event.Raw(fullCounters())); err != nil { // others of the same names may come
		t.Fatal(err)
	}
	_, wantErr := event.Decode(event.TopicCounters, value)
	for range 2 { // the second time it is known
		before := b.rows()
		err := b.append(1, value)
		if (err == nil) != (wantErr == nil) && !(err != nil && strings.Contains(err.Error(), "no node has")) {
			t.Fatalf("a block says %v, the contract's reader %v, of %x", err, wantErr, value)
		}
		if err != nil && b.rows() != before {
			t.Fatal("a record that was refused left rows")
		}
	}
	other := fullCounters()
	other.Node = "another"
	if err := b.append(2, event.Raw(other)); err != nil {
		t.Fatalf("after %x a good record of another node is refused: %v", value, err)
	}
	if n := b.rows(); n > 0 {
		for _, c := range b.input() {
			if c.Data.Rows() != n {
				t.Fatalf("column %s has %d of %d rows", c.Name, c.Data.Rows(), n)
			}
		}
	}
}

func TestCountersOfEveryPrefix(t *testing.T) {
	value := encode(t, fullCounters())
	for i := range len(value) + 1 {
		agree(t, value[:i:i])
	}
}

func TestCountersThatBreakARuleAreRefused(t *testing.T) {
	good := encode(t, fullCounters())
	for name, edit := range map[string]func(*event.Counters){
		"no cluster":                func(c *event.Counters) { c.Cluster = "" },
		"a slash in the cluster":    func(c *event.Counters) { c.Cluster = "a/b" },
		"no time":                   func(c *event.Counters) { c.ObservedAtMs = 0 },
		"a time in seconds":         func(c *event.Counters) { c.ObservedAtMs /= 1000 },
		"a number below zero":       func(c *event.Counters) { c.NvlinkErrors[0] = -1 },
		"a number without end":      func(c *event.Counters) { c.NvlinkErrors[0] = math.Inf(1) },
		"a column that is short":    func(c *event.Counters) { c.NvlinkErrors = c.NvlinkErrors[:1] },
		"a link of no GPU":          func(c *event.Counters) { c.LinkGpu[0] = 9 },
		"a GPU no node could have":  func(c *event.Counters) { c.GpuIndex[0] = 1 << 20 },
		"texts without their GPU":   func(c *event.Counters) { c.GpuUuid = append(c.GpuUuid, "x") },
		"a job on a GPU not listed": func(c *event.Counters) { c.JobGpu[1] = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			c := fullCounters()
			edit(c)
			b := newCountersBlock()
			if err := b.append(1, good); err != nil {
				t.Fatal(err)
			}
			n := b.rows()
			if err := b.append(2, event.Raw(c)); err == nil || b.rows() != n {
				t.Errorf("taken: %v, %d rows", err, b.rows()-n)
			}
		})
	}
}

// textOf is a row of a column of texts.
func textOf(d *dictionary, i int) string {
	if d.Key == proto.KeyUInt16 {
		return d.values.Row(int(d.Keys16[i]))
	}
	return d.values.Row(int(d.Keys32[i]))
}

// TestCountersOfAKnownNode: what a record becomes does not depend on what came before it.
func TestCountersOfAKnownNode(t *testing.T) {
	known := newCountersBlock()
	columns := func(b block) (out string) {
		for _, c := range b.input() {
			out += fmt.Sprint(c.Name, " ", c.Data.Type(), ":")
			if d, ok := c.Data.(*dictionary); ok {
				for i := range d.Rows() {
					out += " " + textOf(d, i)
				}
			} else {
				var buf proto.Buffer
				c.Data.EncodeColumn(&buf)
				out += fmt.Sprintf(" %x", buf.Buf)
			}
			out += "\n"
		}
		return out
	}
	f := newFleet(1, 4)
	records := []*event.Counters{fullCounters(), everyCounter()}
	for i := range 3 {
		records = append(records, f.scrape(0, i, countersBegin))
	}
	for i, edit := range []func(*event.Counters){
		func(c *event.Counters) { c.ObservedAtMs += 10_000 },
		func(c *event.Counters) { c.NvlinkTxBytes = []float64{math.NaN(), 7 << 20} },
		func(c *event.Counters) { c.JobId[0] = "99" },
		func(c *event.Counters) { c.GpuMissing[1] = false },
		func(c *event.Counters) { c.NvlinkErrors = nil },
		func(c *event.Counters) { c.GpuSinceMs[0] += 5 },
		func(c *event.Counters) { c.LinkState[1] = event.LinkState_UP },
		func(c *event.Counters) { c.Nic[0], c.NicTxBytes[0] = "mlx5_1", 1 },
	} {
		c := fullCounters()
		edit(c)
		records = append(records, c, f.scrape(0, 3+i, countersBegin))
	}
	for i, r := range append(records, records...) {
		fresh := newCountersBlock()
		for _, b := range []block{known, fresh} {
			b.reset()
			for offset := range int64(2) {
				if err := b.append(offset, event.Raw(r)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got, want := columns(known), columns(fresh); got != want {
			t.Fatalf("record %d: %s", i, cmp.Diff(want, got))
		}
	}
}

// TestCountersOfManyGPUs: more texts than a key of 16 bits can tell apart.
func TestCountersOfManyGPUs(t *testing.T) {
	b := newCountersBlock().(*countersBlock)
	f := newFleet(600, 120)
	for round := range 3 { // from the second on the dictionary is there
		for n := range f.nodes {
			if err := b.append(int64(n), event.Raw(f.scrape(n, round, countersBegin))); err != nil {
				t.Fatal(err)
			}
		}
		b.input()
		for i := range b.rows() {
			if got, want := textOf(&b.texts[textUUID], i), f.nodes[i/120].uuids[i%120]; got != want {
				t.Fatalf("row %d is of %s, want %s", i, got, want)
			}
		}
		b.reset()
	}
}

func FuzzCounters(f *testing.F) {
	value := encode(f, fullCounters())
	f.Add(value)
	f.Add(encode(f, newFleet(1, 4).scrape(0, 0, countersBegin)))
	// Legal, and not how our encoder writes it: a packed field in two pieces, one unpacked, a field of a newer version.
	odd := protowire.AppendTag(append([]byte{}, value...), 200, protowire.VarintType)
	odd = protowire.AppendVarint(odd, 7)
	odd = protowire.AppendTag(odd, fieldGPUIndex, protowire.VarintType)
	odd = protowire.AppendVarint(odd, 3)
	f.Add(odd)
	// A field whose number cannot be.
	f.Add(protowire.AppendVarint(protowire.AppendVarint(append([]byte{}, value...), uint64(protowire.MaxValidNumber+1)<<3), 0))
	f.Fuzz(agree)
}

// TestCountersOddEncoding takes what other encoders write of the same record.
func TestCountersOddEncoding(t *testing.T) {
	odd := protowire.AppendTag(encode(t, &event.Counters{
		Cluster: "east", Node: "n1", Source: event.SourceDCGM, ObservedAtMs: countersBegin.UnixMilli(), GpuIndex: []uint32{0},
	}), fieldGPUIndex, protowire.VarintType)
	odd = protowire.AppendVarint(odd, 1)
	b := newCountersBlock()
	if err := b.append(1, odd); err != nil || b.rows() != 2 {
		t.Errorf("%v, %d rows of 2", err, b.rows())
	}
}

// BenchmarkCountersDecode is from the bytes of a record to the columns of an insert.
func BenchmarkCountersDecode(b *testing.B) {
	for _, gpus := range []int{4, 8, 72} {
		b.Run(fmt.Sprint(gpus, " GPUs"), func(b *testing.B) {
			f := newFleet(512, gpus)
			var values [][]byte
			for n := range f.nodes {
				values = append(values, encode(b, ten(f.scrape(n, 10, countersBegin))))
			}
			block := newCountersBlock()
			rows := 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if block.rows() >= 100_000 {
					block.reset()
				}
				if err := block.append(int64(i), values[i%len(values)]); err != nil {
					b.Fatal(err)
				}
				rows += gpus
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(rows), "s/Mrow")
		})
	}
}

// BenchmarkCountersEncode puts the columns of a block in order and writes them to a connection that takes all.
func BenchmarkCountersEncode(b *testing.B) {
	f := newFleet(512, 4)
	block := newCountersBlock().(*countersBlock)
	for i := 0; block.rows() < 100_000; i++ {
		if err := block.append(int64(i), encode(b, f.scrape(i%512, i/512, countersBegin))); err != nil {
			b.Fatal(err)
		}
	}
	var buffer proto.Buffer
	to := proto.NewWriter(io.Discard, &buffer)
	sent := int64(0)
	for b.Loop() {
		block.sent = nil
		for _, c := range block.input() {
			if s, ok := c.Data.(proto.StateEncoder); ok {
				s.EncodeState(&buffer)
			}
			c.Data.WriteColumn(to)
		}
		var err error
		if sent, err = to.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N*block.rows()), "s/Mrow")
	b.ReportMetric(float64(sent)/float64(block.rows()), "B/row")
}

// BenchmarkCountersLoad is Kafka to ClickHouse with a loader in a process of its own, so that its CPU time is its own.
func BenchmarkCountersLoad(b *testing.B) {
	for _, gpus := range []int{4, 8, 72} {
		b.Run(fmt.Sprint(gpus, " GPUs"), func(b *testing.B) {
			total := 2_000_000
			w := newBench(b)
			f := newFleet(512, gpus)
			var wg sync.WaitGroup
			records := make(chan []event.Record, 4)
			for range 2 {
				wg.Go(func() {
					for r := range records {
						if err := w.producer.Emit(context.Background(), r...); err != nil {
							b.Error(err)
						}
					}
				})
			}
			rows := 0
			for i := 0; rows < total; i++ {
				var batch []event.Record
				for n := range f.nodes {
					batch = append(batch, ten(f.scrape(n, i, countersBegin)))
					rows += gpus
				}
				records <- batch
			}
			close(records)
			wg.Wait()
			cpu, whole, wall, counted := 0.0, 0.0, 0.0, 0.0
			for range b.N {
				if err := w.store.Exec(context.Background(), "TRUNCATE TABLE counters"); err != nil {
					b.Fatal(err)
				}
				c, kill := startChildProcess(b, child{Group: "bench", Brokers: w.kafka.Brokers, ClickHouse: accountOf(w.store.Owner), Default: true})
				// From the first rows on, and as a whole: the former leaves out what is done once, and what the other
				// partition has read of its first block by then.
				first := uint64(0)
				for first == 0 {
					if err := w.store.QueryRow(context.Background(), "SELECT count() FROM counters").Scan(&first); err != nil {
						b.Fatal(err)
					}
				}
				begun, before := time.Now(), cpuSeconds(b, c)
				w.waitRows(b, "counters", uint64(rows))
				wall += time.Since(begun).Seconds()
				whole += cpuSeconds(b, c)
				cpu += cpuSeconds(b, c) - before
				counted += float64(uint64(rows) - first)
				kill()
			}
			b.ReportMetric(cpu*1e6/counted, "loader-cpu-s/Mrow")
			b.ReportMetric(whole*1e6/float64(b.N*rows), "with-start-cpu-s/Mrow")
			b.ReportMetric(counted/wall, "rows/s")
		})
	}
}

// cpuSeconds is what a process has used so far.
func cpuSeconds(t testing.TB, pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skipf("cpu time of a process is read from /proc: %v", err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	const perSecond = 100 // USER_HZ
	return (user + system) / perSecond
}

// BenchmarkCountersStored is what a number of a fleet takes on disk, by column.
func BenchmarkCountersStored(b *testing.B) {
	w := newBench(b)
	f := newFleet(128, 4)
	s := newStore(w.store.Owner, 30*time.Second)
	defer s.close()
	to := stream{table: countersTable(), topic: event.TopicCounters, partition: 0}
	block := newCountersBlock()
	samples := 0
	flush := func() {
		if _, err := s.insert(context.Background(), to, block, time.Now()); err != nil {
			b.Fatal(err)
		}
		block.reset()
	}
	offset := int64(0)
	for i := range 720 {
		for n := range f.nodes {
			c := f.scrape(n, i, countersBegin)
			samples += 17 * f.gpus
			if err := block.append(offset, encode(b, c)); err != nil {
				b.Fatal(err)
			}
			offset++
		}
		if i%60 == 59 {
			flush()
		}
	}
	if err := w.store.Exec(context.Background(), "OPTIMIZE TABLE counters FINAL"); err != nil {
		b.Fatal(err)
	}
	rows, err := w.store.Query(context.Background(), `SELECT column, sum(column_data_compressed_bytes) FROM system.parts_columns
		WHERE database = currentDatabase() AND table = 'counters' AND active GROUP BY column ORDER BY 2 DESC`)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	total, gpuRows := 0.0, float64(samples)/17
	for rows.Next() {
		var column string
		var bytes uint64
		if err := rows.Scan(&column, &bytes); err != nil {
			b.Fatal(err)
		}
		total += float64(bytes)
		if float64(bytes)/gpuRows >= .0005 {
			b.Logf("%-26s %.3f bytes a row", column, float64(bytes)/gpuRows)
		}
	}
	b.ReportMetric(total/float64(samples), "B/sample")
	b.ReportMetric(total/gpuRows, "B/row")
}

func countersTable() table {
	for _, t := range tables() {
		if t.topic == event.TopicCounters {
			return t
		}
	}
	panic("counters are not loaded")
}

package load

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/spillway-io/spillway/schemas/event"
)

// records are one of each kind, as a real encoder makes it.
func records() map[string]event.Record {
	level := []*event.Level{{Level: "block", Value: "rack01"}, {Level: "domain", Value: "rack01"}}
	return map[string]event.Record{
		event.TopicPlacement: placement(1),
		event.TopicMembership: &event.Membership{
			Cluster: "alpha", Node: "n1", Source: "nvml", Levels: level, ObservedAtMs: noon,
			Gpus: []*event.GpuFabric{{Uuid: "a", ClusterUuid: "u", CliqueId: proto.Uint32(1)}, {Index: 1, Uuid: "b"}},
		},
		event.TopicNode:     &event.Node{Cluster: "alpha", Node: "n1", Source: "slurm", GpusPresent: proto.Uint32(4), ObservedAtMs: noon},
		event.TopicCounters: everyCounter(),
		event.TopicDomain: &event.Domain{
			Cluster: "alpha", Domain: "d", Source: "computedomain", Phase: "ready", Levels: level, Nodes: []string{"n1", "n2"}, Owner: "ns/job",
			ObservedAtMs: noon, Revision: 1,
		},
		event.TopicWorkload: &event.Workload{
			Cluster: "alpha", JobId: "7", WorkloadKey: "k", StepSeconds: proto.Float64(2.5), Goodput: proto.Float64(0.5), ObservedAtMs: noon,
		},
		event.TopicSource: &event.Source{
			Cluster: "alpha", Source: "slurm", ObservedAtMs: noon, Told: []*event.Told{{Source: "slurm.nodes", SinceMs: noon - 1000, GoodAtMs: noon}},
		},
		event.TopicBenchmark: &event.Benchmark{
			Cluster: "alpha", RunId: "r", Source: "nccl_tests", Operation: "all_reduce", ObservedAtMs: noon, Revision: 1,
			Node: []string{"n1", "n2"}, NodeGpus: []uint32{4, 4}, NodeClusterUuid: []string{"u", ""},
			SizeBytes: []uint64{8, 16}, InPlace: []bool{false, true}, DataType: []string{"float", "float"}, Reduction: []string{"sum", ""},
			Seconds: []float64{1, 2}, AlgorithmBytesPerSecond: []float64{8, 8}, BusBytesPerSecond: []float64{14, 14}, WrongValues: []float64{0, math.NaN()},
		},
		event.TopicDeadLetter: event.NewDeadLetter("t", 1, 2, "load", errors.New("r"), []byte("k"), []byte("v"), time.UnixMilli(noon)),
	}
}

// TestARecordIsAppendedWholeOrNotAtAll feeds every prefix of a real record: whatever the outcome, all columns of a
// block stay of one length, since one that does not would shift the rows of all records after it.
func TestARecordIsAppendedWholeOrNotAtAll(t *testing.T) {
	for _, table := range tables() {
		t.Run(table.name, func(t *testing.T) {
			r := records()[table.topic]
			if r == nil {
				t.Fatal("this test has no record of the topic")
			}
			value := encode(t, r)
			b := table.block()
			want := 0
			for i := range len(value) + 1 {
				if err := b.append(int64(i), value[:i:i]); err == nil {
					want = b.rows() // a record may be several rows
				}
			}
			evenly(t, b, want)
			if first, last := b.span(); first > last || last != int64(len(value)) {
				t.Errorf("the block reaches from %d to %d", first, last)
			}
			b.reset()
			evenly(t, b, 0)
		})
	}
}

func evenly(t *testing.T, b block, rows int) {
	t.Helper()
	if b.rows() != rows {
		t.Errorf("the block has %d rows, want %d", b.rows(), rows)
	}
	for _, c := range b.input() {
		if c.Data.Rows() != rows {
			t.Errorf("column %s has %d rows, want %d", c.Name, c.Data.Rows(), rows)
		}
	}
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	far := placement(1)
	far.Placements[0].GpuIndex[0] = 1 << 16
	newer := placement(1)
	newer.State = 99
	for name, c := range map[string]struct {
		record event.Record
		want   string
	}{
		"a GPU index that no node has":    {far, "gpu_index of n1 is 65536"},
		"a state of a newer version":      {newer, "state 99 or intent mode 3 is of a newer version: upgrade the loader before the collectors"},
		"a fabric index that no node has": {&event.Membership{Cluster: "a", Node: "n", Source: "s", ObservedAtMs: noon, Gpus: []*event.GpuFabric{{Index: 1 << 20}}}, "gpus.index is 1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			b := tableOf(c.record.RecordTopic()).block()
			if err := b.append(0, encode(t, c.record)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want %q", err, c.want)
			}
			evenly(t, b, 0)
		})
	}
}

// FuzzAppend: see TestARecordIsAppendedWholeOrNotAtAll.
func FuzzAppend(f *testing.F) {
	all := tables()
	for i, table := range all {
		f.Add(byte(i), encode(f, records()[table.topic]))
	}
	f.Fuzz(func(t *testing.T, which byte, value []byte) {
		b := all[int(which)%len(all)].block()
		want := 0
		for range 2 {
			if b.append(7, value) == nil {
				want = b.rows()
			}
		}
		evenly(t, b, want)
	})
}

// BenchmarkAppend is a record from its bytes to its row.
func BenchmarkAppend(b *testing.B) {
	for _, table := range tables() {
		b.Run(table.name, func(b *testing.B) {
			value := encode(b, records()[table.topic])
			block := table.block()
			b.SetBytes(int64(len(value)))
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				if i%100_000 == 0 {
					block.reset()
				}
				if err := block.append(i, value); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package load

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/schemas/event"
)

// mixedFleet is records as they come together in one block: two clusters, several sources of a node, rows that a record
// does not list in order, a job that changes, an hour that ends, and some records that come late.
func mixedFleet(rounds int) (out []*event.Counters) {
	rng := rand.New(rand.NewPCG(3, 4))
	begin := countersBegin.Truncate(time.Hour).Add(time.Hour - time.Duration(rounds)*5*time.Second)
	for i := range rounds {
		for _, cluster := range []string{"west", "east"} {
			for n := range 5 {
				at := begin.Add(time.Duration(i)*10*time.Second + time.Duration(rng.IntN(5000))*time.Millisecond)
				if rng.IntN(9) == 0 {
					at = at.Add(-30 * time.Second)
				}
				gpus := fullCounters()
				gpus.Cluster, gpus.Node, gpus.ObservedAtMs = cluster, fmt.Sprint("n", n), at.UnixMilli()
				gpus.GpuIndex = []uint32{3, 1}
				gpus.NvlinkTxBytes = []float64{float64(i) * (1 << 20), math.NaN()}
				if i > rounds/2 {
					gpus.JobId[0] = "19"
				}
				ports := &event.Counters{Cluster: cluster, Node: gpus.Node, Source: event.SourceNodeExporter, ObservedAtMs: at.Add(time.Second).UnixMilli(),
					Nic: []string{"mlx5_1", "mlx5_0"}, NicPort: []uint32{1, 1}, NicTxBytes: []float64{float64(i) * (1 << 21), 1 << 22}}
				out = append(out, gpus, ports)
			}
		}
	}
	return out
}

// sentRows is the rows of a block as they are sent, each with all that is in it.
func sentRows(b block) []string {
	in := b.input()
	rows := make([]string, b.rows())
	for _, c := range in {
		for i := range rows {
			switch d := c.Data.(type) {
			case *dictionary:
				if text := textOf(d, i); text != "" {
					rows[i] += fmt.Sprint(" ", c.Name, "=", text)
				}
			case interface {
				Row(int) proto.Nullable[uint64]
			}:
				if v := d.Row(i); v.Set {
					rows[i] += fmt.Sprint(" ", c.Name, "=", v.Value)
				}
			case interface {
				Row(int) proto.Nullable[float32]
			}:
				if v := d.Row(i); v.Set {
					rows[i] += fmt.Sprint(" ", c.Name, "=", v.Value)
				}
			case interface {
				Row(int) proto.Nullable[time.Time]
			}:
				if v := d.Row(i); v.Set {
					rows[i] += fmt.Sprint(" ", c.Name, "=", v.Value.UnixMilli())
				}
			case interface{ Row(int) uint64 }:
				rows[i] += fmt.Sprint(" ", c.Name, "=", d.Row(i))
			case interface{ Row(int) float32 }:
				rows[i] += fmt.Sprint(" ", c.Name, "=", d.Row(i))
			case interface{ Row(int) time.Time }:
				rows[i] += fmt.Sprint(" ", c.Name, "=", d.Row(i).UnixMilli())
			case interface{ Row(int) int64 }:
				rows[i] += fmt.Sprint(" ", c.Name, "=", d.Row(i))
			default: // what is empty in all rows of one record is not sent, and is in those of a block that has it
				var one proto.Buffer
				d.EncodeColumn(&one)
				size := len(one.Buf) / len(rows)
				if v := one.Buf[i*size : (i+1)*size]; slices.ContainsFunc(v, func(b byte) bool { return b != 0 }) {
					rows[i] += fmt.Sprintf(" %s=%x", c.Name, v)
				}
			}
		}
	}
	return rows
}

// TestCountersOfABlockAreWhatTheirRecordsAre, whatever their order.
func TestCountersOfABlockAreWhatTheirRecordsAre(t *testing.T) {
	b := newCountersBlock()
	for round := range 3 { // layouts are new at first, then known
		var want []string
		for i, r := range mixedFleet(12) {
			alone := newCountersBlock()
			for _, to := range []block{b, alone} {
				if err := to.append(int64(i), event.Raw(r)); err != nil {
					t.Fatal(err)
				}
			}
			want = append(want, sentRows(alone)...)
		}
		got := sentRows(b)
		if again := sentRows(b); !slices.Equal(got, again) {
			t.Fatalf("round %d: a block that is sent again is another: %s", round, cmp.Diff(got, again))
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("round %d: %s", round, diff)
		}
		b.reset()
	}
}

// TestCountersAreSentInTheOrderOfTheTable asks the server, which sorts what is not.
func TestCountersAreSentInTheOrderOfTheTable(t *testing.T) {
	w := newBench(t)
	s := newStore(w.store.Owner, 30*time.Second)
	defer s.close()
	b := newCountersBlock()
	for i, r := range mixedFleet(12) {
		if err := b.append(int64(i), event.Raw(r)); err != nil {
			t.Fatal(err)
		}
	}
	inOrder := func() (blocks, all uint64) {
		if err := w.store.QueryRow(t.Context(), `SELECT sumIf(value, event = 'MergeTreeDataWriterBlocksAlreadySorted'),
			sumIf(value, event = 'MergeTreeDataWriterBlocks') FROM system.events`).Scan(&blocks, &all); err != nil {
			t.Fatal(err)
		}
		return blocks, all
	}
	sortedBefore, before := inOrder()
	if _, err := s.insert(context.Background(), stream{table: countersTable(), topic: event.TopicCounters}, b, time.Now()); err != nil {
		t.Fatal(err)
	}
	if sorted, all := inOrder(); sorted-sortedBefore != 1 || all-before != 1 {
		t.Errorf("%d blocks were in order of %d written, want 1 of 1", sorted-sortedBefore, all-before)
	}
}

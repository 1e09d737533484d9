package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/schemas/event"
)

// BenchmarkLoad is Kafka to ClickHouse, a backlog of placements of 18 nodes each and the rate at which it goes.
func BenchmarkLoad(b *testing.B) {
	const total = 100_000
	w := newBench(b)
	var nodes []*event.NodePlacement
	for n := range 18 {
		gpus := uint32(4)
		nodes = append(nodes, &event.NodePlacement{Node: fmt.Sprintf("gb200-r1-n%02d", n), Gpus: &gpus})
	}
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			for i := k * 500; i < total; i += 2000 {
				var records []event.Record
				for n := i; n < i+500; n++ {
					p := placement(n)
					p.Placements = nodes
					records = append(records, p)
				}
				if err := w.producer.Emit(context.Background(), records...); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	rate, round := 0.0, 0
	for b.Loop() {
		if err := w.store.Exec(context.Background(), "TRUNCATE TABLE placement_events"); err != nil {
			b.Fatal(err)
		}
		reg := prometheus.NewRegistry()
		deps := w.deps()
		deps.Registry = reg
		cfg := DefaultConfig()
		cfg.Group = fmt.Sprint("round ", round)
		round++
		stop := start(b, cfg, deps)
		// From the first row on: joining a group is no part of the rate.
		first := waitRows(b, reg, 1)
		begun := time.Now()
		waitRows(b, reg, total)
		rate += (total - first) / time.Since(begun).Seconds()
		stop()
		w.wait(b, "placement_events", total)
	}
	b.ReportMetric(rate/float64(round), "rows/s")
}

// waitRows is until a loader has stored so many rows.
func waitRows(b *testing.B, reg *prometheus.Registry, least float64) float64 {
	b.Helper()
	for begun := time.Now(); ; pause(context.Background(), time.Millisecond) {
		if n := metric(b, reg, "spillway_load_rows_total"); n >= least {
			return n
		}
		if time.Since(begun) > time.Minute {
			b.Fatal("the rows never came")
		}
	}
}

// BenchmarkDelay is the time from the call of Emit to a row that can be read, record by record on an idle pipeline.
func BenchmarkDelay(b *testing.B) {
	w := newBench(b)
	reg := prometheus.NewRegistry()
	deps := w.deps()
	deps.Registry = reg
	stop := start(b, DefaultConfig(), deps)
	defer stop()
	if err := w.producer.Emit(context.Background(), placement(0)); err != nil {
		b.Fatal(err)
	}
	w.wait(b, "placement_events", 1)
	var took []time.Duration
	for n := 1; b.Loop(); n++ {
		pause(context.Background(), 2*DefaultConfig().Linger) // idle, as between two events of a cluster
		begun := time.Now()
		if err := w.producer.Emit(context.Background(), placement(n)); err != nil {
			b.Fatal(err)
		}
		waitRows(b, reg, float64(n+1))
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms-p50")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "ms-p99")
}

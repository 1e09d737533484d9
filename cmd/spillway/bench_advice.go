package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/simulate"
)

// benchAdvice measures the advisor as its callers meet it: how soon an event shows, and POST /v1/advice at a fixed rate, on
// 10,008 and on 100,008 GPUs.
func benchAdvice(ctx context.Context, b *benchRun) error {
	for _, racks := range []int{bigFleet, hugeFleet} {
		if err := b.advice(ctx, racks); err != nil {
			return err
		}
	}
	return nil
}

// hugeFleet is 100,008 GPUs in 1,389 racks; adviceRate is how many questions a second are asked.
const (
	hugeFleet  = 1389
	adviceRate = 1000
)

func (b *benchRun) advice(ctx context.Context, racks int) error {
	fleet := tenThousandGPUs(100)
	fleet.Clusters[0].Racks, fleet.Clusters[0].NodeMTBF = racks, 0
	fleet.Counters = 0
	collector, err := simulate.New(fleet, simulate.Deps{Log: b.log})
	if err != nil {
		return err
	}
	w := &watch{every: 1, seen: map[string]bool{}, started: make(chan startedJob, 10_000)}
	ready := make(chan struct{})
	f, stop, err := b.running(ctx, stages{load: true, enrich: true, serve: true}, named{"simulate", func(ctx context.Context) error {
		<-ready
		return collector.Run(ctx, w)
	}})
	if err != nil {
		return err
	}
	w.out = f.producer
	begin := time.Now()
	close(ready)
	cluster := fleet.Clusters[0].Name
	known := func() bool {
		v := f.feed.Clusters()[cluster]
		return v != nil && len(v.Snapshot.Topology.Domains) >= racks
	}
	for limit := time.Now().Add(5 * time.Minute); !known(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(limit) || ctx.Err() != nil {
			return fmt.Errorf("the picture of %d racks is not complete after %s", racks, time.Since(begin).Round(time.Second))
		}
	}
	b.sayf("  %d GPUs in %d domains: the picture is complete %s after the first event", racks*72, racks, time.Since(begin).Round(time.Second))
	time.Sleep(10 * time.Second) // what was collected meanwhile is folded
	seen, late := b.visible(ctx, f, cluster, w)
	p50, p99, most := quantiles(seen)
	b.sayf("  event to advice, %d starts: p50 %s, p99 %s, slowest %s, %d not seen in 10 s", len(seen), p50.Round(time.Millisecond),
		p99.Round(time.Millisecond), most.Round(time.Millisecond), late)
	if err := b.ask(ctx, "http://"+f.server.Addr()); err != nil {
		return err
	}
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	b.sayf("  heap of the whole process, all stages and Kafka: %d MB", mem.HeapAlloc>>20)
	return stop()
}

// visible measures how long after a start was sent the picture shows that the job holds nodes.
func (b *benchRun) visible(ctx context.Context, f *flow, cluster string, w *watch) (took []time.Duration, late int) {
	for len(w.started) > 0 {
		<-w.started
	}
	end := time.After(time.Duration(b.seconds) * time.Second / 2)
	for {
		select {
		case <-ctx.Done():
			return took, late
		case <-end:
			return took, late
		case s := <-w.started:
			for len(w.started) > 0 { // only the newest: those that waited for this loop say nothing
				s = <-w.started
			}
			for !f.feed.Clusters()[cluster].Snapshot.Holds(s.job) && time.Since(s.at) < 10*time.Second {
				time.Sleep(2 * time.Millisecond)
			}
			if time.Since(s.at) >= 10*time.Second {
				late++
			} else {
				took = append(took, time.Since(s.at))
			}
		}
	}
}

// ask puts adviceRate questions a second from callers that keep their connections, and measures from when each was due.
func (b *benchRun) ask(ctx context.Context, base string) error {
	const callers = 16
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	seconds := max(1, b.seconds/2)
	total := adviceRate * seconds
	due := make(chan time.Time, total)
	var mu sync.Mutex
	var took []time.Duration
	answers := map[int]int{}
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for at := range due {
				gpus := 4 * (1 + int(at.UnixNano()/1000)%36)
				body := fmt.Sprintf(`{"gpus":%d,"class":"train","duration_s":3600}`, gpus)
				resp, err := client.Post(base+"/v1/advice", "application/json", bytes.NewReader([]byte(body)))
				status := 0
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					status = resp.StatusCode
				}
				mu.Lock()
				took = append(took, time.Since(at))
				answers[status]++
				mu.Unlock()
			}
		})
	}
	before := processCPU()
	start := time.Now()
	for i := range total {
		at := start.Add(time.Duration(i) * time.Second / adviceRate)
		if wait := time.Until(at); wait > 0 {
			time.Sleep(wait)
		}
		due <- at
	}
	close(due)
	wg.Wait()
	p50, p99, most := quantiles(took)
	b.sayf("  POST /v1/advice at %d/s for %d s: p50 %s, p99 %s, slowest %s; answers %v; %.2f cores for both ends and the flow behind them",
		adviceRate, seconds, p50.Round(10*time.Microsecond), p99.Round(10*time.Microsecond), most.Round(10*time.Microsecond), answers,
		(processCPU()-before).Seconds()/time.Since(start).Seconds())
	return ctx.Err()
}

// processCPU is the CPU time of this process alone.
func processCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

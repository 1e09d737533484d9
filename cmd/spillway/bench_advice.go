package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/schemas/event"
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

// hugeFleet is 100,008 GPUs in 1,389 racks; adviceRate is how many questions a second are asked, askWarm for how many seconds
// before they count.
const (
	hugeFleet  = 1389
	adviceRate = 1000
	askWarm    = 2 // seconds asked before any count
)

func (b *benchRun) advice(ctx context.Context, racks int) error {
	fleet := tenThousandGPUs(100)
	fleet.Clusters[0].Racks, fleet.Clusters[0].NodeMTBF = racks, 0
	fleet.Counters = 0
	collector, err := simulate.New(fleet, simulate.Deps{Log: b.log})
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	var out collect.Emitter // known once the flow is open
	f, stop, err := b.running(ctx, stages{load: true, enrich: true, serve: true}, named{"simulate", func(ctx context.Context) error {
		<-ready
		return collector.Run(ctx, out)
	}})
	if err != nil {
		return err
	}
	out = f.producer
	begin := time.Now()
	close(ready)
	cluster := fleet.Clusters[0].Name
	known := func() bool {
		v := f.feed.Clusters(cluster)[cluster]
		return v != nil && len(v.Snapshot.Topology.Domains) >= racks
	}
	for limit := time.Now().Add(5 * time.Minute); !known(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(limit) || ctx.Err() != nil {
			return fmt.Errorf("the picture of %d racks is not complete after %s", racks, time.Since(begin).Round(time.Second))
		}
	}
	b.sayf("  %d GPUs in %d domains: the picture is complete %s after the first event", racks*72, racks, time.Since(begin).Round(time.Second))
	time.Sleep(10 * time.Second) // what was collected meanwhile is folded
	seen, late, err := b.visible(ctx, f, cluster)
	if err != nil {
		return err
	}
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

// visible starts jobs of its own among those of the fleet and measures how long after each was sent the picture shows that
// it holds its node.
func (b *benchRun) visible(ctx context.Context, f *flow, cluster string) (took []time.Duration, late int, err error) {
	end := time.Now().Add(time.Duration(b.seconds) * time.Second / 2)
	for i := 0; time.Now().Before(end) && ctx.Err() == nil; i++ {
		snap := f.feed.Clusters(cluster)[cluster].Snapshot
		job, now := fmt.Sprint("visible-", i), time.Now()
		gpus := uint32(1)
		p := &event.Placement{
			Cluster: cluster, Scheduler: "slurm", JobId: job, Source: simulate.Source + ".bench", State: event.State_RUNNING,
			StartMs: event.Millis(now), ObservedAtMs: now.UnixMilli(), Revision: event.Revision(now), Gpus: &gpus,
			Placements: []*event.NodePlacement{{Node: snap.Topology.Nodes[i*7919%len(snap.Topology.Nodes)].Name, Gpus: &gpus}},
		}
		if err := f.producer.Emit(ctx, p); err != nil {
			return nil, 0, err
		}
		for !f.feed.Clusters(cluster)[cluster].Snapshot.Holds(job) && time.Since(now) < 10*time.Second {
			time.Sleep(2 * time.Millisecond)
		}
		if t := time.Since(now); t < 10*time.Second {
			took = append(took, t)
		} else {
			late++
		}
		p.State, p.EndMs, p.Revision = event.State_COMPLETED, event.Millis(time.Now()), event.Revision(time.Now())
		if err := f.producer.Emit(ctx, p); err != nil {
			return nil, 0, err
		}
	}
	return took, late, nil
}

// ask measures POST /v1/advice from callers in this process.
func (b *benchRun) ask(ctx context.Context, base string) error {
	before, start, seconds := processCPU(), time.Now(), max(1, b.seconds/2)
	a, err := askAtRate(ctx, base, seconds)
	if err != nil {
		return err
	}
	b.sayf("  POST /v1/advice at %d/s for %d s: %s; %.2f cores for both ends and the flow behind them; load average %s", adviceRate, seconds, a,
		(processCPU()-before).Seconds()/time.Since(start).Seconds(), loadAverage())
	return nil
}

// askAtRate puts adviceRate questions a second from callers that keep their connections. Each is timed from when it was due,
// whether or not a caller was free then, so that a service that stalls is not asked less. The first seconds, in which
// connections are made, do not count.
func askAtRate(ctx context.Context, base string, seconds int) (*asked, error) {
	const callers = 16
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	const warm = askWarm * adviceRate
	total := adviceRate*seconds + warm
	type question struct {
		at     time.Time
		counts bool
	}
	due := make(chan question, total)
	var mu sync.Mutex
	took := make([]time.Duration, 0, total)
	answers := map[int]int{}
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for q := range due {
				gpus := 4 * (1 + int(q.at.UnixNano()/1000)%36)
				body := fmt.Sprintf(`{"gpus":%d,"class":"train","duration_s":3600}`, gpus)
				status := post(ctx, client, base+"/v1/advice", body)
				mu.Lock()
				if q.counts {
					took = append(took, time.Since(q.at))
					answers[status]++
				}
				mu.Unlock()
			}
		})
	}
	start := time.Now()
	for i := range total {
		at := start.Add(time.Duration(i) * time.Second / adviceRate)
		if wait := time.Until(at); wait > 0 { // time.Sleep is exact to a millisecond only
			rest := syscall.NsecToTimespec(wait.Nanoseconds())
			_ = syscall.Nanosleep(&rest, nil)
		}
		due <- question{at, i >= warm}
	}
	close(due)
	wg.Wait()
	slices.Sort(took)
	return &asked{Took: took, Answers: answers}, ctx.Err()
}

// post gives the status of an answer; 0: none came.
func post(ctx context.Context, client *http.Client, url, body string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// processCPU is the CPU time of this process alone.
func processCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/event"
)

// bigFleet is 10,008 GPUs in 139 racks.
const bigFleet = 139

// tenThousandGPUs is that fleet, without a past, telling about so many records a second.
func tenThousandGPUs(eventsPerSecond float64) simulate.Config {
	fleet := simulate.DefaultConfig()
	fleet.History, fleet.EventsPerSecond = 0, eventsPerSecond
	fleet.Clusters = []simulate.Cluster{simulate.DefaultCluster()}
	fleet.Clusters[0].Racks = bigFleet
	return fleet
}

// watch is an Emitter that remembers when each run first told that it holds GPUs.
type watch struct {
	out collect.Emitter
	// every takes one start in so many.
	every   int
	mu      sync.Mutex
	seen    map[string]bool
	starts  int
	records int
	started chan startedJob
}

type startedJob struct {
	cluster, job string
	at           time.Time
}

// Emit implements collect.Emitter.
func (w *watch) Emit(ctx context.Context, records ...event.Record) error {
	now := time.Now()
	for _, r := range records {
		w.mu.Lock()
		w.records++
		p, ok := r.(*event.Placement)
		if ok && p.GetState() == event.State_RUNNING && p.GetRestart() == 0 && !w.seen[p.GetJobId()] {
			w.seen[p.GetJobId()] = true
			if w.starts++; w.starts%w.every == 0 {
				select {
				case w.started <- startedJob{p.GetCluster(), p.GetJobId(), now}:
				default: // the pollers are behind; a sample less
				}
			}
		}
		w.mu.Unlock()
	}
	return w.out.Emit(ctx, records...)
}

func benchLatency(ctx context.Context, b *benchRun) error {
	fleet := tenThousandGPUs(100)
	fleet.Counters = 0 // job events are what is asked for; counters are measured with their loading
	// At this speed the fleet lives a quarter of an hour a second: real nodes do not fail every few seconds.
	fleet.Clusters[0].NodeMTBF = 0
	collector, err := simulate.New(fleet, simulate.Deps{Log: b.log})
	if err != nil {
		return err
	}
	// Asking is work for ClickHouse too: few enough questions that the answer is about the flow and not about them.
	w := &watch{every: 50, seen: map[string]bool{}, started: make(chan startedJob, 10_000)}
	ready := make(chan struct{})
	f, stop, err := b.running(ctx, stages{load: true, enrich: true, serve: true}, named{"simulate", func(ctx context.Context) error {
		<-ready
		return collector.Run(ctx, w)
	}})
	if err != nil {
		return err
	}
	w.out = f.producer
	close(ready)
	base := "http://" + f.server.Addr()
	const settle = 20 * time.Second // the fleet's first state and the engines' first merges
	begin := time.Now()
	var mu sync.Mutex
	var took []time.Duration
	lost := 0
	measured, cancel := context.WithTimeout(ctx, settle+time.Duration(b.seconds)*time.Second)
	defer cancel()
	var pollers sync.WaitGroup
	for range 4 {
		pollers.Go(func() {
			for {
				select {
				case <-measured.Done():
					return
				case s := <-w.started:
					err := awaitVerdict(ctx, base, s)
					mu.Lock()
					switch {
					case err != nil:
						lost++
					case s.at.Sub(begin) > settle:
						took = append(took, time.Since(s.at))
					}
					mu.Unlock()
				}
			}
		})
	}
	pollers.Wait()
	events := float64(w.records) / time.Since(begin).Seconds()
	p50, p99, most := quantiles(took)
	b.sayf("  %d starts sampled at %.0f records/s: p50 %s, p99 %s, slowest %s, %d without a verdict in 30 s", len(took), events,
		p50.Round(time.Millisecond), p99.Round(time.Millisecond), most.Round(time.Millisecond), lost)
	said := b.sayPassSteps(f.tel.Registry) // while there is still a ClickHouse for the gauges to ask
	return errors.Join(stop(), said)
}

// sayPassSteps prints where the passes spent their time.
func (b *benchRun) sayPassSteps(metrics prometheus.Gatherer) error {
	families, err := metrics.Gather()
	if err != nil {
		return fmt.Errorf("read the metrics: %w", err)
	}
	for _, family := range families {
		if family.GetName() != "spillway_enrich_step_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			h := m.GetHistogram()
			mean := time.Duration(h.GetSampleSum() / float64(max(h.GetSampleCount(), 1)) * float64(time.Second))
			b.sayf("    %-16s %5d times, %8s each", m.GetLabel()[0].GetValue(), h.GetSampleCount(), mean.Round(100*time.Microsecond))
		}
	}
	return nil
}

// awaitVerdict asks the API for a job until it has a verdict.
func awaitVerdict(ctx context.Context, base string, s startedJob) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	target := base + "/v1/jobs/" + url.PathEscape(s.job) + "?cluster=" + url.QueryEscape(s.cluster)
	for {
		var job read.Job
		status, err := getJSON(ctx, target, &job)
		if err != nil {
			return err
		}
		if status == http.StatusOK && len(job.Attempts) > 0 && job.Attempts[0].Verdict != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func getJSON(ctx context.Context, target string, into any) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp.StatusCode, err
	}
	return resp.StatusCode, json.Unmarshal(body, into)
}

func benchSlots(ctx context.Context, b *benchRun) error {
	b.settings.Collect.Simulate = tenThousandGPUs(20)
	b.settings.Collect.Sources = []string{"simulate"}
	f, stop, err := b.running(ctx, stages{collect: true, load: true, enrich: true, serve: true})
	if err != nil {
		return err
	}
	target := "http://" + f.server.Addr() + "/v1/slots?gpus=64"
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		var slots read.Slots
		if _, err := getJSON(ctx, target, &slots); err == nil && len(slots.Domains) >= bigFleet {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the fleet's %d domains did not appear within a minute", bigFleet)
		}
	}
	var took []time.Duration
	for end := time.Now().Add(time.Duration(b.seconds) * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		start := time.Now()
		var slots read.Slots
		if status, err := getJSON(ctx, target, &slots); err != nil || status != http.StatusOK {
			return fmt.Errorf("asking %s: status %d: %w", target, status, err)
		}
		took = append(took, time.Since(start))
	}
	if err := stop(); err != nil {
		return err
	}
	p50, p99, most := quantiles(took)
	b.sayf("  %d calls while jobs come and go: p50 %s, p99 %s, slowest %s", len(took), p50, p99, most)
	return nil
}

func benchIdle(ctx context.Context, b *benchRun) error {
	b.settings.Collect.Sources = []string{"simulate"}
	start := time.Now()
	_, stop, err := b.running(ctx, stages{collect: true, load: true, enrich: true, serve: true})
	if err != nil {
		return err
	}
	b.sayf("  ready after %s", time.Since(start).Round(time.Millisecond))
	time.Sleep(45 * time.Second) // the history is in, the first merges are over
	before, _, err := processTree()
	if err != nil {
		return err
	}
	begin := time.Now()
	time.Sleep(time.Duration(b.seconds) * time.Second)
	after, rss, err := processTree()
	if err != nil {
		return err
	}
	share := (after - before).Seconds() / time.Since(begin).Seconds()
	b.sayf("  %d processes: %.1f %% of a core, %d MB resident", len(rss), 100*share, sum(rss)>>20)
	return stop()
}

func sum(v []int64) (total int64) {
	for _, n := range v {
		total += n
	}
	return total
}

// processTree gives the CPU time and resident bytes of this process and its children, from Linux's /proc.
func processTree() (cpu time.Duration, rss []int64, err error) {
	self := os.Getpid()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return 0, nil, fmt.Errorf("measuring processes needs Linux's /proc")
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		// The second field, the name, may hold spaces and ends at the last parenthesis.
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 22 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		if pid != self && parent != self {
			continue
		}
		user, _ := strconv.ParseInt(fields[11], 10, 64)
		system, _ := strconv.ParseInt(fields[12], 10, 64)
		pages, _ := strconv.ParseInt(fields[21], 10, 64)
		cpu += time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 on every Linux of today
		rss = append(rss, pages*int64(os.Getpagesize()))
	}
	return cpu, rss, nil
}

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/internal/progress"
	"github.com/spillway-io/spillway/query/read"
)

// benchBackfill loads a history of many attempts first and then times the passes alone.
func benchBackfill(ctx context.Context, b *benchRun) error {
	f, stop, err := b.running(ctx, stages{load: true, serve: true})
	if err != nil {
		return err
	}
	from := time.Now().Add(-30 * 24 * time.Hour)
	records := simulate.Hardware(1, bigFleet, from)
	start := time.Now()
	sent := 0
	bar := progress.New(progress.Options{Out: os.Stderr, What: "load", Total: int64(2 * b.attempts), Noun: "records"})
	defer bar.Done()
	send := func() error {
		err := f.producer.Emit(ctx, records...)
		bar.Add(int64(len(records)))
		sent += len(records)
		records = records[:0]
		return err
	}
	for p := range simulate.Attempts(1, bigFleet, b.attempts, from) {
		if records = append(records, p); len(records) >= 5000 {
			if err := send(); err != nil {
				return err
			}
		}
	}
	if err := send(); err != nil {
		return err
	}
	for loaded := uint64(0); loaded < uint64(sent); time.Sleep(200 * time.Millisecond) {
		status, err := f.reader.Status(ctx)
		if err != nil {
			return err
		}
		loaded = 0
		for _, t := range status.Raw {
			loaded += t.Rows
		}
	}
	b.sayf("  %d records of %d attempts through Kafka into ClickHouse: %s", sent, b.attempts, time.Since(start).Round(100*time.Millisecond))

	if err := f.build(stages{enrich: true}); err != nil {
		return err
	}
	most := int64(0)
	sampling, end := context.WithCancel(ctx)
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		for sampling.Err() == nil {
			if _, rss, err := processTree(); err == nil {
				most = max(most, sum(rss))
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	start = time.Now()
	judged := 0
	for {
		stats, err := f.passes.Once(ctx)
		if err != nil {
			end()
			return err
		}
		judged += stats.Judged
		if stats.Rows == 0 {
			break
		}
	}
	took := time.Since(start)
	end()
	<-sampled
	b.sayf("  %d verdicts in %s, at most %d MB resident in all processes", judged, took.Round(100*time.Millisecond), most>>20)
	return stop()
}

// benchJobs fills the derived tables directly: what is measured is the reader.
func benchJobs(ctx context.Context, b *benchRun) error {
	f, stop, err := b.running(ctx, stages{serve: true})
	if err != nil {
		return err
	}
	n := 10 * b.attempts
	const step = 1_000_000
	const first = 10_000_000 // a scheduler counts up; ids that differ in length would stand in no order of time
	for from := 0; from < n; from += step {
		rows := fmt.Sprintf("numbers(%d, %d)", first+from, min(step, n-from))
		for _, statement := range []string{
			`INSERT INTO attempts (cluster, job_id, attempt, number, scheduler, name, user, account, queue, state, start, end, gpus, sources, version)
				SELECT 'bench', toString(number), 'r0', 0, 'slurm', 'train', concat('user', toString(number % 100)), 'a', 'gpu', 'completed',
				toDateTime64('2025-09-07', 3) + number, toDateTime64('2025-09-07', 3) + number + 3600, 8, ['slurm.squeue'], 1 FROM ` + rows,
			`INSERT INTO placements (cluster, job_id, attempt, seq, valid_from, valid_to, nodes, node_gpus, node_gpu_index, gpus, gpus_basis, version)
				SELECT 'bench', toString(number), 'r0', 0, toDateTime64('2025-09-07', 3) + number, toDateTime64('2025-09-07', 3) + number + 3600,
				[concat('n', toString(number % 2500)), concat('n', toString(number % 2499))], [4, 4], [[0, 1, 2, 3], [0, 1, 2, 3]], 8, 'exact', 1 FROM ` + rows,
			`INSERT INTO verdicts (cluster, job_id, attempt, seq, valid_from, valid_to, outcome, gpus, node_count, domains_used, domains_min, domains, domain_gpus, domain_nodes, intent, version)
				SELECT 'bench', toString(number), 'r0', 0, toDateTime64('2025-09-07', 3) + number, toDateTime64('2025-09-07', 3) + number + 3600,
				if(number % 10 = 0, 'spill', 'one_domain'), 8, 2, 1, 1, [concat('rack', toString(number % 139))], [8], [2], 'none', 1 FROM ` + rows,
		} {
			if err := f.conn.Exec(ctx, statement); err != nil {
				return fmt.Errorf("fill the tables: %w", err)
			}
		}
	}
	base := "http://" + f.server.Addr()
	measure := func(what string, calls int, target func() string, into any) error {
		var took []time.Duration
		for range calls {
			start := time.Now()
			if status, err := getJSON(ctx, target(), into); err != nil || status != http.StatusOK {
				return fmt.Errorf("asking %s: status %d: %w", target(), status, err)
			}
			took = append(took, time.Since(start))
		}
		p50, p99, most := quantiles(took)
		b.sayf("  %s, %d attempts stored, %d calls: p50 %s, p99 %s, slowest %s; load average %s", what, n, calls, p50, p99, most, loadAverage())
		return nil
	}
	random := rand.New(rand.NewPCG(1, 2))
	job := func() string { return fmt.Sprintf("%s/v1/jobs/%d", base, first+random.IntN(n)) }
	err = measure("/v1/jobs/{job}", 500, job, &read.Job{})
	if err == nil {
		err = measure("/v1/jobs/{job}?cluster=bench", 500, func() string { return job() + "?cluster=bench" }, &read.Job{})
	}
	if err == nil {
		err = measure("/v1/spills of a day", 20, func() string {
			return base + "/v1/spills?since=2026-01-05T00:00:00Z&until=2026-01-06T00:00:00Z"
		}, &read.Spills{})
	}
	if err != nil {
		return err
	}
	return stop()
}

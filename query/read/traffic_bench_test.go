package read

import (
	"context"
	"testing"
	"time"
)

// BenchmarkJobTraffic asks for 30 days of a job of 128 nodes among 30 days of 100 such jobs.
func BenchmarkJobTraffic(b *testing.B) {
	r := seeded(b)
	ctx := context.Background()
	if err := r.conn.Exec(ctx, `INSERT INTO job_traffic (cluster, job_id, attempt, seq, minute, gpus_measured, nodes_measured, nvlink_bytes, nvlink_gpu_seconds,
			scale_out_bytes, scale_out_gpu_seconds, nodes, node_gpus, gpu_nvlink_bytes, node_nvlink_seconds, node_scale_out_bytes, version)
		SELECT 'alpha', toString(100000 + number % 100), 'r0', 0, toDateTime('2026-10-30 12:00:00', 'UTC') + 60 * intDiv(number, 100), 512, 128,
			cityHash64(number) / 1e4, 512 * 60, cityHash64(number, 1) / 1e6, 512 * 60, if(number % 100 = 7, arrayMap(i -> concat('n', toString(i)), range(128)), []),
			if(number % 100 = 7, arrayMap(i -> [0, 1, 2, 3], range(128)), []), if(number % 100 = 7, arrayMap(i -> [1e12, 2e12, 3e12, i], range(128)), []),
			if(number % 100 = 7, arrayMap(i -> 240, range(128)), []), if(number % 100 = 7, arrayMap(i -> 1e12, range(128)), []), 1
		FROM numbers(100 * 30 * 1440)`); err != nil {
		b.Fatal(err)
	}
	if err := r.conn.Exec(ctx, `INSERT INTO attempts (cluster, job_id, attempt, number, start, version) VALUES ('alpha', '100007', 'r0', 0, '2026-10-30 12:00:00', 1)`); err != nil {
		b.Fatal(err)
	}
	steps := 0
	for b.Loop() {
		got, err := r.JobTraffic(ctx, "alpha", "100007", -1, noon.Add(-30*24*time.Hour), noon)
		if err != nil {
			b.Fatal(err)
		}
		if steps = len(got.Steps); steps < 300 || len(got.Nodes) != 128 {
			b.Fatalf("%d steps, %d nodes", steps, len(got.Nodes))
		}
	}
	b.ReportMetric(float64(steps), "steps")
}

package pass

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

// seedRaw fills the raw tables on the server with n attempts of three events each (pending, running, ended) over 60 days on
// 2592 nodes of 144 racks: 40 % of one node, 20 % of 2, 15 % of 4, 10 % of 8, 10 % of 16, 4 % of 32, 1 % of 64.
func (s *store) seedRaw(n int) {
	s.t.Helper()
	ctx := context.Background()
	for _, q := range []string{
		`INSERT INTO membership_events (kafka_partition, kafka_offset, loaded_at, cluster, node, source, level, level_value, gpu_index, gpu_uuid, gpu_cluster_uuid,
			gpu_clique_id, gpu_state, gpu_status, gpu_health_mask, valid_from, observed_at, revision)
		SELECT 0, number, now64(3), 'c', concat('n', leftPad(toString(number), 4, '0')), 'nvml', [], [], [0], ['g'], [concat('uuid-', toString(intDiv(number, 18)))], [1], ['completed'],
			['success'], [NULL], toDateTime64('2025-01-01', 3, 'UTC'), now64(3), 1 FROM numbers(2592)`,
		`INSERT INTO node_events (kafka_partition, kafka_offset, loaded_at, cluster, node, source, gpus_present, schedulable, valid_from, observed_at, revision)
		SELECT 0, number, now64(3), 'c', concat('n', leftPad(toString(number), 4, '0')), 'slurm', 4, true, toDateTime64('2025-01-01', 3, 'UTC'), now64(3), 1 FROM numbers(2592)`,
		fmt.Sprintf(`INSERT INTO placement_events (kafka_partition, kafka_offset, loaded_at, cluster, job_id, scheduler, source, restart, name, user, account, queue, state, submit, start, end,
			time_limit_ms, gpus, intent_mode, nodes, node_gpus, node_gpu_index, node_from, node_to, observed_at, revision)
		SELECT intDiv(i, 2) %% 4, intDiv(number, 4), now64(3), 'c', toString(1000000 + i), 'slurm', 'slurm.squeue', 0, concat('train-', toString(i %% 1000)), concat('u', toString(i %% 100)),
			concat('a', toString(i %% 20)), 'gpu', [1, 2, 5][k + 1], t0 - 60, if(k > 0, t0, NULL), if(k = 2, t0 + dur, NULL), 7200000, 4 * nodes_n, 'none',
			if(k = 1, arrayMap(x -> concat('n', leftPad(toString((off + x) %% 2592), 4, '0')), range(nodes_n)), []), if(k = 1, arrayMap(x -> 4, range(nodes_n)), []),
			if(k = 1, arrayMap(x -> [0, 1, 2, 3], range(nodes_n)), []), if(k = 1, arrayMap(x -> NULL, range(nodes_n)), []), if(k = 1, arrayMap(x -> NULL, range(nodes_n)), []),
			[t0 - 60, t0 + 1, t0 + dur + 1][k + 1] AS seen, toUnixTimestamp64Micro(seen)
		FROM (SELECT number, intDiv(number, 3) AS i, number %% 3 AS k, cityHash64(i) AS h, toDateTime64('2026-01-01', 3, 'UTC') + toIntervalSecond(toUInt64(i * %f)) AS t0, 60 + h %% 5000 AS dur,
			intDiv(h, 7) %% 2592 AS off, intDiv(h, 11) %% 100 AS r, multiIf(r < 40, 1, r < 60, 2, r < 75, 4, r < 85, 8, r < 95, 16, r < 99, 32, 64) AS nodes_n FROM numbers(%d))`,
			5184000/float64(n), 3*n),
	} {
		if err := s.Conn.Exec(ctx, q); err != nil {
			s.t.Fatalf("%s: %v", q[:60], err)
		}
	}
}

// BenchmarkBackfill folds and judges attempts afresh, then judges all of them again, then does passes of 20 events.
// SPILLWAY_BENCH_ATTEMPTS is how many; the default is small enough for every day.
func BenchmarkBackfill(b *testing.B) {
	n := 50_000
	if v, err := strconv.Atoi(os.Getenv("SPILLWAY_BENCH_ATTEMPTS")); err == nil {
		n = v
	}
	for b.Loop() {
		s := newStore(b)
		s.seedRaw(n)
		begun := time.Now()
		stats := s.once()
		b.ReportMetric(time.Since(begun).Seconds(), "s/backfill")
		b.Logf("fold and judge: %+v", stats)
		for _, step := range []string{"membership", "nodes", "attempts", "affected", "judge", "capacity", "judge_read", "judge_facts", "judge_rule", "judge_store", "judge_send"} {
			b.Logf("%-16s %6.2f s", step, s.seconds(step))
		}
		if err := s.Conn.Exec(context.Background(), "OPTIMIZE TABLE domain_capacity FINAL"); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(s.count("SELECT count() FROM domain_capacity")), "rows")
		b.ReportMetric(float64(s.count("SELECT sum(data_compressed_bytes) FROM system.parts WHERE database = currentDatabase() AND table = 'domain_capacity' AND active")), "bytes")
		begun = time.Now()
		again, err := s.Rejudge(context.Background(), time.Unix(0, 0), schema.OpenEnd)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(begun).Seconds(), "s/rejudge")
		b.Logf("judge again: %+v", again)
		begun = time.Now()
		const passes = 10
		for i := range passes {
			s.feed(benchEvents(i)...)
			s.once()
		}
		b.ReportMetric(time.Since(begun).Seconds()*1000/passes, "ms/pass20")
		begun = time.Now()
		for range 100 {
			s.once()
		}
		b.ReportMetric(time.Since(begun).Seconds()*10, "ms/idle")
	}
}

// benchEvents are 20 records of new jobs, one in ten of them over two racks.
func benchEvents(pass int) []event.Record {
	at := time.Date(2026, 3, 2, 0, 0, pass, 0, time.UTC).UnixMilli()
	var out []event.Record
	for i := range 20 {
		off := (pass*20 + i) * 3
		r := &event.Placement{Cluster: "c", JobId: strconv.Itoa(9_000_000 + pass*20 + i), Scheduler: "slurm", Source: "slurm.squeue", Restart: new(uint32(0)),
			State: event.State_RUNNING, StartMs: &at, Gpus: new(uint32(8)), ObservedAtMs: at, Revision: uint64(at) * 1000}
		for _, n := range []int{off, off + 1 + i/18*18} {
			r.Placements = append(r.Placements, &event.NodePlacement{Node: fmt.Sprintf("n%04d", n%2592), Gpus: new(uint32(4))})
		}
		out = append(out, r)
	}
	return out
}

// seconds is the time all steps of a name have taken.
func (s *store) seconds(step string) float64 {
	var m dto.Metric
	if err := s.m.seconds.WithLabelValues(step).(prometheus.Metric).Write(&m); err != nil {
		s.t.Fatal(err)
	}
	return m.GetHistogram().GetSampleSum()
}

package read

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

// filled gives a reader whose now is noon over a migrated database holding what the statements insert.
func filled(b *testing.B, statements ...string) *Reader {
	b.Helper()
	server := testenv.ClickHouse(b)
	ctx := context.Background()
	if err := clickhouse.Migrate(ctx, server.Conn, clickhouse.Options{Database: server.Database}); err != nil {
		b.Fatal(err)
	}
	for _, statement := range statements {
		if err := server.Conn.Exec(ctx, statement); err != nil {
			b.Fatal(err)
		}
	}
	return New(server.Conn, func() time.Time { return noon })
}

// mapSeed is 100,008 GPUs in 1,389 racks with 6,000 jobs.
var mapSeed = []string{
	`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, levels, source, generation, version)
		SELECT 'c', concat('r', toString(intDiv(number, 18)), 'n', toString(number % 18)), '2026-01-01', '2200-01-01',
		concat('d', toString(intDiv(number, 18))), map('rack', concat('rack', toString(intDiv(number, 18)))), 'nvml', 1, 1 FROM numbers(25002)`,
	`INSERT INTO node_states (cluster, node, valid_from, valid_to, gpus_present, gpus_usable, schedulable, state_raw, version)
		SELECT 'c', concat('r', toString(intDiv(number, 18)), 'n', toString(number % 18)), '2026-01-01', '2200-01-01', 4, 4, true, 'ALLOCATED', 1 FROM numbers(25002)`,
	`INSERT INTO attempts (cluster, job_id, attempt, name, user, account, state, start, gpus, version)
		SELECT 'c', toString(number), 'r0', 'train', 'u', 'a', 'running', '2026-11-01', 16, 1 FROM numbers(6000)`,
	`INSERT INTO placements (cluster, job_id, attempt, valid_from, valid_to, nodes, node_gpus, gpus, gpus_basis, version)
		SELECT 'c', toString(number), 'r0', '2026-11-01', '2200-01-01',
		arrayMap(i -> concat('r', toString(intDiv(number * 4 + i, 18)), 'n', toString((number * 4 + i) % 18)), range(4)), [4, 4, 4, 4], 16, 'exact', 1 FROM numbers(6000)`,
	`INSERT INTO verdicts (cluster, job_id, attempt, valid_from, valid_to, outcome, gpus, domains_used, domains_min, version)
		SELECT 'c', toString(number), 'r0', '2026-11-01', '2200-01-01', 'spill', 16, 2, 1, 1 FROM numbers(6000)`,
}

// BenchmarkMap asks for 100,008 GPUs in 1,389 racks with 6,000 jobs, nothing remembered.
func BenchmarkMap(b *testing.B) {
	r := filled(b, mapSeed...)
	for b.Loop() {
		m, err := r.MapAt(context.Background(), "", noon)
		if err != nil || len(m.Domains.Domain) != 1389 || len(m.Held.Node) != 24000 {
			b.Fatal(len(m.Domains.Domain), err)
		}
	}
}

// BenchmarkExceptions looks through the same fleet for what does not fit, nothing remembered; BenchmarkViews compares both
// views of its nodes.
func BenchmarkExceptions(b *testing.B) {
	r := filled(b, mapSeed...)
	for b.Loop() {
		r.exceptions.all.Store(nil)
		if got, err := r.Exceptions(context.Background(), ""); err != nil || len(got.Exceptions) != 0 {
			b.Fatal(got, err)
		}
	}
}

func BenchmarkViews(b *testing.B) {
	r := filled(b, mapSeed...)
	for b.Loop() {
		if got, err := r.Views(context.Background(), ""); err != nil || len(got.Differences) != 0 {
			b.Fatal(got, err)
		}
	}
}

// BenchmarkReport sums up a week of 10,008 GPUs: 50,000 placements, and a change of capacity every five minutes in each of
// 139 domains.
func BenchmarkReport(b *testing.B) {
	r := filled(b,
		`INSERT INTO attempts (cluster, job_id, attempt, name, account, state, start, gpus, version)
			SELECT 'c', toString(number), 'r0', 'train', concat('a', toString(number % 20)), 'completed', '2026-11-22', 16, 1 FROM numbers(50000)`,
		`INSERT INTO verdicts (cluster, job_id, attempt, valid_from, valid_to, outcome, gpus, domains, domain_gpus, version)
			SELECT 'c', toString(number), 'r0', toDateTime64('2026-11-22 12:00:00', 3) + number * 12, toDateTime64('2026-11-22 16:00:00', 3) + number * 12,
			if(number % 5 = 0, 'spill', 'one_domain'), 16, [concat('d', toString(number % 139)), concat('d', toString((number + 1) % 139))], [8, 8], 1 FROM numbers(50000)`,
		`INSERT INTO domain_capacity (cluster, domain, minute, nodes, nodes_free, gpus, gpus_usable, gpus_free, slot_sizes, slots, gpus_basis, version)
			SELECT 'c', concat('d', toString(number % 139)), toDateTime('2026-11-22 00:00:00') + 300 * intDiv(number, 139), 18, number % 18, 72, 72,
			4 * (number % 18), [1, 4, 64], [1, 1, 0], 'exact', 1 FROM numbers(139 * 2200)`)
	for b.Loop() {
		report, err := r.Report(context.Background(), "", noon.Add(-7*24*time.Hour), noon, 64, advise.DefaultLinks())
		if err != nil || report.Total.Placements != 50000 || len(report.Accounts) != 20 {
			b.Fatal(report, err)
		}
	}
}

// BenchmarkFragmentation tells the history of a week of 10,008 GPUs: a change of capacity every five minutes in each of 139
// domains, and what 2,502 nodes are told again every hour.
func BenchmarkFragmentation(b *testing.B) {
	r := filled(b,
		`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, generation, version)
			SELECT 'c', concat('n', toString(number)), '2026-01-01', '2200-01-01', concat('d', toString(number % 139)), 1, 1 FROM numbers(2502)`,
		`INSERT INTO node_events (kafka_partition, kafka_offset, loaded_at, cluster, node, source, gpus_present, gpu_model, observed_at, revision)
			SELECT 0, number, toDateTime64('2026-11-21 00:00:00', 3) + 3600 * intDiv(number, 2502) AS at, 'c', concat('n', toString(number % 2502)), 'slurm', 4, 'gb200', at, number
			FROM numbers(2502 * 24 * 8)`,
		`INSERT INTO domain_capacity (cluster, domain, minute, nodes, nodes_free, gpus, gpus_usable, gpus_free, slot_sizes, slots, node_ends, gpus_basis, version)
			SELECT 'c', concat('d', toString(number % 139)), toDateTime('2026-11-22 00:00:00') + 300 * intDiv(number, 139), 18, number % 18, 72, 72,
			4 * (number % 18), [1, 4, 64], [1, 1, 0], arrayMap(i -> toDateTime('2026-11-30 00:00:00') + i, range(18 - number % 18)), 'exact', 1 FROM numbers(139 * 2200)`)
	for b.Loop() {
		history, err := r.FragmentationSince(context.Background(), "", noon.Add(-7*24*time.Hour), noon, 64, advise.DefaultConfig().Mix, nil)
		if err != nil || len(history) != historyPoints {
			b.Fatal(len(history), err)
		}
	}
}

// BenchmarkFreshness asks what waits to be judged among two hours at 200 records a second, nothing remembered.
func BenchmarkFreshness(b *testing.B) {
	r := filled(b,
		`INSERT INTO placement_events (kafka_partition, kafka_offset, loaded_at, cluster, job_id, scheduler, source, state, observed_at)
			SELECT number % 6, intDiv(number, 6), toDateTime64('2026-11-29 10:00:00', 3) + number / 200, 'c', toString(cityHash64(number) % 100000), 'slurm', 'slurm.squeue', 'running', '2026-11-29 10:00:00' FROM numbers(1440000)`,
		`INSERT INTO pass_progress (pass, raw_table, kafka_partition, next_offset, version)
			SELECT 'judge', 'placement_events', number, 239900, toUnixTimestamp64Micro(toDateTime64('2026-11-29 11:59:57', 6)) FROM numbers(6)`)
	for b.Loop() {
		got, err := r.readUnjudged(context.Background(), noon, backlogWindow)
		if err != nil || len(got) != 1 || got[0].Rows != 600 {
			b.Fatal(got, err)
		}
	}
}

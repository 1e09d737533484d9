package traffic

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkHour joins one hour of 10,000 GPUs, with as many ports, at a scrape in 10 s with the 500 jobs that hold them.
func BenchmarkHour(b *testing.B) {
	s := newStore(b)
	fill(b, s, 2500, 360)
	minutes := make([]time.Time, 60)
	for i := range minutes {
		minutes[i] = caseStart.Add(time.Duration(i) * time.Minute)
	}
	ctx := context.Background()
	if err := s.pass.load(ctx); err != nil {
		b.Fatal(err)
	}
	if _, err := s.pass.count(ctx, minutes); err != nil {
		b.Fatal(err)
	}
	b.Run("join", func(b *testing.B) {
		defer serverCPU(b)()
		for b.Loop() {
			s.pass.state.version++
			var work []func(context.Context) error
			for part := range slices.Chunk(minutes, chunk) {
				work = append(work, func(ctx context.Context) error {
					ctx, err := s.pass.unsure(ctx, part)
					if err == nil {
						_, err = s.pass.join(ctx, part, "1", "1")
					}
					return err
				})
			}
			if err := inParallel(ctx, work); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("join and minutes", func(b *testing.B) {
		defer serverCPU(b)()
		for b.Loop() {
			s.pass.state.version++
			if _, err := s.pass.count(ctx, minutes); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("evidence of all jobs", func(b *testing.B) {
		keys, err := s.pass.keys(ctx, "SELECT cluster, job_id, attempt, seq FROM placements")
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			s.pass.state.version++
			if err := s.pass.weigh(ctx, slices.Clone(keys), 1, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("one minute as it fills", func(b *testing.B) {
		for b.Loop() {
			s.pass.state.version++
			if _, err := s.pass.count(ctx, minutes[58:]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// serverCPU reports the CPU time of this process's children, which is ClickHouse: a busy machine does not change it much.
func serverCPU(b *testing.B) func() {
	used := func() (sum float64) {
		paths, _ := filepath.Glob("/proc/[0-9]*/stat") // none elsewhere than on Linux
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // ended meanwhile
			}
			_, rest, _ := strings.Cut(string(text), ") ")
			if f := strings.Fields(rest); f[1] == strconv.Itoa(os.Getpid()) {
				user, _ := strconv.ParseFloat(f[11], 64)
				system, _ := strconv.ParseFloat(f[12], 64)
				sum += (user + system) / 100
			}
		}
		return sum
	}
	before := used()
	return func() { b.ReportMetric((used()-before)/float64(b.N), "server-cpu-s/op") }
}

// fill makes a fleet of nodes with four GPUs and four ports, in jobs of five nodes.
func fill(b *testing.B, s *store, nodes, scrapes int) {
	b.Helper()
	for _, entity := range []string{"gpu", "nic"} {
		s.exec(b, `INSERT INTO counters (kafka_partition, kafka_offset, loaded_at, cluster, node, source, observed_at, entity, gpu, name, uuid, tx_bytes, rx_bytes, sm_active)
			SELECT 0, %[1]d + number, '2026-11-29 12:00:00', 'east', concat('gb200-n', leftPad(toString(intDiv(number, 4) %% %[2]d), 4, '0')), 'dcgm',
				toDateTime64('2026-11-29 10:00:00', 3, 'UTC') + toIntervalMillisecond(10000 * intDiv(number, 4 * %[2]d) + cityHash64(intDiv(number, 4) %% %[2]d) %% 10000),
				'%[3]s', if('%[3]s' = 'gpu', number %% 4, 0), if('%[3]s' = 'gpu', '', concat('mlx5_', toString(number %% 4))), '',
				bitAnd(toUInt64(intDiv(number, 4 * %[2]d) * 2e12 + cityHash64(number) %% 100000000000), bitNot(toUInt64(1048575))),
				bitAnd(toUInt64(intDiv(number, 4 * %[2]d) * 2e12 + cityHash64(number, 1) %% 100000000000), bitNot(toUInt64(1048575))), 0.8
			FROM numbers(%[4]d)`, s.offset, nodes, entity, 4*nodes*scrapes)
		s.offset += 4 * nodes * scrapes
	}
	s.exec(b, "OPTIMIZE TABLE counters FINAL")
	s.exec(b, `INSERT INTO placements (cluster, job_id, attempt, seq, valid_from, valid_to, nodes, node_gpus, node_gpu_index, gpus, version)
		SELECT 'east', toString(number), 'r0', 0, '2026-11-29 09:00:00', '2200-01-01 00:00:00',
			arrayMap(i -> concat('gb200-n', leftPad(toString(number * 5 + i), 4, '0')), range(5)), [4, 4, 4, 4, 4],
			[[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]], 20, 1
		FROM numbers(%d)`, nodes/5)
	s.exec(b, `INSERT INTO node_states (cluster, node, valid_from, valid_to, gpus_present, version)
		SELECT 'east', concat('gb200-n', leftPad(toString(number %% %[1]d), 4, '0')), toDateTime64('2026-11-01', 3, 'UTC') + toIntervalDay(intDiv(number, %[1]d)),
			if(number < 9 * %[1]d, toDateTime64('2026-11-01', 3, 'UTC') + toIntervalDay(1 + intDiv(number, %[1]d)), toDateTime64('2200-01-01', 3, 'UTC')), 4, 1
		FROM numbers(%[1]d * 10)`, nodes)
	s.exec(b, "INSERT INTO verdicts (cluster, job_id, attempt, seq, outcome, version) SELECT 'east', job_id, 'r0', 0, 'one_domain', 1 FROM placements")
}

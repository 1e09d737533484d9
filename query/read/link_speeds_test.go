package read

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

// TestLinkSpeeds seeds two racks of 18 nodes of 4 GPUs each under one leaf, one HGX node under another, and runs on them.
func TestLinkSpeeds(t *testing.T) {
	server, ctx := testenv.ClickHouse(t), context.Background()
	if err := clickhouse.Migrate(ctx, server.Conn, clickhouse.Options{Database: server.Database}); err != nil {
		t.Fatal(err)
	}
	exec := func(statement string, args ...any) {
		t.Helper()
		if err := server.Conn.Exec(ctx, fmt.Sprintf(statement, args...)); err != nil {
			t.Fatalf("%v in\n%s", err, fmt.Sprintf(statement, args...))
		}
	}
	member := func(node, from, to, domain, levels string, version int) {
		exec(`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, levels, version) VALUES ('alpha', '%s', '%s', '%s', '%s', %s, %d)`,
			node, from, to, domain, levels, version)
	}
	const before, open = "2026-01-01 00:00:00", "2200-01-01 00:00:00"
	for i := range 2 {
		member(fmt.Sprint("a", i), before, open, "A", "{'leaf': 'l1'}", 1)
		member(fmt.Sprint("b", i), before, open, "B", "{'leaf': 'l1'}", 1)
		member(fmt.Sprint("h", i), before, open, fmt.Sprint("H", i), "{'leaf': 'l2'}", 1)
	}
	// This node moved, from rack A to B, and what was said first of when is withdrawn.
	member("m", before, open, "C", "{'leaf': 'l9'}", 1)
	member("m", before, "2026-01-10 00:00:00", "A", "{'leaf': 'l1'}", 2)
	member("m", "2026-01-10 00:00:00", open, "B", "{'leaf': 'l1'}", 2)
	member("u", before, open, "", "{}", 1) // not known

	run := 0
	bench := func(at, operation, nodes, gpus, joined, sizes, bus, more string) {
		t.Helper()
		run++
		wrong, failure, id, revision := "0", "", fmt.Sprint("run", run), run
		switch {
		case more == "wrong":
			wrong = "3"
		case more == "failed":
			failure = "Test NCCL failure"
		case strings.HasPrefix(more, "again "):
			id = strings.TrimPrefix(more, "again ")
		}
		n := strings.Count(sizes, ",") + 1
		exec(`INSERT INTO benchmark_events (loaded_at, kafka_offset, cluster, run_id, operation, gpu_model, node, node_gpus, node_cluster_uuid, multi_node_nvlink,
				size_bytes, in_place, data_type, reduction, seconds, algorithm_bytes_per_second, bus_bytes_per_second, wrong_values, wrong_total, failure, observed_at, revision)
			SELECT now(), %d, 'alpha', '%s', '%s', 'G', [%s], [%s], arrayMap(x -> '', [%s]), %s, [%s], arrayMap(x -> false, range(%d)), arrayMap(x -> 'float', range(%d)),
				arrayMap(x -> 'sum', range(%d)), arrayMap(x -> 1., range(%d)), arrayMap(x -> 1., range(%d)), [%s], arrayMap(x -> 0., range(%d)), %s, '%s', '%s', %d`,
			run, id, operation, nodes, gpus, gpus, joined, sizes, n, n, n, n, n, bus, n, wrong, failure, at, revision)
	}
	const day5, day15, big = "2026-01-05 00:00:00", "2026-01-15 00:00:00", "1073741824"
	bench(day5, "all_reduce", "'a0','a1'", "4,4", "true", "1024, "+big+", "+big, "1e9, 800e9, 840e9", "")
	bench(day5, "all_reduce", "'a0','a1'", "4,4", "true", big, "700e9", "")
	bench(day5, "all_reduce", "'a0','a1'", "4,4", "true", big, "1e9", "")
	bench(day5, "all_reduce", "'a0','a1'", "4,4", "true", big, "760e9", "again run3") // the same run, read further
	bench(day5, "all_reduce", "'a0','m'", "4,4", "true", big, "720e9", "")            // in one rack then
	bench(day15, "all_reduce", "'a0','m'", "4,4", "false", big, "180e9", "")          // and no longer: nodes of 4 GPUs over NICs
	bench(day15, "all_reduce", "'a0','a1','b0'", "4,4,4", "true", big, "200e9", "")   // racks of 8 and 4
	bench(day15, "all_reduce", "'a0','a1','b0','b1'", "4,4,4,4", "NULL", big, "210e9", "")
	bench(day15, "alltoall", "'h0','h1'", "8,8", "NULL", big, "90e9", "") // groups of 8 whichever way: (16 - 8) / 15 of it crosses
	bench(day15, "all_gather", "'a0','h0'", "4,8", "NULL", big, "160e9", "")
	bench(day15, "all_reduce", "'a0','u'", "4,4", "NULL", big, "5e9", "")
	bench(day15, "all_reduce", "'a0','nobody'", "4,4", "NULL", big, "7e9", "")
	bench(day15, "all_reduce", "'a0'", "4", "NULL", big, "690e9", "")
	bench(day15, "all_reduce", "'a0','a1'", "4,4", "false", big, "184e9", "") // in one rack, and over NICs all the same
	bench(day15, "all_reduce", "'b0','b1'", "4,4", "NULL", big, "500e9", "")  // in one rack, and whether over NVLink nobody says
	// None of these tells a speed.
	bench(day15, "all_reduce", "'a0'", "4", "NULL", "1024", "1e9", "")
	bench(day15, "all_reduce", "'a0'", "4", "NULL", big, "1e9", "wrong")
	bench(day15, "all_reduce", "'a0'", "4", "NULL", big, "1e9", "failed")
	bench("2025-01-15 00:00:00", "all_reduce", "'a0'", "4", "NULL", big, "1e9", "")

	r := New(server.Conn, time.Now)
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	speeds, err := r.LinkSpeeds(ctx, "alpha", from, from.AddDate(0, 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, s := range speeds {
		joined, perGPU := "-", "-"
		if s.Joined != nil {
			joined = fmt.Sprint(*s.Joined)
		}
		if s.PerGPUP50 != nil {
			perGPU = fmt.Sprintf("%g/%g/%g", tenths(*s.PerGPUP10), tenths(*s.PerGPUP50), tenths(*s.PerGPUP90))
		}
		of := "whole"
		if !s.WholeLevel {
			of = strings.Join(s.Domains, "+") + " " + s.Operation
		}
		got += fmt.Sprintf("%s joined=%s %s: %d runs, bus %g/%g/%g, per GPU %s of %d\n", s.Level, joined, of, s.Runs,
			tenths(s.BusP10), tenths(s.BusP50), tenths(s.BusP90), perGPU, s.RunsPerGPU)
	}
	want := `cluster joined=- whole: 1 runs, bus 160/160/160, per GPU 40/40/40 of 1
cluster joined=- A+H0 all_gather: 1 runs, bus 160/160/160, per GPU 40/40/40 of 1
domain joined=false whole: 1 runs, bus 184/184/184, per GPU 46/46/46 of 1
domain joined=false A all_reduce: 1 runs, bus 184/184/184, per GPU 46/46/46 of 1
domain joined=true whole: 4 runs, bus 700/760/840, per GPU 700/760/840 of 4
domain joined=true A all_reduce: 4 runs, bus 700/760/840, per GPU 700/760/840 of 4
domain joined=- whole: 1 runs, bus 500/500/500, per GPU - of 0
domain joined=- B all_reduce: 1 runs, bus 500/500/500, per GPU - of 0
leaf joined=false whole: 1 runs, bus 180/180/180, per GPU 45/45/45 of 1
leaf joined=false A+B all_reduce: 1 runs, bus 180/180/180, per GPU 45/45/45 of 1
leaf joined=true whole: 1 runs, bus 200/200/200, per GPU 50/50/50 of 1
leaf joined=true A+B all_reduce: 1 runs, bus 200/200/200, per GPU 50/50/50 of 1
leaf joined=- whole: 2 runs, bus 90/210/210, per GPU 48/48/48 of 1
leaf joined=- A+B all_reduce: 1 runs, bus 210/210/210, per GPU - of 0
leaf joined=- H0+H1 alltoall: 1 runs, bus 90/90/90, per GPU 48/48/48 of 1
node joined=- whole: 1 runs, bus 690/690/690, per GPU 690/690/690 of 1
node joined=- A all_reduce: 1 runs, bus 690/690/690, per GPU 690/690/690 of 1
unknown joined=- whole: 2 runs, bus 5/7/7, per GPU - of 0
unknown joined=- +A all_reduce: 2 runs, bus 5/7/7, per GPU - of 0
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if none, err := r.LinkSpeeds(ctx, "beta", from, from.AddDate(0, 1, 0)); err != nil || len(none) != 0 {
		t.Errorf("of another cluster: %v, %v", none, err)
	}
	if all, err := r.LinkSpeeds(ctx, "", from, from.AddDate(0, 1, 0)); err != nil || len(all) != len(speeds) {
		t.Errorf("of all clusters: %d rows, %v", len(all), err)
	}
}

// tenths is bytes per second in GB/s with one decimal.
func tenths(v float64) float64 { return math.Round(v/1e8) / 10 }

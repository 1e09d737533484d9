package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/ledger"
	"github.com/spillway-io/spillway/query/live"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

// BenchmarkAdvice100kGPUs answers POST /v1/advice from a picture of 100,008 GPUs, nine tenths of them held, with the
// ledger that keeps each answer: all but the network.
func BenchmarkAdvice100kGPUs(b *testing.B) {
	s := hugeFleet(b)
	bodies := make([]string, 36)
	for i := range bodies {
		bodies[i] = fmt.Sprintf(`{"gpus":%d,"class":"train","duration_s":3600}`, 4*(1+i))
	}
	took := make([]time.Duration, 0, 1<<16)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := httptest.NewRequest(http.MethodPost, "/v1/advice", strings.NewReader(bodies[i%len(bodies)]))
		r.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		start := time.Now()
		s.Handler().ServeHTTP(rec, r)
		if len(took) < cap(took) {
			took = append(took, time.Since(start))
		}
		if rec.Code != http.StatusOK {
			b.Fatalf("got %d %s", rec.Code, rec.Body)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-us")
}

// hugeFleet serves a picture of 1,389 domains of 18 nodes with jobs of six nodes.
func hugeFleet(b *testing.B) *Server {
	b.Helper()
	db := testenv.ClickHouse(b)
	if err := clickhouse.Migrate(b.Context(), db.Conn, clickhouse.Options{Database: db.Database}); err != nil {
		b.Fatal(err)
	}
	const node = `concat('n', leftPad(toString(%s), 5, '0'))`
	for _, q := range []string{
		`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, generation, version)
			SELECT 'c1', ` + fmt.Sprintf(node, "number") + `, 0, '2200-01-01', concat('d', leftPad(toString(intDiv(number, 18)), 4, '0')), 1, 1 FROM numbers(25002)`,
		`INSERT INTO node_facts (cluster, node, source, valid_from, valid_to, gpus_present, revision, version)
			SELECT 'c1', ` + fmt.Sprintf(node, "number") + `, 'slurm', 0, '2200-01-01', 4, 1, 1 FROM numbers(25002)`,
		`INSERT INTO placements (cluster, job_id, attempt, valid_from, valid_to, nodes, node_gpus, version)
			SELECT 'c1', toString(number), 'r0', 0, '2200-01-01', arrayMap(i -> ` + fmt.Sprintf(node, "number * 6 + i") + `, range(6)), [4, 4, 4, 4, 4, 4], 1
			FROM numbers(4167) WHERE cityHash64(number) % 10 > 0`,
		`INSERT INTO attempts (cluster, job_id, attempt, state, start, expected_end, sources, version)
			SELECT 'c1', toString(number), 'r0', 'running', now(), now() + 60 + cityHash64(number) % 100000, ['slurm.squeue'], 1 FROM numbers(4167)`,
		`INSERT INTO source_events (kafka_partition, kafka_offset, loaded_at, cluster, source, good_at, interval_ms, observed_at)
			VALUES (0, 0, now64(3), 'c1', 'slurm', now64(3), 3600000, now64(3))`,
	} {
		if err := db.Conn.Exec(b.Context(), q); err != nil {
			b.Fatalf("%v in:\n%s", err, q)
		}
	}
	feed, err := live.New(live.DefaultConfig(), live.Deps{Conn: db.Conn, Log: said(nil), Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	kept, err := ledger.New(ledger.DefaultConfig(), ledger.Deps{Write: db.Conn, Read: db.Conn, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 2)
	go func() { done <- feed.Run(ctx) }()
	go func() { done <- kept.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		for range 2 {
			if err := <-done; err != nil {
				b.Error(err)
			}
		}
	})
	testenv.Eventually(b, 60*time.Second, func() error {
		if feed.Clusters("")["c1"] == nil {
			return fmt.Errorf("no picture has been read")
		}
		return nil
	})
	s, err := New(DefaultConfig(), Deps{Now: time.Now, Log: slog.New(slog.DiscardHandler), Feed: feed, Ledger: kept})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

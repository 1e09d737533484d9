package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

// BenchmarkScrape reads /metrics over the fleet and the 30 days that the boards are measured on, every fact asked anew.
func BenchmarkScrape(b *testing.B) {
	store := testenv.ClickHouse(b)
	ctx := context.Background()
	if err := clickhouse.Migrate(ctx, store.Conn, clickhouse.Options{Database: store.Database}); err != nil {
		b.Fatal(err)
	}
	seed, err := os.ReadFile("../../dashboards/testdata/seed.sql")
	if err != nil {
		b.Fatal(err)
	}
	const days = 30
	now := time.Now()
	moment := func(t time.Time) string {
		return "toDateTime64('" + t.UTC().Format("2006-01-02 15:04:05.000") + "', 3, 'UTC')"
	}
	values := strings.NewReplacer("{domains:UInt32}", "139", "{attempts:UInt32}", "200000", "{days:UInt32}", strconv.Itoa(days),
		"{now:DateTime64(3)}", moment(now), "{from:DateTime64(3)}", moment(now.AddDate(0, 0, -days)))
	for _, statement := range strings.Split(values.Replace(string(seed)), ";\n") {
		if strings.TrimSpace(statement) != "" {
			if err := store.Exec(ctx, statement); err != nil {
				b.Fatal(err)
			}
		}
	}
	clock := time.Now()
	tick := func() time.Time { clock = clock.Add(10 * time.Millisecond); return clock }
	s, err := New(DefaultConfig(), Deps{
		Reader: read.New(store.Conn, tick), Ping: store.Ping, Log: slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry(), Now: tick, Version: "1",
	})
	if err != nil {
		b.Fatal(err)
	}
	scrape := func() string {
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "GET", "/metrics", nil))
		return rec.Body.String()
	}
	begin := time.Now()
	testenv.Eventually(b, 2*time.Minute, func() error {
		clock = clock.Add(5 * time.Second)
		if !strings.Contains(scrape(), "spillway_query_facts_up 1\n") {
			return errors.New("facts are missing")
		}
		return nil
	})
	b.Logf("the first whole scrape after %s", time.Since(begin).Round(time.Millisecond))
	best, series := time.Hour, 0
	for b.Loop() {
		clock = clock.Add(5 * time.Second)
		begin := time.Now()
		text := scrape()
		best = min(best, time.Since(begin))
		series = strings.Count(text, "\nspillway_")
	}
	b.ReportMetric(float64(best.Microseconds())/1000, "best-ms")
	b.ReportMetric(float64(series), "series")
}

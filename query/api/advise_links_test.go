package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/ledger"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

// measured is a server over two clusters with runs of nccl-tests: in one domain, and between two of a leaf. Nothing else
// is known of them.
func measured(t *testing.T, advise AdviseConfig) *Server {
	t.Helper()
	store, ctx := testenv.ClickHouse(t), t.Context()
	if err := clickhouse.Migrate(ctx, store.Conn, clickhouse.Options{Database: store.Database}); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"alpha", "beta"} {
		for i, domain := range []string{"A", "A", "B"} {
			if err := store.Exec(ctx, fmt.Sprintf(`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, levels, version)
				VALUES ('%s', 'n%d', '2026-11-01 00:00:00', '2200-01-01 00:00:00', '%s', {'leaf': 'l1'}, 1)`, cluster, i, domain)); err != nil {
				t.Fatal(err)
			}
		}
		for i, run := range []struct{ nodes, bus string }{{"'n0','n1'", "800e9"}, {"'n0','n2'", "160e9"}} {
			if err := store.Exec(ctx, fmt.Sprintf(`INSERT INTO benchmark_events (loaded_at, kafka_offset, cluster, run_id, operation, gpu_model, node, node_gpus,
				node_cluster_uuid, multi_node_nvlink, size_bytes, in_place, data_type, reduction, seconds, algorithm_bytes_per_second, bus_bytes_per_second,
				wrong_values, wrong_total, failure, observed_at, revision)
				VALUES (now(), %d, '%s', 'r%[1]d', 'all_reduce', 'G', [%[3]s], [4,4], ['',''], true, [1073741824], [false], ['float'], ['sum'], [1], [1], [%[4]s],
				[0], 0, '', '2026-11-29 0%[1]d:00:00', 1)`, i+1, cluster, run.nodes, run.bus)); err != nil {
				t.Fatal(err)
			}
		}
	}
	now, log := func() time.Time { return noon }, slog.New(slog.DiscardHandler)
	kept, err := ledger.New(advise.Ledger, ledger.Deps{Write: store.Conn, Read: store.Conn, Log: log, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(DefaultConfig(), Deps{
		Reader: read.New(store.Conn, now), Ping: func(context.Context) error { return nil }, Log: log, Registry: prometheus.NewRegistry(), Now: now,
		Version: "1", Advise: &advise, Ledger: kept,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asked decodes an answer after it has been held against the document of the API.
func asked[T any](t *testing.T, s *Server, target string) (out T) {
	t.Helper()
	check := specValidator(t)
	req, rec := httptest.NewRequest("GET", target, nil), httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, req)
	if rec.Code != 200 {
		t.Fatalf("%s: got %d %s", target, rec.Code, rec.Body)
	}
	body := rec.Body.Bytes()
	if ok, faults := check.ValidateHttpResponse(req, rec.Result()); !ok {
		for _, f := range faults {
			t.Errorf("%s: %s: %s %v", target, f.Message, f.Reason, f.SchemaValidationErrors)
		}
	}
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestLinksAreServedInPagesWithTheirAge(t *testing.T) {
	s := measured(t, DefaultAdviseConfig())
	var got []string
	target := "/v1/links?limit=3"
	for pages := 0; ; pages++ {
		page := asked[linksPage](t, s, target)
		if page.Total != 8 || len(page.Links) > 3 || pages > 3 {
			t.Fatalf("page %d: %+v", pages, page)
		}
		if f := page.Freshness; f.AgeS == nil || *f.AgeS != 10*3600 {
			t.Errorf("the newest run was ten hours ago, got %+v", f)
		}
		for _, l := range page.Links {
			got = append(got, fmt.Sprintf("%s %s %v %v %.0f", l.Cluster, l.Level, l.WholeLevel, l.Domains, *l.PerGPUP50/1e9))
		}
		if page.Next == nil {
			break
		}
		target = "/v1/links?limit=3&cursor=" + *page.Next
	}
	want := []string{
		"alpha domain true [] 800", "alpha domain false [A] 800", "alpha leaf true [] 40", "alpha leaf false [A B] 40",
		"beta domain true [] 800", "beta domain false [A] 800", "beta leaf true [] 40", "beta leaf false [A B] 40",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if none := asked[linksPage](t, s, "/v1/links?until=2026-11-28T00:00:00Z"); none.Links == nil || len(none.Links) > 0 || none.Freshness.AsOf != nil || none.Freshness.AgeS != nil {
		t.Errorf("before the first run: got %+v, want no links of unknown age", none)
	}
}

func TestMeasuredSpeedsStandBesideTheConfiguredOnes(t *testing.T) {
	cfg := DefaultAdviseConfig()
	cfg.Levels = map[string]float64{"leaf": 45}
	s := measured(t, cfg)
	before := s.advisor.cfg.Links
	got := asked[grades](t, s, "/v1/advice/grade?cluster=alpha")
	domain, leaf := noon.Add(-11*time.Hour), noon.Add(-10*time.Hour)
	want := []fit{{Cluster: "alpha", Measured: []measuredSpeed{
		{Level: "domain", Joined: new(true), Configured: new(900.), Low: 800, Middle: 800, High: 800, Runs: 1, Newest: domain},
		{Level: "leaf", Joined: new(true), Configured: new(45.), Low: 40, Middle: 40, High: 40, Runs: 1, Newest: leaf},
	}}}
	if diff := cmp.Diff(want, got.Fits); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, s.advisor.cfg.Links); diff != "" {
		t.Errorf("a measurement changed what is configured: %s", diff)
	}
}

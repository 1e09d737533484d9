package api

import (
	"bytes"
	"context"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/read"
)

// TestScrapedFacts reads /metrics over the rows that query/read tests its questions on.
func TestScrapedFacts(t *testing.T) {
	s := seeded(t)
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	var got bytes.Buffer
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, "spillway_") && strings.Contains(line, "cluster=") || strings.HasPrefix(line, "spillway_query_facts_up") {
			got.WriteString(line)
		}
	}
	const golden = "testdata/metrics.golden"
	if os.Getenv("SPILLWAY_UPDATE_GOLDEN") == "1" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("/metrics is\n%s\nwant\n%s", got.String(), want)
	}
	t.Run("facts that cannot be read are left out and said to be missing", func(t *testing.T) {
		dead := newServerOverClosedStore(t)
		rec := httptest.NewRecorder()
		dead.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		if body := rec.Body.String(); rec.Code != 200 || !strings.Contains(body, "spillway_query_facts_up 0\n") || strings.Contains(body, "spillway_cluster_gpus{") ||
			strings.Contains(body, "spillway_silent_fallback_attempts{") {
			t.Errorf("status %d, %s", rec.Code, body)
		}
	})
}

// newServerOverClosedStore is a server whose store is gone.
func newServerOverClosedStore(t *testing.T) *Server {
	t.Helper()
	store := testenv.ClickHouse(t)
	conn, err := chconn.Open(store.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	return newServer(t, DefaultConfig(), read.New(conn, func() time.Time { return noon }))
}

func TestExceptionsBeyondTheListAreCounted(t *testing.T) {
	found := &read.Exceptions{
		Exceptions: []read.Exception{{Cluster: "c", Kind: "node_down", Queue: "gpu", Account: "ml", ServiceClass: "training"}},
		Totals:     []read.ExceptionTotal{{Cluster: "c", Kind: "node_down", Total: 5, Listed: 1}},
	}
	got := map[string]float64{}
	(&gauges{}).exceptions(found, func(_ *prometheus.Desc, value float64, labels ...string) { got[strings.Join(labels, "|")] = value })
	want := map[string]float64{"c|gpu|ml|training|node_down": 1, "c||||node_down": 4}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestAnAnswerFromBehindIsTakenWhenThereIsNoTimeLeft: a scrape whose other questions took all of its time still shows it.
func TestAnAnswerFromBehindIsTakenWhenThereIsNoTimeLeft(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		var b behind[int]
		b.asked = make(chan reply[int], 1)
		b.asked <- reply[int]{answer: 7}
		if got, err := b.get(over, nil); got != 7 || err != nil || b.asked != nil {
			t.Fatalf("got %d, %v", got, err)
		}
	}
}

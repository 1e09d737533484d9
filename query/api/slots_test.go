package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/live"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

// said is a log in which only what is sent to it is said, all of it of membership.
type said chan []byte

func (s said) Partitions(context.Context, string) ([]int, error) { return []int{0}, nil }

func (s said) Follow(ctx context.Context, topic string, _ int, from int64, record func(int64, []byte), ended func()) (int64, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		news := s
		if topic != event.TopicMembership {
			news = nil
		}
		select {
		case <-ctx.Done():
			return 0, nil
		case value := <-news:
			record(from, value)
			from++
		case <-tick.C:
			ended()
		}
	}
}

// picture follows what the advisor reads from a store and its topics, and has read cluster c1.
func picture(t *testing.T, deps live.Deps) *live.Feed {
	t.Helper()
	feed, err := live.New(live.DefaultConfig(), deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- feed.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	testenv.Until(t, "there is a picture", func() bool { return feed.Clusters("")["c1"] != nil })
	return feed
}

// TestSlotsFromMemoryTellWhatIsMissing: the picture counts on whatever its collectors last said, also when they fail.
func TestSlotsFromMemoryTellWhatIsMissing(t *testing.T) {
	db := testenv.ClickHouse(t)
	if err := clickhouse.Migrate(t.Context(), db.Conn, clickhouse.Options{Database: db.Database}); err != nil {
		t.Fatal(err)
	}
	var ahead atomic.Int64 // of the machine's clock
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	reported := func(cluster, source string, good time.Duration, problem string, at time.Duration) string {
		written := func(ago time.Duration) string { return now().Add(-ago).UTC().Format("'2006-01-02 15:04:05.000'") }
		return fmt.Sprintf(`INSERT INTO source_events (kafka_partition, kafka_offset, loaded_at, cluster, source, good_at, problem, interval_ms, observed_at)
			VALUES (0, 0, %[1]s, '%[2]s', '%[3]s', %[4]s, '%[5]s', 60000, %[1]s)`, written(at), cluster, source, written(good), problem)
	}
	for _, q := range []string{
		`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, generation, version)
			SELECT 'c1', concat('n', toString(number)), 0, '2200-01-01', 'd0', 1, 1 FROM numbers(4)`,
		`INSERT INTO node_facts (cluster, node, source, valid_from, valid_to, gpus_present, revision, version)
			SELECT 'c1', concat('n', toString(number)), 'slurm', 0, '2200-01-01', 4, 1, 1 FROM numbers(4)`,
		`INSERT INTO placements (cluster, job_id, attempt, valid_from, valid_to, nodes, node_gpus, version) VALUES ('c1', '7', 'r0', 0, '2200-01-01', ['n0'], [4], 1)`,
		`INSERT INTO attempts (cluster, job_id, attempt, state, start, sources, version) VALUES ('c1', '7', 'r0', 'running', 0, ['slurm.squeue'], 1)`,
		`INSERT INTO node_events (kafka_partition, kafka_offset, loaded_at, cluster, node, source, gpus_present, reservation, gpu_model, observed_at, revision)
			SELECT 0, number, now64(3), 'c1', concat('n', toString(number)), 'slurm', 4, if(number = 3, 'team', ''), 'gb200', now64(3), 1 FROM numbers(4)`,
		reported("c1", "slurm", 0, "", 0),
	} {
		if err := db.Conn.Exec(t.Context(), q); err != nil {
			t.Fatalf("%v in:\n%s", err, q)
		}
	}
	log := make(said, 1)
	// serving serves from a picture read anew.
	serving := func() *Server {
		t.Helper()
		feed := picture(t, live.Deps{Conn: db.Conn, Log: log, Now: now})
		s, err := New(DefaultConfig(), Deps{Now: now, Log: slog.New(slog.DiscardHandler), Feed: feed})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ask := func(s *Server) read.Slots {
		t.Helper()
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v1/slots?gpus=8", nil))
		var out read.Slots
		if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil || rec.Code != http.StatusOK || out.Total != 1 {
			t.Fatalf("got %d %s, want one slot of the three free nodes", rec.Code, rec.Body)
		}
		return out
	}
	s := serving()
	if got := ask(s); !got.Freshness.Complete || len(got.Freshness.Gaps) != 0 {
		t.Errorf("got %+v; nothing is missing", got.Freshness)
	}
	// By model, and for whom a node is reserved.
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/v1/slots?gpus=8":                            {http.StatusOK, `"gpu_model":"gb200"`},
		"/v1/slots?gpus=8&gpu_model=gb200":            {http.StatusOK, `"total":1`},
		"/v1/slots?gpus=8&gpu_model=h100":             {http.StatusOK, `"total":0,"domains":[]`},
		"/v1/slots?gpus=12":                           {http.StatusOK, `"total":0`}, // n3 is reserved
		"/v1/slots?gpus=12&tenant=team":               {http.StatusOK, `"total":1`},
		"/v1/fragmentation":                           {http.StatusOK, `"models":[{"gpu_model":"gb200","gpus_per_node":4,"domains":1,"free_nodes":2,`},
		"/v1/fragmentation?tenant=team":               {http.StatusOK, `"models":[{"gpu_model":"gb200","gpus_per_node":4,"domains":1,"free_nodes":3,`},
		"/v1/slots?gpus=8&gpu_model=gb200&cluster=c9": {http.StatusServiceUnavailable, "ask again, or without gpu_model and tenant"},
	} {
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		if rec.Code != want.code || !strings.Contains(rec.Body.String(), want.body) {
			t.Errorf("%s: got %d %s, want %s", path, rec.Code, rec.Body, want.body)
		}
	}
	s.advisor.cfg.Tenants.Accounts = map[string]advise.Tenant{
		"elsewhere": {MayNot: advise.Places{Domains: []string{"d0"}}}, "away": {May: advise.Places{Clusters: []string{"c9"}}},
	}
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/v1/slots?gpus=8&tenant=elsewhere":        {http.StatusOK, `"total":0,"domains":[]`},
		"/v1/slots?gpus=8&tenant=away":             {http.StatusOK, `"total":0,"domains":[]`},
		"/v1/fragmentation?tenant=elsewhere":       {http.StatusOK, `"models":[]`},
		"/v1/fragmentation?tenant=away":            {http.StatusOK, `"clusters":[]`},
		"/v1/fragmentation?tenant=away&cluster=c1": {http.StatusForbidden, `may not use cluster`},
		"/v1/fragmentation?tenant=unlisted":        {http.StatusOK, `"free_nodes":2,`},
	} {
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		if rec.Code != want.code || !strings.Contains(rec.Body.String(), want.body) {
			t.Errorf("%s: got %d %s, want %s", path, rec.Code, rec.Body, want.body)
		}
	}
	s.advisor.cfg.Tenants = advise.Tenants{Unlisted: advise.Forbid}
	if got := ask(s); got.Total != 1 {
		t.Errorf("got %+v; who names no account looks at all", got)
	}
	s.advisor.cfg.Tenants = advise.Tenants{}
	// A move that no pass judges.
	_, moved, err := event.Encode(&event.Membership{Cluster: "c1", Node: "n0", Source: "nvml", ObservedAtMs: now().UnixMilli(),
		Levels: []*event.Level{{Level: event.LevelDomain, Value: "d1"}}})
	if err != nil {
		t.Fatal(err)
	}
	log <- moved
	testenv.Eventually(t, 20*time.Second, func() error {
		if s.advisor.feed.Clusters("")["c1"].TopologyLag(now()) == 0 {
			return fmt.Errorf("the move was not seen")
		}
		return nil
	})
	if got := ask(s); !got.Freshness.Complete {
		t.Errorf("got %+v; a pass may take a moment", got.Freshness)
	}
	ahead.Store(int64(read.Grace + time.Second))
	if got := ask(s).Freshness; got.Complete || len(got.Gaps) != 1 || !strings.Contains(got.Gaps[0], "where nodes of c1 sit has changed") {
		t.Errorf("got %+v, want the move that waits", got)
	}
	ahead.Store(0)

	for _, q := range []string{
		reported("c1", "topology", time.Hour, "exit status 1", 0), reported("c1", "dcgm", time.Hour, "", 10*time.Minute), reported("c2", "topology", 0, "no such file", 0),
	} {
		if err := db.Conn.Exec(t.Context(), q); err != nil {
			t.Fatalf("%v in:\n%s", err, q)
		}
	}
	got := ask(serving()).Freshness
	gaps := strings.Join(got.Gaps, "\n")
	if got.Complete || len(got.Gaps) != 3 || !strings.Contains(gaps, "dcgm of c1 has not reported") ||
		!strings.Contains(gaps, "topology of c1 fails since") || !strings.Contains(gaps, "topology of c2 fails since") {
		t.Errorf("got %+v, want the three collectors that fail", got)
	}
	if got.AgeS == nil || *got.AgeS < 3590 {
		t.Errorf("got %+v, want the age of what was read longest ago", got)
	}
}

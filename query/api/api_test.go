package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const specFile = "../../schemas/api/spillway.yaml"

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func newServer(t *testing.T, cfg Config, reader *read.Reader) *Server {
	t.Helper()
	s, err := New(cfg, Deps{
		Reader: reader, Ping: func(context.Context) error { return nil }, Log: slog.New(slog.DiscardHandler),
		Registry: prometheus.NewRegistry(), Now: func() time.Time { return noon }, Version: "1",
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// seeded is a server over a migrated database with the rows that query/read tests its questions on.
func seeded(t *testing.T) *Server {
	t.Helper()
	return over(t, seededStore(t))
}

// over is a server that knows nothing yet of what the store holds.
func over(t *testing.T, store *testenv.Server) *Server {
	t.Helper()
	return newServer(t, DefaultConfig(), read.New(store.Conn, func() time.Time { return noon }))
}

func seededStore(t *testing.T) *testenv.Server {
	t.Helper()
	store := testenv.ClickHouse(t)
	ctx := context.Background()
	if err := clickhouse.Migrate(ctx, store.Conn, clickhouse.Options{Database: store.Database}); err != nil {
		t.Fatal(err)
	}
	seed, err := os.ReadFile("../read/testdata/seed.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range strings.Split(string(seed), ";\n") {
		if strings.TrimSpace(statement) != "" {
			if err := store.Conn.Exec(ctx, statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	return store
}

func TestSpecIsCommitted(t *testing.T) {
	got, err := newServer(t, DefaultConfig(), nil).OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("SPILLWAY_UPDATE_GOLDEN") == "1" {
		if err := os.WriteFile(specFile, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(specFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not what the Go types say: run `make golden` and read the diff", filepath.Base(specFile))
	}
}

// specValidator holds answers against the document of the API.
func specValidator(t *testing.T) validator.Validator {
	t.Helper()
	spec, err := os.ReadFile(specFile)
	if err != nil {
		t.Fatal(err)
	}
	document, err := libopenapi.NewDocument(spec)
	if err != nil {
		t.Fatal(err)
	}
	check, errs := validator.NewValidator(document)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return check
}

func TestEveryAnswerFitsTheSpec(t *testing.T) {
	s := seeded(t)
	check := specValidator(t)
	for _, test := range []struct {
		target string
		status int
		holds  string
	}{
		{"/v1/slots?gpus=64", 200, `"total":2`},
		{"/v1/slots?gpus=3&cluster=alpha", 404, "capacity is counted for"},
		{"/v1/slots?gpus=0", 422, "expected"},
		{"/v1/slots?cluster=nowhere", 404, "cluster nowhere"},
		{"/v1/spills?since=2026-11-28T12:00:00Z", 200, `"total":1`},
		{"/v1/spills?since=2026-11-29T11:00:00Z&until=2026-11-29T10:00:00Z", 422, "since is not before until"},
		{"/v1/spills?since=2026-11-29T13:00:00Z", 422, "since is not before until"},
		{"/v1/spills?cause=nonsense", 422, "cause"},
		{"/v1/spills?cursor=zzz!", 422, "cursor"},
		{"/v1/spills?limit=1001", 422, "limit"},
		{"/v1/jobs/7", 409, "say which with cluster"},
		{"/v1/jobs/7?cluster=alpha", 200, `"outcome":"one_domain"`},
		{"/v1/jobs/9", 200, `"verdict":null`},
		{"/v1/jobs/8", 200, `"traffic":null`},
		{"/v1/jobs/404", 404, "never seen"},
		{"/v1/jobs/ns%2Fname", 404, "job ns/name"},
		{"/v1/jobs/7/explain?cluster=alpha&attempt=0", 200, "Spilled by policy"},
		{"/v1/jobs/9/explain", 200, "Not started"},
		{"/v1/jobs/7/traffic?cluster=alpha&attempt=0", 200, `"nvlink_gb_s":100`},
		{"/v1/jobs/7/traffic?cluster=alpha&since=2026-11-29T11:00:00Z&until=2026-11-29T10:00:00Z", 422, "since is not before until"},
		{"/v1/spills?traffic=silent_fallback&since=2026-11-29T00:00:00Z&until=2026-11-29T12:00:00Z", 200, `"evidence":"silent_fallback"`},
		{"/v1/domains", 200, `"rack02"`},
		{"/v1/domains?at=2026-11-29T10:30:00Z", 200, `"gpus_held":60`},
		{"/v1/domains?at=yesterday", 422, "at"},
		{"/v1/domains/rack01?cluster=alpha", 200, `"n1"`},
		{"/v1/domains/rack02?cluster=alpha&at=2026-11-29T05:00:00Z", 200, `"capacity":null`},
		{"/v1/domains/rack01%27%3B%20DROP%20TABLE%20verdicts", 404, "not found"},
		{"/v1/map", 200, `"label"`},
		{"/v1/map?at=2026-11-29T10:30:00Z&cluster=alpha", 200, `"cause":"policy"`},
		{"/v1/map?at=2020-01-01T00:00:00Z", 200, `"name":[]`},
		{"/v1/report", 200, `"cause":"policy"`},
		{"/v1/report?slot_gpus=3", 404, "capacity is counted for"},
		{"/v1/report?since=2026-11-29T11:00:00Z&until=2026-11-29T10:00:00Z", 422, "before"},
		{"/v1/topology/health", 200, `"conflict`},
		{"/v1/status", 200, "authentication failure"},
		{"/v1/jobs/7/compare?cluster=alpha", 200, `"placement":"better"`},
		{"/v1/jobs/7/compare?cluster=alpha&attempt=0", 200, "First of its kind"},
		{"/v1/jobs/404/compare", 404, "never seen"},
		{"/v1/exceptions", 200, `"kind":"node_down"`},
		{"/v1/exceptions?cluster=nowhere", 200, `"exceptions":[]`},
		{"/v1/views", 200, `"kind":"domain"`},
		{"/v1/outcomes", 200, `"asked":"none"`},
		{"/v1/outcomes?since=2026-11-29T11:00:00Z&until=2026-11-29T10:00:00Z", 422, "since is not before until"},
		{"/v1/links", 200, `"links":[]`},
		{"/v1/links?limit=1001", 422, "limit"},
		{"/v1/links?cursor=zzz!", 422, "cursor"},
		{"/v1/links?since=2026-11-29T11:00:00Z&until=2026-11-29T10:00:00Z", 422, "since is not before until"},
		{"/v1/audit/occupancy?domain=rack01&cluster=alpha", 200, `"account":"ml-pre"`},
		{"/v1/audit/occupancy", 422, "domain"},
		{"/v1/audit/occupancy?domain=rack01", 409, "say which with cluster"},
		{"/v1/audit/occupancy?domain=rack01%27%3B%20DROP%20TABLE%20verdicts", 404, "not found"},
	} {
		t.Run(test.target, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodGet, test.target, nil)
			rec := httptest.NewRecorder()
			s.Handler().ServeHTTP(rec, req)
			body := rec.Body.String()
			if rec.Code != test.status || !strings.Contains(body, test.holds) {
				t.Fatalf("got %d %s, want %d and %q", rec.Code, body, test.status, test.holds)
			}
			kind := rec.Header().Get("Content-Type")
			if want := "application/problem+json"; test.status >= 400 && kind != want {
				t.Errorf("got content type %s, want %s", kind, want)
			}
			if ok, faults := check.ValidateHttpResponse(req, rec.Result()); !ok {
				for _, f := range faults {
					t.Errorf("%s: %s", f.Message, f.Reason)
				}
			}
			if test.status == 200 && !strings.Contains(body, `"as_of":`) {
				t.Error("the answer does not say how old it is")
			}
		})
	}
}

// TestTheProbeChangesNoAnswer asks all that may be asked without a cluster, tells the probe's cluster everything that alpha's
// tables hold, and asks again.
func TestTheProbeChangesNoAnswer(t *testing.T) {
	store := seededStore(t)
	ask := func(s *Server, target string) string {
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, target, nil))
		return fmt.Sprint(rec.Code, " ", rec.Body.String())
	}
	day := "since=2026-11-28T12:00:00Z"
	targets := []string{
		"/v1/slots?gpus=4", "/v1/slots?gpus=64", "/v1/spills?" + day, "/v1/spills?state=running", "/v1/spills?traffic=silent_fallback&" + day,
		"/v1/jobs/7", "/v1/jobs/8", "/v1/jobs/9/explain", "/v1/jobs/8/compare", "/v1/domains", "/v1/domains?at=2026-11-29T10:30:00Z",
		"/v1/domains/rack01", "/v1/domains/rack02", "/v1/map", "/v1/map?at=2026-11-29T10:30:00Z", "/v1/report", "/v1/topology/health",
		"/v1/exceptions", "/v1/views", "/v1/outcomes", "/v1/links", "/v1/runs", "/v1/audit/occupancy?domain=rack02",
	}
	before := map[string]string{}
	s := over(t, store)
	for _, target := range targets {
		before[target] = ask(s, target)
	}
	facts := func(text string) (out string) {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "spillway_") && strings.Contains(line, "cluster=") {
				out += line
			}
		}
		return out
	}
	gauges := facts(ask(s, "/metrics"))
	tables := 0
	rows, err := store.Conn.Query(t.Context(), `SELECT DISTINCT c.table FROM system.columns AS c INNER JOIN system.tables AS t ON t.database = c.database AND t.name = c.table
		WHERE c.database = currentDatabase() AND c.name = 'cluster' AND endsWith(t.engine, 'MergeTree')`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for ; rows.Next(); tables++ {
		var table string
		if err := rows.Scan(&table); err != nil {
			t.Fatal(err)
		}
		if err := store.Conn.Exec(t.Context(), fmt.Sprintf("INSERT INTO %[1]s SELECT * REPLACE ('%[2]s' AS cluster) FROM (SELECT * FROM %[1]s WHERE cluster = 'alpha')", table, event.ProbeCluster)); err != nil {
			t.Fatal(err)
		}
	}
	if tables < 15 {
		t.Errorf("saw %d tables with a cluster", tables)
	}
	s = over(t, store)
	for _, target := range targets {
		if diff := cmp.Diff(before[target], ask(s, target)); diff != "" {
			t.Errorf("%s answers something else after a probe:\n%s", target, diff)
		}
	}
	// The probe asks for its own cluster, as the alerts do not.
	for target, holds := range map[string]string{
		"/v1/slots?gpus=4&": `"total":17`, "/v1/spills?" + day + "&": `"total":1`, "/v1/jobs/7?": `"outcome":"one_domain"`, "/v1/map?": `"name":["n1"`, "/v1/domains/rack01?": `"n1"`,
	} {
		if got := ask(s, target+"cluster="+event.ProbeCluster); !strings.Contains(got, holds) {
			t.Errorf("%s of the probe's cluster: got %s, want %s in it", target, got, holds)
		}
	}
	shown := ""
	for line := range strings.Lines(facts(ask(s, "/metrics"))) {
		if !strings.Contains(line, event.ProbeCluster) {
			shown += line
		} else if !strings.HasPrefix(line, "spillway_running_placement") && !strings.HasPrefix(line, "spillway_required_level_violations") {
			t.Errorf("beside what runs, /metrics shows %s of the probe", line)
		}
	}
	if diff := cmp.Diff(gauges, shown); diff != "" {
		t.Errorf("/metrics of the other clusters shows something else after a probe:\n%s", diff)
	}
}

func TestPagesFollowTheCursor(t *testing.T) {
	for _, cursor := range []string{"", "MTAw"} {
		if n, err := cursorOffset(cursor); err != nil || (cursor != "" && n != 100) {
			t.Errorf("cursor %q: got %d %v", cursor, n, err)
		}
	}
}

func TestTheDoorIsClosedUnlessTokensAreOn(t *testing.T) {
	open := DefaultConfig()
	open.Listen = "0.0.0.0:8470"
	if _, err := New(open, Deps{}); err == nil || !strings.Contains(err.Error(), "token_file") {
		t.Errorf("got %v, want a refusal naming token_file", err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open.TokenFile = file
	s := newServer(t, open, nil)
	for token, want := range map[string]int{
		"":                                       http.StatusUnauthorized,
		"Bearer wrong":                           http.StatusUnauthorized,
		"Basic 0123456789abcdef0123456789abcdef": http.StatusUnauthorized,
		"Bearer 0123456789abcdef0123456789abcdef":  http.StatusUnprocessableEntity, // past the door: the question is wrong
		"Bearer 0123456789abcdef0123456789abcdef ": http.StatusUnauthorized,
	} {
		req := httptest.NewRequest(http.MethodGet, "/v1/slots?gpus=0", nil)
		req.Header.Set("Authorization", token)
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, req)
		if rec.Code != want {
			t.Errorf("%q: got %d, want %d", token, rec.Code, want)
		}
		if want == http.StatusUnauthorized && rec.Header().Get("X-Advice") != "none" {
			t.Errorf("%q: the refusal does not say X-Advice: none", token)
		}
	}
}

func TestRunServesUntilTold(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	s := newServer(t, cfg, nil)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	taken := cfg
	taken.Listen = s.Addr()
	if err := newServer(t, taken, nil).Listen(); err == nil || !strings.Contains(err.Error(), "choose another port") {
		t.Errorf("a port in use: got %v, want the remedy", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ready", "/metrics": "spillway_query"} {
		if err := fetch(client, "http://"+s.Addr()+path, want); err != nil && path != "/metrics" {
			t.Error(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func fetch(c *http.Client, url, want string) error {
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != 200 || !strings.Contains(string(body), want) {
		return errors.New(fmt.Sprint(url, ": got ", resp.Status, " ", string(body)))
	}
	return nil
}

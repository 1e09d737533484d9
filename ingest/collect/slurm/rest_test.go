package slurm

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
	"github.com/spillway-io/spillway/schemas/event"
)

// observeREST reads jobs once.
func observeREST(t testing.TB, cfg Config) ([]event.Record, error) {
	t.Helper()
	rest, err := newREST(cfg.REST, cfg.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer rest.close()
	p := NewPoller(&cfg, quiet(), func(string, int) {})
	ctx, cancel := context.WithTimeout(t.Context(), cfg.Timeout)
	defer cancel()
	records, _, err := p.Observe(rest.Jobs(ctx, time.Time{}), rest.Name(), time.Unix(1795960150, 0))
	return records, err
}

func TestRESTAnswersThatAreNotAnAnswer(t *testing.T) {
	reply := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	for name, c := range map[string]struct {
		failure      http.HandlerFunc
		reason, says string
	}{
		"no token or an old one":       {reply(401, "text/plain", "Authentication failure"), "auth", "scontrol token"},
		"a version that is not served": {reply(404, "text/plain", "Unable to find requested URL"), "version", "slurmrestd -d list"},
		"a dead slurmctld":             {reply(500, "application/json", `{"jobs":[],"errors":[{"error_number":1007,"error":"Protocol authentication error"}]}`), "status", "Protocol authentication error"},
		"a login page with status 200": {reply(200, "text/html", "<html>log in</html>"), "content_type", "slurmrestd's own"},
		"a redirect, which is not followed": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, "status", "302"},
		"errors in a document of status 200": {reply(200, "application/json", `{"jobs":[{"job_id":1}],"errors":[{"error_number":1,"error":"boom"}],"warnings":[]}`), "slurm", "boom"},
		"half a document":                    {reply(200, "application/json", `{"jobs":[{"job_id":1,"job_st`), "document", "byte"},
		"no document":                        {reply(200, "application/json", ``), "document", "empty"},
		"another document":                   {reply(200, "application/json", `{"partitions":[]}`), "document", `no list "jobs"`},
	} {
		t.Run(name, func(t *testing.T) {
			restd := newFakeRestd(t)
			restd.failure = c.failure
			server := httptest.NewServer(restd)
			defer server.Close()
			cfg := restConfig(t, server.URL)
			if c.reason != "version" {
				cfg.REST.Version = "v0.0.42"
			}
			records, err := observeREST(t, cfg)
			if len(records) > 0 || err == nil || !strings.Contains(err.Error(), c.says) || reasonOf(err) != c.reason {
				t.Errorf("%d records, reason %q, %v", len(records), reasonOf(err), err)
			}
		})
	}
}

func TestRESTTransportFailures(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    func(*Config)
		reason string
	}{
		"nobody listens":              {func(c *Config) { c.REST.URL = "http://127.0.0.1:1" }, "transport"},
		"a token file that is gone":   {func(c *Config) { c.REST.TokenFile += ".gone" }, "token"},
		"a token file with two lines": {func(c *Config) { c.REST.TokenFile = tokenFile(t, "one\ntwo") }, "token"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(newFakeRestd(t))
			defer server.Close()
			cfg := restConfig(t, server.URL)
			c.cfg(&cfg)
			if _, err := observeREST(t, cfg); err == nil || reasonOf(err) != c.reason {
				t.Errorf("reason %q, %v", reasonOf(err), err)
			}
		})
	}
	t.Run("an answer that takes too long", func(t *testing.T) {
		done := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"jobs":[`)
			w.(http.Flusher).Flush()
			<-done
		}))
		defer server.Close()
		defer close(done)
		cfg := restConfig(t, server.URL)
		cfg.REST.Version, cfg.Timeout = "v0.0.42", 50*time.Millisecond
		if _, err := observeREST(t, cfg); err == nil || reasonOf(err) != "timeout" {
			t.Errorf("reason %q, %v", reasonOf(err), err)
		}
	})
}

func TestRESTFindsTheVersionAndReadsTheTokenAgain(t *testing.T) {
	restd := newFakeRestd(t)
	server := httptest.NewServer(restd)
	defer server.Close()
	cfg := restConfig(t, server.URL)
	rest, err := newREST(cfg.REST, cfg.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer rest.close()
	read := func() error {
		_, err := rest.Jobs(t.Context(), time.Time{})(func(*slurmjson.Job) error { return nil })
		return err
	}
	if err := read(); err != nil || rest.version != "v0.0.42" {
		t.Fatalf("version %q, %v", rest.version, err)
	}
	if n := restd.questions("/slurm/"); n != 5 { // three too new, one that answers, and jobs
		t.Errorf("%d questions: %v", n, restd.asked)
	}
	restd.set(func() { restd.token = "renewed" })
	if err := read(); reasonOf(err) != "auth" {
		t.Errorf("with the old token: %v", err)
	}
	if err := os.WriteFile(cfg.REST.TokenFile, []byte("renewed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := read(); err != nil {
		t.Errorf("with the new token: %v", err)
	}
	restd.set(func() { restd.version = "v0.0.41" }) // as after a downgrade
	if err := read(); reasonOf(err) != "version" {
		t.Errorf("after the version is gone: %v", err)
	}
	if err := read(); err != nil || rest.version != "v0.0.41" {
		t.Errorf("version %q, %v", rest.version, err)
	}
}

func TestRESTOverTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(newFakeRestd(t))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	cfg := restConfig(t, server.URL)
	if _, err := observeREST(t, cfg); reasonOf(err) != "transport" {
		t.Errorf("a certificate of an unknown authority: %v", err)
	}
	cfg.REST.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(cfg.REST.CAFile, certificate, 0o644); err != nil {
		t.Fatal(err)
	}
	if records, err := observeREST(t, cfg); err != nil || len(records) != 20 {
		t.Errorf("%d records, %v", len(records), err)
	}
	cfg.REST.CAFile = cfg.REST.TokenFile
	if _, err := newREST(cfg.REST, time.Second); err == nil || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("a CA file without certificate: %v", err)
	}
}

func TestAccountingByREST(t *testing.T) {
	restd := newFakeRestd(t)
	server := httptest.NewServer(restd)
	defer server.Close()
	cfg := restConfig(t, server.URL)
	rest, err := newREST(cfg.REST, cfg.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer rest.close()
	ask := func(jobs []uint32) (runs int, err error) {
		_, err = slurmDB{rest}.Runs(t.Context(), jobs, time.Unix(1000, 0), time.Unix(2000, 0))(func(*slurmjson.Job) error { runs++; return nil })
		return runs, err
	}
	many := make([]uint32, fewJobs+1)
	for name, c := range map[string]struct {
		jobs  []uint32
		asks  string
		times int
	}{
		"few jobs one by one":         {[]uint32{14, 15}, "/slurmdb/v0.0.42/job/1", 2},
		"many jobs by the window":     {many, "/slurmdb/v0.0.42/jobs/?end_time=2000&start_time=1000", 1},
		"no job means all that ended": {nil, "/slurmdb/v0.0.42/jobs/?end_time=2000&start_time=1000", 1},
	} {
		t.Run(name, func(t *testing.T) {
			restd.set(func() { restd.asked = nil })
			runs, err := ask(c.jobs)
			if err != nil || runs != 21*c.times || restd.questions(c.asks) != c.times {
				t.Errorf("%d runs, asked %v, %v", runs, restd.asked, err)
			}
		})
	}
	restd.set(func() { restd.accountingStatus = http.StatusNotFound })
	if runs, err := ask([]uint32{14}); err != nil || runs != 0 {
		t.Errorf("a job that accounting does not know: %d, %v", runs, err)
	}
	restd.set(func() { restd.accountingStatus = http.StatusBadGateway })
	if _, err := ask([]uint32{14}); reasonOf(err) != "status" || !strings.Contains(err.Error(), "Unable to connect to database") {
		t.Errorf("a slurmdbd that is down: %v", err)
	}
}

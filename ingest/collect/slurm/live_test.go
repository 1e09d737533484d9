package slurm

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
)

// fakeRestd answers as slurmrestd was measured to, with recorded documents.
type fakeRestd struct {
	mu sync.Mutex
	// version is the newest it serves, and token what it asks for.
	version, token   string
	jobs, nodes      []byte
	jobsAt           int64 // last_update of the documents
	accounting       []byte
	broken           bool
	asked            []string
	failure          http.HandlerFunc // answers everything, if set
	accountingStatus int
}

func document(t testing.TB, path string) []byte {
	t.Helper()
	var b bytes.Buffer
	f, err := collect.OpenRecorded(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := b.ReadFrom(f); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func newFakeRestd(t testing.TB) *fakeRestd {
	return &fakeRestd{
		version: "v0.0.42", token: "secret", jobsAt: 1795960143,
		jobs: document(t, samples+"squeue.json"), nodes: document(t, samples+"nodes.json"), accounting: document(t, samples+"sacct.json"),
	}
}

func (f *fakeRestd) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeRestd) questions(prefix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.asked {
		if strings.HasPrefix(q, prefix) {
			n++
		}
	}
	return n
}

func (f *fakeRestd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.URL.RequestURI())
	if f.failure != nil {
		f.failure(w, r)
		return
	}
	if r.Header.Get("X-SLURM-USER-TOKEN") != f.token || r.Header.Get("X-SLURM-USER-NAME") != "spillway" {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, "Authentication failure")
		return
	}
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	if len(parts) < 3 || parts[1] > f.version {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "Unable to find requested URL")
		return
	}
	since, _ := strconv.ParseInt(r.URL.Query().Get("update_time"), 10, 64)
	unchanged := since > 0 && since >= f.jobsAt
	switch plugin, path := parts[0], parts[2]; {
	case plugin == "slurm" && path == "ping/":
		f.answer(w, r, []byte(`{"pings":[],"meta":{},"errors":[],"warnings":[]}`))
	case plugin == "slurm" && path == "jobs/" && unchanged:
		f.answer(w, r, []byte(`{"jobs":[],"last_update":{"set":true,"infinite":false,"number":0},"meta":{"slurm":{"cluster":"nvl"}},"errors":[],`+
			`"warnings":[{"description":"No job changes since update_time","source":"x"}]}`))
	case plugin == "slurm" && path == "jobs/":
		f.answer(w, r, f.jobs)
	case plugin == "slurm" && path == "nodes/" && unchanged:
		w.WriteHeader(http.StatusNotModified)
	case plugin == "slurm" && path == "nodes/":
		f.answer(w, r, f.nodes)
	case plugin == "slurmdb" && f.accountingStatus != 0:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(f.accountingStatus)
		fmt.Fprint(w, `{"jobs":[],"meta":{},"warnings":[],"errors":[{"error_number":7000,"error":"Unable to connect to database","source":"slurmdb_connection_get","description":"x"}]}`)
	case plugin == "slurmdb" && (path == "jobs/" || strings.HasPrefix(path, "job/")):
		f.answer(w, r, f.accounting)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"jobs":[],"errors":[{"error_number":2017,"error":"Invalid job id specified"}]}`)
	}
}

// answer compresses where it may, and breaks off in the middle when broken.
func (f *fakeRestd) answer(w http.ResponseWriter, r *http.Request, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	if f.broken && !bytes.HasPrefix(body, []byte(`{"pings"`)) {
		body = body[:len(body)*2/3]
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		z.Write(body)
		return
	}
	w.Write(body)
}

// fast makes a configuration read as often as the suite needs.
func fast(cfg Config) Config {
	cfg.Interval, cfg.NodesInterval, cfg.Timeout = 10*time.Millisecond, 10*time.Millisecond, 5*time.Second
	return cfg
}

func tokenFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func restConfig(t testing.TB, url string) Config {
	cfg := fast(testConfig())
	cfg.REST.URL, cfg.REST.User, cfg.REST.TokenFile = url, "spillway", tokenFile(t, "SLURM_JWT=secret\n")
	return cfg
}

func collector(t testing.TB, cfg Config, deps Deps) *Collector {
	t.Helper()
	if deps.Log == nil {
		deps.Log = quiet()
	}
	c, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fullState are keys that the recorded documents must give: jobs of each kind and the nodes.
func fullState() []string {
	keys := []string{}
	for _, id := range []int{1, 2, 7, 9, 6, 18, 23} {
		keys = append(keys, fmt.Sprintf("spillway.placement.v1 nvl/%d", id))
	}
	for rack := 1; rack <= 3; rack++ {
		for node := 1; node <= 18; node++ {
			keys = append(keys, fmt.Sprintf("spillway.node.v1 nvl/gb-r%02d-n%02d", rack, node))
		}
	}
	return keys
}

func TestConformanceREST(t *testing.T) {
	restd := newFakeRestd(t)
	server := httptest.NewServer(restd)
	defer server.Close()
	cfg := restConfig(t, server.URL)
	collecttest.Run(t, collecttest.Source{
		New:     func(t *testing.T) collect.Collector { return collector(t, cfg, Deps{}) },
		Cluster: "nvl",
		Full:    fullState(),
		Change: func(t *testing.T) []string {
			after := document(t, samples+"squeue_after.json")
			restd.set(func() { restd.jobs, restd.jobsAt = after, restd.jobsAt+1000 })
			return []string{"spillway.placement.v1 nvl/16", "spillway.placement.v1 nvl/13"}
		},
		Break: func(*testing.T) { restd.set(func() { restd.broken = true; restd.jobsAt += 1000 }) },
		Mend:  func(*testing.T) { restd.set(func() { restd.broken = false }) },
	})
}

// script writes a program that prints files, and returns its argument list.
func script(t testing.TB, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{path}
}

func TestConformanceCommands(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, body []byte) {
		t.Helper()
		temporary := filepath.Join(dir, "."+name)
		if err := os.WriteFile(temporary, body, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	jobs, nodes := document(t, samples+"squeue.json"), document(t, samples+"nodes.json")
	put("jobs", jobs)
	put("nodes", nodes)
	put("accounting", document(t, samples+"sacct.json"))
	tool := script(t, `exec cat `+dir+`/"$1"`)
	cfg := fast(testConfig())
	cfg.Commands = Commands{Jobs: append(tool, "jobs"), Nodes: append(tool, "nodes"), Accounting: append(tool, "accounting")}
	collecttest.Run(t, collecttest.Source{
		New:     func(t *testing.T) collect.Collector { return collector(t, cfg, Deps{}) },
		Cluster: "nvl",
		Full:    fullState(),
		Change: func(t *testing.T) []string {
			put("jobs", document(t, samples+"squeue_after.json"))
			return []string{"spillway.placement.v1 nvl/16", "spillway.placement.v1 nvl/13"}
		},
		Break: func(*testing.T) { put("jobs", jobs[:len(jobs)/2]); put("nodes", nodes[:len(nodes)/2]) },
		Mend:  func(*testing.T) { put("jobs", jobs); put("nodes", nodes) },
	})
}

func TestRESTOverAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "restd.sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: newFakeRestd(t)}}
	server.Start()
	defer server.Close()
	cfg := restConfig(t, "unix://"+path)
	records, _ := observeREST(t, cfg)
	if len(records) != 20 {
		t.Errorf("%d records", len(records))
	}
}

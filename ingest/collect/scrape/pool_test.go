package scrape

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/schemas/event"
)

// nodes is a Reader that makes a node record of every answer, named by the answer's only metric.
type nodes struct {
	text *Text
	last int // length of the answer before, to see that buffers are reused
}

func (n *nodes) Read(t *Target, body []byte, at time.Time) ([]event.Record, func(), error) {
	var records []event.Record
	_, err := n.text.Read(body, func(l *Line) {
		records = append(records, &event.Node{Cluster: t.Cluster, Node: string(l.Name()), Source: "test", ObservedAtMs: at.UnixMilli()})
	})
	if err != nil {
		return nil, nil, err
	}
	n.last = len(body)
	return records, nil, nil
}

// fast makes a configuration that asks often.
func fast() Config {
	cfg := testConfig()
	cfg.Interval, cfg.Timeout, cfg.Rediscover, cfg.Concurrency, cfg.Tolerate = 20*time.Millisecond, time.Second, 20*time.Millisecond, 4, 0
	return cfg
}

// start runs a pool until the test ends.
func start(t *testing.T, cfg Config, out collect.Emitter, reg prometheus.Registerer) {
	t.Helper()
	if err := validate(cfg); err != nil {
		t.Fatal(err)
	}
	deps := Deps{Name: "test", NewReader: func() Reader { return &nodes{text: NewText()} }}
	if reg != nil {
		deps.Metrics = collect.NewMetrics(reg, "test", time.Now)
	}
	p, err := NewPool(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

func serve(t *testing.T, answer http.HandlerFunc) (address string) {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}

func named(name string) func([]event.Record) bool {
	return func(records []event.Record) bool {
		for _, r := range records {
			if n, ok := r.(*event.Node); ok && n.Node == name {
				return true
			}
		}
		return false
	}
}

func problem(records []event.Record) (string, bool) {
	for i := len(records) - 1; i >= 0; i-- {
		if s, ok := records[i].(*event.Source); ok {
			return s.Problem, true
		}
	}
	return "", false
}

func TestATargetThatFailsIsCountedAndHarmsNoOther(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, c := range map[string]struct {
		reason string
		answer http.HandlerFunc
		change func(*Config)
	}{
		"an error of the exporter": {"status", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "boom", http.StatusInternalServerError) }, nil},
		"an answer shorter than announced": {"truncated", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "bad 1\n")
		}, nil},
		"an answer in chunks that breaks off": {"truncated", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "bad 1\n")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, nil},
		"an answer without its last newline": {"truncated", text("bad 1\nbad"), nil},
		"an empty answer":                    {"empty", text(""), nil},
		"an answer that never ends": {"too_large", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, strings.Repeat("bad 1\n", 100))
			}
		}, func(c *Config) { c.MaxBytes = 10000 }},
		"a long answer that says so": {"too_large", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "20000")
			_, _ = io.WriteString(w, strings.Repeat("bad 1\n", 100))
		}, func(c *Config) { c.MaxBytes = 10000 }},
		"an exporter that hangs": {"timeout", func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-hang:
			}
		}, func(c *Config) { c.Timeout = 30 * time.Millisecond }},
		"a redirect": {"status", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, nil},
		"a page":     {"malformed", text("<html>\n</html>\n"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := fast()
			if c.change != nil {
				c.change(&cfg)
			}
			cfg.Targets = []Group{{Targets: []string{serve(t, c.answer), serve(t, text("good 1\n"))}}}
			out, reg := &collecttest.Sink{}, prometheus.NewRegistry()
			start(t, cfg, out, reg)
			out.Wait(t, "a record of the good target and a report of the bad one", func(r []event.Record) bool {
				p, _ := problem(r)
				return named("good")(r) && strings.HasPrefix(p, "1 of 2 targets are not read, as: ")
			})
			if named("bad")(out.Records()) {
				t.Error("something of a failed answer was emitted")
			}
			if got := counted(t, reg, "spillway_collect_errors_total", c.reason); got == 0 {
				t.Errorf("no failure is counted as %s", c.reason)
			}
		})
	}
}

// counted is the value of a counter with a reason.
func counted(t *testing.T, reg *prometheus.Registry, name, reason string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == "reason" && l.GetValue() == reason {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

func TestNobodyListens(t *testing.T) {
	s := httptest.NewServer(text("x 1\n"))
	address := strings.TrimPrefix(s.URL, "http://")
	s.Close()
	cfg := fast()
	cfg.Targets = []Group{{Targets: []string{address}}}
	out, reg := &collecttest.Sink{}, prometheus.NewRegistry()
	start(t, cfg, out, reg)
	out.Wait(t, "a report", func(r []event.Record) bool { p, _ := problem(r); return strings.Contains(p, "refused") })
	if counted(t, reg, "spillway_collect_errors_total", "connect") == 0 {
		t.Error("no failure is counted as connect")
	}
}

func TestNoTargets(t *testing.T) {
	out := &collecttest.Sink{}
	start(t, fast(), out, nil)
	out.Wait(t, "a report", func(r []event.Record) bool {
		p, _ := problem(r)
		return p == "no target is known: set targets, files or dns"
	})
}

func TestAFewTargetsMayFail(t *testing.T) {
	cfg := fast()
	cfg.Tolerate = 0.5
	var broken atomic.Bool
	sometimes := func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "b 1\n")
	}
	bad := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	cfg.Targets = []Group{{Targets: []string{serve(t, bad), serve(t, sometimes)}}}
	out := &collecttest.Sink{}
	start(t, cfg, out, nil)
	out.Wait(t, "a good report with one of two failing", func(r []event.Record) bool { p, ok := problem(r); return ok && p == "" })
	broken.Store(true)
	out.Wait(t, "a bad report with both", func(r []event.Record) bool { p, _ := problem(r); return strings.HasPrefix(p, "2 of 2") })
	broken.Store(false)
	out.Wait(t, "a good report again", func(r []event.Record) bool { p, ok := problem(r); return ok && p == "" })
}

func TestTargetsComeAndGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "targets.json")
	var asked [2]atomic.Int64
	var addresses []string
	for i := range asked {
		addresses = append(addresses, serve(t, func(w http.ResponseWriter, _ *http.Request) {
			asked[i].Add(1)
			fmt.Fprintf(w, "node%d 1\n", i)
		}))
	}
	write(t, path, fmt.Sprintf(`[{"targets": [%q]}]`, addresses[0]))
	cfg := fast()
	cfg.Files = []string{path}
	out := &collecttest.Sink{}
	start(t, cfg, out, nil)
	out.Wait(t, "the first target", named("node0"))
	write(t, path, fmt.Sprintf(`[{"targets": [%q], "labels": {"cluster": "c2"}}]`, addresses[1]))
	out.Wait(t, "the second target", named("node1"))
	for _, r := range out.Records() {
		if n, ok := r.(*event.Node); ok && n.Node == "node1" && n.Cluster != "c2" {
			t.Errorf("cluster %q", n.Cluster)
		}
	}
	// The first may be asked once more by a worker that had it already.
	before, second := asked[0].Load(), asked[1].Load()
	out.Wait(t, "some rounds", func([]event.Record) bool { return asked[1].Load() > second+5 })
	if got := asked[0].Load(); got > before+1 {
		t.Errorf("a target that is not listed any more was asked %d times", got-before)
	}
}

func TestEveryTargetHasItsSlotAndConcurrencyIsBounded(t *testing.T) {
	const targets = 200
	var mu sync.Mutex
	var now, most int
	times := map[string][]time.Time{}
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		times[r.URL.Path] = append(times[r.URL.Path], time.Now())
		mu.Unlock()
		_, _ = io.WriteString(w, "n 1\n")
		mu.Lock()
		now--
		mu.Unlock()
	})
	cfg := fast()
	cfg.Interval, cfg.Concurrency = 500*time.Millisecond, 3
	for i := range targets {
		cfg.Targets = append(cfg.Targets, Group{Targets: []string{address}, Labels: map[string]string{"__metrics_path__": "/" + strconv.Itoa(i)}})
	}
	out := &collecttest.Sink{}
	start(t, cfg, out, nil)
	out.Wait(t, "four rounds", func([]event.Record) bool {
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for _, all := range times {
			if len(all) >= 4 {
				n++
			}
		}
		return n == targets
	})
	mu.Lock()
	defer mu.Unlock()
	if most > cfg.Concurrency {
		t.Errorf("%d targets were asked at the same time, %d are allowed", most, cfg.Concurrency)
	}
	var offsets []float64
	for path, all := range times {
		// The third round on, each comes in its own slot; a loaded machine may be late.
		offsets = append(offsets, all[2].Sub(all[2].Truncate(cfg.Interval)).Seconds()/cfg.Interval.Seconds())
		if gap := all[3].Sub(all[2]); gap < cfg.Interval/4 {
			t.Errorf("%s was asked again after %v", path, gap)
		}
	}
	quarters := [4]int{}
	for _, o := range offsets {
		quarters[int(o*4)]++
	}
	for q, n := range quarters {
		if n < targets/20 {
			t.Errorf("quarter %d of the interval has %d of %d targets", q, n, targets)
		}
	}
}

func TestTLSAndToken(t *testing.T) {
	dir := t.TempDir()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cret" || r.Header.Get("Accept") != accept {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, "secure 1\n")
	}))
	t.Cleanup(s.Close)
	ca, token := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "token")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	write(t, token, "wrong\n")
	cfg := fast()
	cfg.Scheme, cfg.CAFile, cfg.TokenFile = "https", ca, token
	cfg.Targets = []Group{{Targets: []string{strings.TrimPrefix(s.URL, "https://")}}}
	out := &collecttest.Sink{}
	start(t, cfg, out, nil)
	out.Wait(t, "a refusal of the wrong token", func(r []event.Record) bool { p, _ := problem(r); return strings.Contains(p, "401") })
	write(t, token, "s3cret\n") // read again for every request
	out.Wait(t, "an answer", named("secure"))

	write(t, ca, "no certificate")
	if _, err := NewPool(cfg, Deps{Name: "test"}); err == nil || !strings.Contains(err.Error(), "ca_file") {
		t.Errorf("a bad ca_file: error %v", err)
	}
}

func TestMetrics(t *testing.T) {
	cfg := fast()
	cfg.Targets = []Group{{Targets: []string{serve(t, text("a 1\n")), serve(t, text("b 1\n"))}}}
	out, reg := &collecttest.Sink{}, prometheus.NewRegistry()
	start(t, cfg, out, reg)
	out.Wait(t, "both", func(r []event.Record) bool { return named("a")(r) && named("b")(r) })
	out.Wait(t, "the gauge", func([]event.Record) bool {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "spillway_collect_seen" {
				return f.GetMetric()[0].GetGauge().GetValue() == 2
			}
		}
		return false
	})
}

package dcgm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/schemas/event"
)

// helperEnv makes the test binary the helper process: "library" loads what stands for NVIDIA's, any other text is the
// path of a file that says what a library without one does.
const helperEnv = "SPILLWAY_TEST_HELPER"

// serveTestHelper is main of the helper process.
func serveTestHelper(which string) int {
	serve := func() error {
		return serveHelper(os.Stdin, os.Stdout, func() (answerer, error) { return scripted(which), nil })
	}
	if which == "library" {
		serve = func() error { return RunHelper(os.Args[len(os.Args)-1], os.Stdin, os.Stdout, os.Stderr) }
	}
	err := serve()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// scripted is a library that does what a file says.
type scripted string

func (s scripted) answer() ([]gpuAnswer, error) {
	text, err := os.ReadFile(string(s))
	if err != nil {
		return nil, err
	}
	switch what, rest, _ := strings.Cut(string(text), " "); what {
	case "die":
		fmt.Fprintln(os.Stderr, "symbol lookup error")
		os.Exit(127)
	case "hang":
		select {}
	case "nonsense":
		fmt.Println("hello")
	case "fail":
		return nil, errors.New(rest)
	}
	return []gpuAnswer{{id: 0, texts: map[uint16]string{fieldUUID: "GPU-a", fieldModel: "NVIDIA GB200", fabricClusterUUID: "6e11e5ce-f087-4640-a473-03d6fcc509ab"},
		values: []valueAnswer{{1201, string(bytes.TrimSpace(text)), time.Now().UnixMilli()}, {fabricCliqueID, "7", time.Now().UnixMilli()}}}}, nil
}

// directTo makes a collector whose helper is the test binary.
func directTo(t *testing.T, which string, change func(*Config)) (*Collector, *prometheus.Registry) {
	t.Helper()
	t.Setenv(helperEnv, which)
	cfg := testConfig()
	cfg.Interval, cfg.Timeout = 20*time.Millisecond, 5*time.Second
	cfg.Direct.Enabled, cfg.Direct.Node = true, "n1"
	if change != nil {
		change(&cfg)
	}
	registry := prometheus.NewRegistry()
	c, err := New(cfg, Deps{Registerer: registry, Helper: []string{os.Args[0]}})
	if err != nil {
		t.Fatal(err)
	}
	return c, registry
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// running runs a collector until the test ends.
func running(t *testing.T, c *Collector) *collecttest.Sink {
	t.Helper()
	out, ended := &collecttest.Sink{}, make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- c.Run(ctx, out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return out
}

func TestHelperConformance(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	put(t, script, "100")
	jobs := t.TempDir()
	put(t, filepath.Join(jobs, "0"), "41257\n")
	collecttest.Run(t, collecttest.Source{
		Cluster: "c1",
		Full:    []string{"spillway.counters.v1 c1/n1", "spillway.membership.v1 c1/n1"},
		New: func(t *testing.T) collect.Collector {
			c, _ := directTo(t, script, func(cfg *Config) { cfg.Direct.HPCJobMapping = jobs })
			return c
		},
		Change: func(t *testing.T) []string {
			put(t, script, "200")
			return []string{"spillway.counters.v1 c1/n1"}
		},
		Break: func(t *testing.T) { put(t, script, "nonsense") },
		Mend:  func(t *testing.T) { put(t, script, "300") },
	})
}

// TestAHelperThatIsNoMore: whatever becomes of the helper, the collector counts it, says so and goes on.
func TestAHelperThatIsNoMore(t *testing.T) {
	for name, c := range map[string]struct{ script, reason, problem string }{
		"dies":               {"die", "helper_died", "exit status 127"},
		"hangs":              {"hang", "helper_hung", "has not answered for 300ms"},
		"says nonsense":      {"nonsense", "helper_died", "has died"},
		"says what is wrong": {"fail nv-hostengine is gone", "read", "nv-hostengine is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			script := filepath.Join(t.TempDir(), "script")
			put(t, script, "100")
			col, registry := directTo(t, script, func(cfg *Config) { cfg.Timeout = 300 * time.Millisecond })
			out := running(t, col)
			out.Wait(t, "counters", func(r []event.Record) bool { return seen(r, 100) })
			put(t, script, c.script)
			out.Wait(t, "a report of "+c.problem, func(r []event.Record) bool {
				for _, record := range r {
					if s, ok := record.(*event.Source); ok && strings.Contains(s.GetProblem(), c.problem) {
						return true
					}
				}
				return false
			})
			if n := failures(t, registry, c.reason); n < 1 {
				t.Errorf("%v errors are counted as %s", n, c.reason)
			}
			put(t, script, "500")
			out.Wait(t, "counters of a new helper", func(r []event.Record) bool { return seen(r, 500) })
		})
	}
}

func seen(records []event.Record, tx float64) bool {
	for _, r := range records {
		if c, ok := r.(*event.Counters); ok && len(c.NvlinkTxBytes) > 0 && c.NvlinkTxBytes[0] == tx {
			return true
		}
	}
	return false
}

func failures(t *testing.T, registry *prometheus.Registry, reason string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "spillway_collect_errors_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" && l.GetValue() == reason {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

// TestEveryDirectFieldHasAName: what is asked for is read, and every set stays within what a library takes.
func TestEveryDirectFieldHasAName(t *testing.T) {
	ids := map[uint16]bool{}
	for _, f := range table() {
		ids[f.id] = true
	}
	gpu, link := directFields()
	asked := map[uint16]bool{}
	for _, set := range append(gpu, link...) {
		if len(set) == 0 || len(set) > 128 {
			t.Errorf("a set of %d fields", len(set))
		}
		for _, id := range set {
			asked[id] = true
			if !ids[id] && id != fieldDriverVersion && id != fieldModel && id != fieldUUID && id != fabricClusterUUID {
				t.Errorf("field %d is asked for and not read", id)
			}
		}
	}
	for _, id := range []uint16{170, 171, 172, 173, 174, 449, 1011, 1012, 1201, 1203, 1206, 1508} {
		if !asked[id] {
			t.Errorf("field %d is not asked for", id)
		}
	}
}

// TestAnExpositionOfItsOwnIsRead: what the helper writes is what the reader of exporters reads, whatever names hold.
func TestAnExpositionOfItsOwnIsRead(t *testing.T) {
	at := moment.UnixMilli()
	text := exposition([]gpuAnswer{
		{id: 3, texts: map[uint16]string{fieldUUID: "GPU-\"a\\\n", fieldModel: "NVIDIA H100", fieldDriverVersion: "580.1"}, values: []valueAnswer{
			{1201, "9223372036854775792", at}, {449, "1000", at}, {1203, "7", at - time.Hour.Milliseconds()}, {1011, "NaN", at},
		}, links: map[uint32][]valueAnswer{2: {{1508, "1", at}}, 1: {{1508, "0", at}}}},
		{id: 4, texts: map[uint16]string{fieldUUID: "GPU-b"}},
	})
	tgt := *target
	tgt.Node = "n1"
	r := newTestReader(t, testConfig())
	records, _, err := r.Read(&tgt, text, moment)
	if err != nil {
		t.Fatal(err)
	}
	got := show(records, r)
	for _, line := range []string{
		`gpu_uuid: "GPU-\"a\\\n" "GPU-b"`, "gpu_index: 3 4", `driver_version: "580.1"`, "nvlink_bytes_per_second: 1.024e+09 NaN",
		"link_state: DOWN UP", "left out: stale 1", "left out: blank 2",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("%q is not in what is read", line)
		}
	}
	if strings.Contains(got, "nvlink_rx_bytes:") || strings.Contains(got, "nvlink_tx_bytes:") || t.Failed() {
		t.Errorf("%s\nread as\n%s", text, got)
	}
}

func newBuffered(b []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(b)) }

// TestEveryPrefixOfAFrame: a cut answer is an error and never half an answer.
func TestEveryPrefixOfAFrame(t *testing.T) {
	var whole bytes.Buffer
	if err := writeFrame(&whole, "ok", []byte("some text\n")); err != nil {
		t.Fatal(err)
	}
	b := whole.Bytes()
	for i := range b {
		if text, err := readFrame(newBuffered(b[:i:i]), 100); err == nil {
			t.Errorf("%d bytes of it are read as %q", i, text)
		}
	}
	if text, err := readFrame(newBuffered(b), 100); err != nil || string(text) != "some text\n" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := readFrame(newBuffered(b), 5); err == nil || !strings.Contains(err.Error(), "max_bytes") {
		t.Errorf("an answer over the limit: %v", err)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("ok 3\nabc"))
	f.Add([]byte("error 2\nno"))
	f.Add([]byte("ok -1\n"))
	f.Add([]byte("ok 99999999999999999999\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		text, err := readFrame(newBuffered(b), 1000)
		if err == nil && !bytes.Contains(b, text) {
			t.Errorf("%q is read of %q", text, b)
		}
	})
}

func TestHelperArgument(t *testing.T) {
	if err := RunHelper("x", strings.NewReader(""), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "dcgm collector") {
		t.Errorf("error %v", err)
	}
}

func TestDirectConfiguration(t *testing.T) {
	cfg := testConfig()
	cfg.Direct.Enabled = true
	if _, err := New(cfg, Deps{}); err == nil || !strings.Contains(err.Error(), "helper") {
		t.Errorf("no helper: error %v", err)
	}
	if err := Built(); err != nil && !strings.Contains(err.Error(), "-tags dcgm") {
		t.Errorf("a program without the libraries: error %v", err)
	}
	cfg.Direct.Address = ""
	if _, err := New(cfg, Deps{Helper: []string{"x"}}); err == nil || !strings.Contains(err.Error(), "direct.address") {
		t.Errorf("no address: error %v", err)
	}
	cfg = testConfig()
	cfg.Direct.Enabled, cfg.Direct.Library = true, filepath.Join(t.TempDir(), "libdcgm.so.4")
	c, err := New(cfg, Deps{Helper: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context(), &collecttest.Sink{}); err == nil || !strings.Contains(err.Error(), "direct.library") {
		t.Errorf("a library that is not there: error %v", err)
	}
}

package dcgm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/scrape"
	"github.com/spillway-io/spillway/schemas/event"
)

// BenchmarkRead reads answers of one exporter again and again, from the text to the records.
func BenchmarkRead(b *testing.B) {
	for _, file := range []string{"h100_8gpu_pod_labels.prom", "gb200_4gpu_hpc_job.prom", "per_link_fe_link_entities.prom", "mig_node.prom"} {
		b.Run(strings.TrimSuffix(file, ".prom"), func(b *testing.B) {
			body, r, at := sample(b, file), newTestReader(b, testConfig()), moment
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			defer perCore(b, len(body))()
			for b.Loop() {
				at = at.Add(10 * time.Second)
				if _, _, err := r.Read(target, body, at); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkText is the parsing alone.
func BenchmarkText(b *testing.B) {
	body, text := sample(b, "h100_8gpu_pod_labels.prom"), scrape.NewText()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	defer perCore(b, len(body))()
	for b.Loop() {
		if _, err := text.Read(body, func(l *scrape.Line) { l.Name() }); err != nil {
			b.Fatal(err)
		}
	}
}

// perCore reports megabytes a second of processor time, which other work on the machine does not spoil.
func perCore(b *testing.B, size int) func() {
	before := cpuTime(b)
	return func() { b.ReportMetric(float64(b.N*size)/1e6/(cpuTime(b)-before).Seconds(), "MB/cpu-s") }
}

// counting is an emitter that only counts.
type counting struct{ counters, memberships, bytes atomic.Int64 }

func (c *counting) Emit(_ context.Context, records ...event.Record) error {
	for _, r := range records {
		_, value, err := event.Encode(r)
		if err != nil {
			return err
		}
		switch r.(type) {
		case *event.Counters:
			c.counters.Add(1)
			c.bytes.Add(int64(len(value)))
		case *event.Membership:
			c.memberships.Add(1)
		}
	}
	return nil
}

const serveEnv = "SPILLWAY_TEST_SERVE"

// serveFleet is the exporters of a whole fleet, in a process of its own that BenchmarkFleet starts.
func serveFleet() {
	body, err := os.ReadFile("testdata/h100_8gpu_pod_labels.prom")
	if err != nil {
		panic(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		node := strings.Trim(r.URL.Path, "/")
		answer := bytes.ReplaceAll(body, []byte("gpu-h100-017"), []byte(node))
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer)
	}))
	defer s.Close()
	fmt.Println(strings.TrimPrefix(s.URL, "http://"))
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent closes it
}

// BenchmarkFleet scrapes 2000 exporters of 8 GPUs every 10 s for one minute and reports what that takes of this process;
// the exporters are another. Run it with -benchtime 1x.
func BenchmarkFleet(b *testing.B) {
	const targets, rounds = 2000, 6
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { stdin.Close(); _ = cmd.Wait() }()
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	address = strings.TrimSpace(address)

	cfg := testConfig()
	for i := range targets {
		cfg.Targets = append(cfg.Targets, scrape.Group{
			Targets: []string{address}, Labels: map[string]string{"__metrics_path__": fmt.Sprintf("/n%04d", i)},
		})
	}
	for b.Loop() {
		c, err := New(cfg, Deps{})
		if err != nil {
			b.Fatal(err)
		}
		out := &counting{}
		ctx, cancel := context.WithTimeout(b.Context(), rounds*cfg.Interval)
		before := cpuTime(b)
		if err := c.Run(ctx, out); err != nil {
			b.Fatal(err)
		}
		cancel()
		used := cpuTime(b) - before
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(used.Seconds()/(rounds*cfg.Interval).Seconds(), "cores")
		b.ReportMetric(float64(out.counters.Load())/(rounds*cfg.Interval).Seconds(), "records/s")
		b.ReportMetric(float64(out.bytes.Load())/float64(out.counters.Load()), "B/record")
		b.ReportMetric(float64(m.HeapSys)/1e6, "MB-heap")
		if out.counters.Load() < targets*(rounds-1) {
			b.Errorf("%d records, where %d targets were asked for %d rounds", out.counters.Load(), targets, rounds)
		}
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package dcgm

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/ingest/collect/scrape"
	"github.com/spillway-io/spillway/internal/config"
)

func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) != "" {
		serveFleet()
		return
	}
	if which := os.Getenv(helperEnv); which != "" {
		os.Exit(serveTestHelper(which))
	}
	goleak.VerifyTestMain(m)
}

// exporter is a dcgm-exporter that the test controls.
type exporter struct {
	mu     sync.Mutex
	body   []byte
	broken bool
}

func (e *exporter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	w.Header().Set("Content-Length", strconv.Itoa(len(e.body)))
	if e.broken {
		_, _ = w.Write(e.body[:len(e.body)/2])
		return
	}
	_, _ = w.Write(e.body)
}

func (e *exporter) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

func TestConformance(t *testing.T) {
	rack3, rack5 := &exporter{body: sample(t, "gb200_4gpu_hpc_job.prom")}, &exporter{body: sample(t, "gb200_4gpu_other_rack_same_job.prom")}
	var addresses []string
	for _, e := range []*exporter{rack3, rack5} {
		s := httptest.NewServer(e)
		t.Cleanup(s.Close)
		addresses = append(addresses, strings.TrimPrefix(s.URL, "http://"))
	}
	collecttest.Run(t, collecttest.Source{
		Cluster: "c1",
		Full: []string{
			"spillway.counters.v1 c1/gb200-r03-t07", "spillway.counters.v1 c1/gb200-r05-t02",
			"spillway.membership.v1 c1/gb200-r03-t07", "spillway.membership.v1 c1/gb200-r05-t02",
		},
		New: func(t *testing.T) collect.Collector {
			cfg := testConfig()
			cfg.Interval, cfg.Rediscover = 20*time.Millisecond, time.Hour
			cfg.Targets = []scrape.Group{{Targets: addresses}}
			c, err := New(cfg, Deps{})
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
		Change: func(t *testing.T) []string {
			rack5.set(func() { // the tray moved to another partition
				rack5.body = []byte(strings.ReplaceAll(string(rack5.body), "} 32766\n", "} 7\n"))
			})
			return []string{"spillway.membership.v1 c1/gb200-r05-t02"}
		},
		Break: func(*testing.T) {
			rack3.set(func() { rack3.broken = true })
			rack5.set(func() { rack5.broken = true })
		},
		Mend: func(*testing.T) {
			rack3.set(func() { rack3.broken = false })
			rack5.set(func() { rack5.broken = false })
		},
	})
}

func TestAnExporterThatMovesGoesOnWhereItWas(t *testing.T) {
	c, err := New(testConfig(), Deps{})
	if err != nil {
		t.Fatal(err)
	}
	first, second := c.newReader(), c.newReader() // of two workers
	read(t, first, answer("tx 0 = 10"), moment)
	moved := *target
	moved.URL = "http://192.0.2.9:9400/metrics"
	records, _, err := second.Read(&moved, answer("tx 0 = 20"), moment.Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := show(records, second), "gpu_since_ms: "+strconv.FormatInt(moment.UnixMilli(), 10); !strings.Contains(got, want) {
		t.Errorf("%q is not in:\n%s", want, got)
	}
	records, _, err = first.Read(target, answer("tx 0 = 15"), moment.Add(time.Millisecond))
	if err != nil || len(records) > 0 {
		t.Errorf("an answer that a newer one has overtaken gave %v, error %v", records, err)
	}
}

func TestWhatIsOldIsForgotten(t *testing.T) {
	c, err := New(testConfig(), Deps{})
	if err != nil {
		t.Fatal(err)
	}
	r := c.newReader()
	for i := range 100 {
		body := strings.ReplaceAll(string(answer("tx 0 = 10")), `"n1"`, `"n`+strconv.Itoa(i)+`"`)
		read(t, r, []byte(body), moment)
	}
	read(t, r, answer("tx 0 = 10"), moment.Add(48*time.Hour))
	if n := len(c.history.nodes); n != 1 {
		t.Errorf("%d nodes are remembered, where one was seen in the last day", n)
	}
}

func TestConfiguration(t *testing.T) {
	load := func(text string) (Config, error) {
		path := filepath.Join(t.TempDir(), "spillway.yaml")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		cfg := DefaultConfig()
		err := config.Load(path, &cfg, config.WithEnv(nil))
		return cfg, err
	}
	cfg, err := load(`
cluster: c1
interval: 15s
targets:
  - targets: [n1, n2:9500]
    labels: {cluster: c2}
files: [/etc/spillway/exporters/*.json]
dns:
  - names: [_dcgm._tcp.example.com]
    type: SRV
names: {nvlink_tx: 1201}
labels: {slurm_job: job}
nvlink_bytes_per_second: {"": 1800e9}
`)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Interval != 15*time.Second || cfg.Port != 9400 || cfg.Names["nvlink_tx"] != 1201 || len(cfg.Targets[0].Targets) != 2 {
		t.Errorf("%+v", cfg)
	}
	for key, text := range map[string]string{
		"cluster":                 "interval: 10s",
		"intervall":               "cluster: c1\nintervall: 10s",
		"exporter_interval":       "cluster: c1\nexporter_interval: 0s",
		"names":                   "cluster: c1\nnames: {x: 155}",
		"labels":                  "cluster: c1\nlabels: {x: rack}",
		"nvlink_bytes_per_second": "cluster: c1\nnvlink_bytes_per_second: {H100: -1}",
	} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%q: error %v", text, err)
		}
	}
	if w := DefaultConfig(); len((&w).Warnings()) == 0 {
		t.Error("no warning that there is no target")
	}
}

func TestMostPlausibleRate(t *testing.T) {
	cfg := testConfig()
	for model, want := range map[string]float64{
		"NVIDIA H100 80GB HBM3": 450e9, "NVIDIA-H100-80GB-HBM3": 450e9, "NVIDIA GB200": 900e9, "NVIDIA Graphics Device": 1800e9, "": 1800e9,
		"NVIDIA A800-SXM4-80GB": 200e9,
	} {
		if got := cfg.most(model); got != want*overshoot {
			t.Errorf("%q: %v, want %v", model, got, want*overshoot)
		}
	}
	cfg.NVLinkBytesPerSecond = nil
	if got := cfg.most("NVIDIA GB200"); got != 0 {
		t.Errorf("without a table: %v", got)
	}
}

// TestRecommendedCounters holds the file that operators append to their exporter's against what is read and how an
// exporter reads it.
func TestRecommendedCounters(t *testing.T) {
	text, err := os.ReadFile("counters.csv")
	if err != nil {
		t.Fatal(err)
	}
	fields, err := byName(nil)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(strings.TrimSpace(line), ",")
		if len(columns) != 3 {
			t.Errorf("%q has %d columns; an exporter wants 3", line, len(columns))
			continue
		}
		name, kindText := strings.TrimSpace(columns[0]), strings.TrimSpace(columns[1])
		f := fields[name]
		switch {
		case kindText == "label":
			if _, ok := labelRoles[strings.ToLower(name)]; !ok {
				t.Errorf("the label %s is not read", name)
			}
		case f == nil:
			t.Errorf("the field %s is not read", name)
		case (f.kind == counter) != (kindText == "counter"):
			t.Errorf("%s is said to be a %s", name, kindText)
		}
	}
}

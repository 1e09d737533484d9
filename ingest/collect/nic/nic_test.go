package nic

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/ingest/collect/scrape"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var moment = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

func testConfig() Config {
	cfg := DefaultConfig()
	cfg.Cluster, cfg.Interval = "c1", 20*time.Millisecond
	return cfg
}

func newCollector(t testing.TB, cfg Config) *Collector {
	t.Helper()
	c, err := New(cfg, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func sample(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// show prints one port a line, its since in seconds after moment.
func show(r *event.Counters) string {
	var b strings.Builder
	at := func(column []float64, i int) string {
		if column == nil || math.IsNaN(column[i]) {
			return "-"
		}
		return strconv.FormatFloat(column[i], 'g', -1, 64)
	}
	for i, nic := range r.Nic {
		state, gid, layer, reset := event.LinkState_LINK_STATE_UNSPECIFIED, "-", "-", ""
		if r.NicState != nil {
			state = r.NicState[i]
		}
		if r.NicGid != nil {
			gid = r.NicGid[i]
		}
		if r.NicLinkLayer != nil {
			layer = r.NicLinkLayer[i]
		}
		if r.NicReset != nil && r.NicReset[i] {
			reset = " reset"
		}
		fmt.Fprintf(&b, "%s/%d gid=%s %s %s speed=%s tx=%s rx=%s wait=%s recoveries=%s downs=%s since=%d%s\n", nic, r.NicPort[i], gid, layer, state,
			at(r.NicSpeedBytesPerSecond, i), at(r.NicTxBytes, i), at(r.NicRxBytes, i), at(r.NicTxWait, i), at(r.NicRecoveries, i), at(r.NicDowns, i),
			(r.NicSinceMs[i]-moment.UnixMilli())/1000, reset)
	}
	return b.String()
}

var target = &scrape.Target{URL: "http://n1:9100/metrics", Host: "n1", Cluster: "c1"}

func scrapeOnce(t testing.TB, r *reader, body []byte, at time.Time) *event.Counters {
	t.Helper()
	records, _, err := r.Read(target, body, at)
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records, error %v", len(records), err)
	}
	if err := records[0].Validate(); err != nil {
		t.Fatal(err)
	}
	return records[0].(*event.Counters)
}

const wantExporter = `mlx5_0/1 gid=- - UP speed=5e+10 tx=2.40277483968357e+14 rx=1.70696352577422e+14 wait=6.56614311e+08 recoveries=0 downs=0 since=0
mlx5_1/1 gid=- - UP speed=5e+10 tx=1.43939794192233e+14 rx=3.69456922006503e+14 wait=8.97175945e+08 recoveries=0 downs=0 since=0
mlx5_3/1 gid=- - DOWN speed=5e+10 tx=0 rx=0 wait=0 recoveries=0 downs=3 since=0
mlx5_4/1 gid=- - UP speed=5e+10 tx=1.08325260866585e+14 rx=3.64258639631104e+14 wait=1.42051481e+08 recoveries=0 downs=0 since=0
mlx5_bond_0/1 gid=- - UP speed=2.5e+10 tx=2.16816316982417e+14 rx=1.24808809379677e+14 wait=4.77832087e+08 recoveries=0 downs=0 since=0
`

func TestNodeExporter(t *testing.T) {
	r := newCollector(t, testConfig()).newReader()
	got := scrapeOnce(t, r, sample(t, "node_exporter_infiniband.prom"), moment)
	if diff := cmp.Diff(wantExporter, show(got)); diff != "" {
		t.Error(diff)
	}
	if got.Source != "node_exporter" || got.RecordKey() != "c1/n1" || got.ObservedAtMs != moment.UnixMilli() {
		t.Errorf("%s of %s at %d", got.Source, got.RecordKey(), got.ObservedAtMs)
	}
}

func TestVariantsOfNodeExporter(t *testing.T) {
	body := string(sample(t, "node_exporter_infiniband.prom"))
	for name, change := range map[string]func(string) string{
		"names before 0.16": func(s string) string {
			return strings.NewReplacer("bytes_total{", "bytes{", "recovery_total{", "recovery{", "downed_total{", "downed{").Replace(s)
		},
		"the node tells its name": func(s string) string { return s + "node_uname_info{nodename=\"n1\",sysname=\"Linux\"} 1\n" },
		"other metrics":           func(s string) string { return "go_goroutines 8\nnode_load1 3\n" + s },
		"lines in another order": func(s string) string {
			lines := strings.SplitAfter(s, "\n")
			for i, j := 0, len(lines)-1; i < j; i, j = i+1, j-1 {
				lines[i], lines[j] = lines[j], lines[i]
			}
			return strings.Join(lines, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := scrapeOnce(t, newCollector(t, testConfig()).newReader(), []byte(change(body)), moment)
			if diff := cmp.Diff(wantExporter, show(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDevicesAreChosen(t *testing.T) {
	cfg := testConfig()
	cfg.Devices, cfg.Except = []string{"mlx5_[0-3]", "mlx5_bond_0"}, []string{".*bond.*"}
	got := scrapeOnce(t, newCollector(t, cfg).newReader(), sample(t, "node_exporter_infiniband.prom"), moment)
	if want := "[mlx5_0 mlx5_1 mlx5_3]"; fmt.Sprint(got.Nic) != want {
		t.Errorf("devices %v, want %s", got.Nic, want)
	}
}

func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		body, reason string
		target       scrape.Target
	}{
		"no port":         {"node_load1 3\n", "no_nic", *target},
		"a cut answer":    {"node_load1 3", "truncated", *target},
		"nobody's port":   {"node_infiniband_state_id{device=\"a\",port=\"1\"} 4\n", "no_node", scrape.Target{Cluster: "c1"}},
		"an unfit name":   {"node_infiniband_state_id{device=\"a\",port=\"1\"} 4\n", "invalid", scrape.Target{Cluster: "c1", Node: "a\x01b"}},
		"a port's number": {"node_infiniband_state_id{device=\"a\",port=\"x\"} 4\n", "no_nic", *target},
	} {
		t.Run(name, func(t *testing.T) {
			records, _, err := newCollector(t, testConfig()).newReader().Read(&c.target, []byte(c.body), moment)
			if f, ok := errors.AsType[*scrape.Failure](err); !ok || f.Reason != c.reason {
				t.Errorf("records %v, error %v, want one of reason %s", records, err, c.reason)
			}
		})
	}
}

// tree makes a sysfs of the sample's list of path=value below a directory.
func tree(t testing.TB, list string) (root string) {
	t.Helper()
	root = t.TempDir()
	for line := range strings.Lines(list) {
		path, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		put(t, root, strings.TrimPrefix(path, "/sys/"), value)
	}
	return root
}

func put(t testing.TB, root, path, value string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func sysfsConfig(root string) Config {
	cfg := testConfig()
	cfg.Sysfs = Sysfs{Enabled: true, Root: root, Node: "n1"}
	return cfg
}

// step reads this machine once.
func step(t *testing.T, c *Collector, out *collecttest.Sink) string {
	t.Helper()
	if _, err := c.sysfs(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	r := out.Records()
	last := r[len(r)-1].(*event.Counters)
	if err := last.Validate(); err != nil {
		t.Fatal(err)
	}
	return show(last)
}

func TestSysfs(t *testing.T) {
	root := tree(t, string(sample(t, "sysfs_infiniband.txt")))
	put(t, root, "class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:a088:c203:00ab:cdef")
	put(t, root, "class/infiniband/mlx5_3/ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0000")
	c := newCollector(t, sysfsConfig(root))
	c.now = func() time.Time { return moment }
	want := `mlx5_0/1 gid=fe80:0000:0000:0000:a088:c203:00ab:cdef InfiniBand UP speed=5e+10 tx=1.65e+14 rx=1.63644e+14 wait=18844 recoveries=- downs=- since=0
mlx5_3/1 gid= InfiniBand DOWN speed=1.25e+09 tx=0 rx=0 wait=18844 recoveries=- downs=- since=0
mlx5_bond_0/1 gid= Ethernet UP speed=2.5e+10 tx=3.248e+09 rx=3.196e+09 wait=18844 recoveries=- downs=- since=0
`
	if diff := cmp.Diff(want, step(t, c, &collecttest.Sink{})); diff != "" {
		t.Error(diff)
	}
}

func TestSequences(t *testing.T) {
	const dev0 = "class/infiniband/mlx5_0/ports/1/"
	base := func(t *testing.T) (root string) {
		root = tree(t, "")
		put(t, root, dev0+"state", "4: ACTIVE")
		put(t, root, dev0+"rate", "400 Gb/sec (4X NDR)")
		put(t, root, dev0+"counters/port_xmit_data", "1000")
		put(t, root, dev0+"gids/0", "fe80:0000:0000:0000:a088:c203:00ab:cdef")
		put(t, root, "class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE")
		return root
	}
	rename := func(t *testing.T, root, from, to string) {
		t.Helper()
		if err := os.Rename(filepath.Join(root, "class/infiniband", from), filepath.Join(root, "class/infiniband", to)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, root string)
		want   []string // in the second reading, 10 s after the first
		not    []string
	}{
		"a counter that grows runs on": {func(t *testing.T, root string) { put(t, root, dev0+"counters/port_xmit_data", "2000") }, []string{"tx=8000", "since=0\n"}, []string{"reset"}},
		"one that falls began anew":    {func(t *testing.T, root string) { put(t, root, dev0+"counters/port_xmit_data", "999") }, []string{"tx=3996", "since=10 reset"}, nil},
		"growth the port could not carry is a beginning": {func(t *testing.T, root string) {
			put(t, root, dev0+"counters/port_xmit_data", strconv.FormatInt(1000+16*50e9/4*107/100, 10))
		}, []string{"since=10 reset"}, nil},
		"growth it could is none": {func(t *testing.T, root string) {
			put(t, root, dev0+"counters/port_xmit_data", strconv.FormatInt(1000+14*50e9/4*107/100, 10))
		}, nil, []string{"reset"}},
		"a port that went down with a lower speed did carry it": {func(t *testing.T, root string) {
			put(t, root, dev0+"counters/port_xmit_data", strconv.FormatInt(1000+9*50e9/4, 10))
			put(t, root, dev0+"state", "1: DOWN")
			put(t, root, dev0+"rate", "10 Gb/sec (4X SDR)")
		}, []string{"DOWN speed=1.25e+09"}, []string{"reset"}},
		"a port that comes up is neither down nor up": {func(t *testing.T, root string) { put(t, root, dev0+"state", "2: INIT") }, []string{"STARTING"}, nil},
		"a device that is renamed runs on": {func(t *testing.T, root string) {
			rename(t, root, "mlx5_0", "ibp9s0")
		}, []string{"ibp9s0/1 gid=fe80:0000:0000:0000:a088:c203:00ab:cdef - UP speed=5e+10 tx=4000 rx=- wait=- recoveries=- downs=- since=0\n"}, []string{"MISSING", "mlx5_0"}},
		"a port that vanishes is a fact": {func(t *testing.T, root string) {
			if err := os.RemoveAll(filepath.Join(root, "class/infiniband/mlx5_1")); err != nil {
				t.Fatal(err)
			}
		}, []string{"mlx5_1/1 gid= - MISSING speed=- tx=-"}, nil},
		"a number that cannot be read is absent": {func(t *testing.T, root string) {
			put(t, root, dev0+"counters/port_xmit_data", "N/A (no PMA)")
			put(t, root, dev0+"rate", "unknown")
		}, []string{"mlx5_0/1 gid=fe80:0000:0000:0000:a088:c203:00ab:cdef - UP speed=- tx=-"}, []string{"reset"}},
		"a device without ports takes nothing away": {func(t *testing.T, root string) {
			if err := os.RemoveAll(filepath.Join(root, "class/infiniband/mlx5_1/ports")); err != nil {
				t.Fatal(err)
			}
		}, []string{"mlx5_0/1"}, []string{"MISSING"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := base(t)
			col, out := newCollector(t, sysfsConfig(root)), &collecttest.Sink{}
			col.now = func() time.Time { return moment }
			step(t, col, out)
			c.change(t, root)
			col.now = func() time.Time { return moment.Add(10 * time.Second) }
			got := step(t, col, out)
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("%q is not in:\n%s", w, got)
				}
			}
			for _, n := range c.not {
				if strings.Contains(got, n) {
					t.Errorf("%q is in:\n%s", n, got)
				}
			}
		})
	}
}

func TestAPortThatVanishedLongAgoIsForgotten(t *testing.T) {
	h := newHistory(time.Hour, time.Minute)
	key := nodeKey{"c1", "n1"}
	h.record(key, "sysfs", []*port{newPort("a", 1), newPort("b", 1)}, moment, true)
	if r := h.record(key, "sysfs", []*port{newPort("a", 1)}, moment.Add(2*time.Hour), true); len(r.Nic) != 1 {
		t.Errorf("ports %v", r.Nic)
	}
	if r := h.record(key, "sysfs", []*port{newPort("a", 1)}, moment.Add(2*time.Hour-time.Second), true); r != nil {
		t.Errorf("a reading that a newer one has overtaken gave %v", r)
	}
	if r := h.record(key, "sysfs", []*port{newPort("a", 1)}, moment, true); r == nil {
		t.Error("a clock that was set back by hours stops the readings")
	}
	h.record(nodeKey{"c1", "n2"}, "sysfs", nil, moment.Add(24*time.Hour), true)
	if len(h.nodes) != 1 {
		t.Errorf("%d nodes are remembered", len(h.nodes))
	}
}

func TestTwoPortsOfOneGIDStayTwo(t *testing.T) {
	h := newHistory(time.Hour, time.Minute)
	for i := range 2 {
		a, b := newPort("a", 1), newPort("b", 1)
		a.gid, b.gid = "g", "g"
		a.values[txBytes], b.values[txBytes] = 1000, 10
		r := h.record(nodeKey{"c1", "n1"}, "sysfs", []*port{a, b}, moment.Add(time.Duration(i)*time.Second), true)
		if len(r.Nic) != 2 || r.NicReset != nil {
			t.Errorf("reading %d: ports %v, reset %v", i, r.Nic, r.NicReset)
		}
	}
}

func TestSpeeds(t *testing.T) {
	for text, want := range map[string]float64{
		"400 Gb/sec (4X NDR)": 50e9, "2.5 Gb/sec (1X SDR)": 312.5e6, "800 Gb/sec (4X XDR)": 100e9, "100 Gb/sec": 12.5e9,
		"": math.NaN(), "fast": math.NaN(), "400 Mb/sec": math.NaN(), "-1 Gb/sec": math.NaN(), "Inf Gb/sec": math.NaN(), "NaN Gb/sec": math.NaN(),
	} {
		if got := parseSpeed(text); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestEveryPrefix(t *testing.T) {
	body := sample(t, "node_exporter_infiniband.prom")
	r := newCollector(t, testConfig()).newReader()
	for i := range body {
		records, _, err := r.Read(target, body[:i:i], moment)
		if f, ok := errors.AsType[*scrape.Failure](err); i > 0 && body[i-1] != '\n' && (!ok || f.Reason != "truncated") {
			t.Fatalf("cut at %d: error %v", i, err)
		}
		for _, r := range records {
			if err := r.Validate(); err != nil {
				t.Fatalf("cut at %d: %v", i, err)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	body := sample(f, "node_exporter_infiniband.prom")
	lines := bytes.SplitAfter(body, []byte("\n"))
	f.Add(bytes.Join(lines[:12], nil), bytes.Join(lines[12:20], nil))
	f.Add([]byte("node_infiniband_state_id{device=\"a\",port=\"1\"} 4\n"), []byte("node_uname_info{nodename=\"x\"} 1"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		r := newCollector(t, testConfig()).newReader()
		for i, body := range [][]byte{first, second, first} {
			body = append(bytes.Clone(body), '\n')
			records, _, err := r.Read(target, body, moment.Add(time.Duration(i)*time.Second))
			if f, ok := errors.AsType[*scrape.Failure](err); err != nil && (!ok || f.Reason == "invalid" && !strings.Contains(err.Error(), "node ")) {
				t.Fatal(err)
			}
			for _, record := range records {
				if err := record.Validate(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func FuzzSysfs(f *testing.F) {
	f.Add("41250000000000", "400 Gb/sec (4X NDR)", "4: ACTIVE", "fe80:0000:0000:0000:a088:c203:00ab:cdef")
	f.Add("N/A (no PMA)", "", "x", "")
	f.Fuzz(func(t *testing.T, data, rate, state, gid string) {
		root := t.TempDir()
		const dir = "class/infiniband/mlx5_0/ports/1/"
		put(t, root, dir+"counters/port_xmit_data", data)
		put(t, root, dir+"rate", rate)
		put(t, root, dir+"state", state)
		put(t, root, dir+"gids/0", gid)
		c, out := newCollector(t, sysfsConfig(root)), &collecttest.Sink{}
		if reason, err := c.sysfs(t.Context(), out); err != nil && reason != "read" {
			t.Fatal(err)
		}
	})
}

func TestConformanceOfNodeExporter(t *testing.T) {
	var broken, moved atomic.Bool
	body := string(sample(t, "node_exporter_infiniband.prom"))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text := body + "node_uname_info{nodename=\"n1\"} 1\n"
		if moved.Load() {
			text = strings.ReplaceAll(text, `"n1"`, `"n2"`)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		if broken.Load() {
			text = text[:len(text)/2]
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	collecttest.Run(t, collecttest.Source{
		Cluster: "c1", Full: []string{"spillway.counters.v1 c1/n1"},
		New: func(t *testing.T) collect.Collector {
			cfg := testConfig()
			cfg.Targets = []scrape.Group{{Targets: []string{strings.TrimPrefix(s.URL, "http://")}}}
			return newCollector(t, cfg)
		},
		Change: func(*testing.T) []string { moved.Store(true); return []string{"spillway.counters.v1 c1/n2"} },
		Break:  func(*testing.T) { broken.Store(true) },
		Mend:   func(*testing.T) { broken.Store(false) },
	})
}

func TestConformanceOfSysfs(t *testing.T) {
	root := tree(t, string(sample(t, "sysfs_infiniband.txt")))
	move := func(t *testing.T, from, to string) {
		t.Helper()
		if err := os.Rename(filepath.Join(root, from), filepath.Join(root, to)); err != nil {
			t.Fatal(err)
		}
	}
	collecttest.Run(t, collecttest.Source{
		Cluster: "c1", Full: []string{"spillway.counters.v1 c1/n1"},
		New:    func(t *testing.T) collect.Collector { return newCollector(t, sysfsConfig(root)) },
		Change: func(t *testing.T) []string { return []string{"spillway.counters.v1 c1/n1"} },
		Break:  func(t *testing.T) { move(t, "class", "gone") },
		Mend:   func(t *testing.T) { move(t, "gone", "class") },
	})
}

func TestConfigurations(t *testing.T) {
	for key, change := range map[string]func(*Config){
		"cluster":       func(c *Config) { c.Cluster = "" },
		"forget":        func(c *Config) { c.Forget = 0 },
		"devices":       func(c *Config) { c.Devices = []string{"("} },
		"devices: ":     func(c *Config) { c.Except = []string{"a", "["} },
		"sysfs.root":    func(c *Config) { c.Sysfs.Enabled, c.Sysfs.Root = true, "" },
		"sysfs.enabled": func(c *Config) { c.Sysfs.Enabled, c.Files = true, []string{"a.json"} },
	} {
		cfg := testConfig()
		change(&cfg)
		if _, err := New(cfg, Deps{}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: error %v", key, err)
		}
	}
	cfg := sysfsConfig("/sys")
	cfg.Sysfs.Node = ""
	cfg.Devices = []string{"mlx5_.*"}
	if c := newCollector(t, cfg); c.cfg.Sysfs.Node == "" || len(cfg.Warnings()) > 0 {
		t.Errorf("this machine is %q, warnings %q", c.cfg.Sysfs.Node, cfg.Warnings())
	}
	none := DefaultConfig()
	if w := none.Warnings(); len(w) != 2 || !strings.Contains(w[0], "storage") {
		t.Errorf("no target, and all devices: warnings %q", w)
	}
	cfg.Devices = nil
	if w := cfg.Warnings(); len(w) != 1 {
		t.Errorf("all devices: warnings %q", w)
	}
	cfg.Except = []string{"mlx5_bond_.*"}
	if w := cfg.Warnings(); len(w) > 0 {
		t.Errorf("some devices left out: warnings %q", w)
	}
}

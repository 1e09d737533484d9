package fabric

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		os.Exit(serveTestHelper())
	}
	goleak.VerifyTestMain(m)
}

func sample(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// show prints one GPU a line.
func show(m *event.Membership) string {
	var b strings.Builder
	for _, g := range m.Gpus {
		clique, health := "-", "-"
		if g.CliqueId != nil {
			clique = fmt.Sprint(*g.CliqueId)
		}
		if g.HealthMask != nil {
			health = fmt.Sprintf("%#x %s", *g.HealthMask, strings.Join(event.DecodeFabricHealth(*g.HealthMask).Faults(), ","))
		}
		fmt.Fprintf(&b, "%d %s cluster=%s clique=%s %s/%s health=%s\n", g.Index, g.Uuid, g.ClusterUuid, clique, g.State, g.Status, strings.TrimSpace(health))
	}
	return b.String()
}

func membership(t testing.TB, text string) *event.Membership {
	t.Helper()
	gpus, unknown, err := Parse(strings.NewReader(text))
	if err != nil || len(unknown) > 0 {
		t.Fatalf("error %v, unknown %q", err, unknown)
	}
	return Membership("c1", "n1", gpus)
}

func TestHealthyTray(t *testing.T) {
	want := ""
	for i, uuid := range []string{
		"GPU-30a5b24f-c64f-ddf2-f1fa-23614b2a1c9f", "GPU-1ac6b99f-18a5-3a81-3790-052d17dcb8f8",
		"GPU-0184d54d-13e9-0ece-d4cc-31f74bec3865", "GPU-23913727-d2db-1936-2ae3-ea7a699f8199",
	} {
		want += fmt.Sprintf("%d %s cluster=6e11e5ce-f087-4640-a473-03d6fcc509ab clique=32766 completed/success health=0x1aa\n", i, uuid)
	}
	if diff := cmp.Diff(want, show(membership(t, sample(t, "nvidia_smi_q_fabric_gb200.txt")))); diff != "" {
		t.Error(diff)
	}
}

// variants are the cases of the sample, by what stands before each.
func variants(t testing.TB) map[string]string {
	out := map[string]string{}
	for _, part := range strings.Split("\n"+sample(t, "nvidia_smi_q_fabric_variants.txt"), "\n# ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		out[name] = text + "\n"
	}
	return out
}

func TestVariants(t *testing.T) {
	want := map[string]string{
		"1 unhealthy route":                           "0 GPU-30a5b24f-c64f-ddf2-f1fa-23614b2a1c9f cluster=6e11e5ce-f087-4640-a473-03d6fcc509ab clique=2 completed/success health=0x19a route_unhealthy\n",
		"2 degraded bandwidth":                        "0 GPU-1ac6b99f-18a5-3a81-3790-052d17dcb8f8 cluster=6e11e5ce-f087-4640-a473-03d6fcc509ab clique=32766 completed/success health=0x1a9 degraded_bandwidth\n",
		"3 completed but failed":                      "0 GPU-0184d54d-13e9-0ece-d4cc-31f74bec3865 cluster=00000000-0000-0000-0000-000000000000 clique=0 completed/insufficient_resources health=-\n",
		"4 in progress":                               "0 GPU-23913727-d2db-1936-2ae3-ea7a699f8199 cluster= clique=- in_progress/ health=-\n",
		"5 H100 HGX: completed, no multi-node domain": "0 GPU-078a60c1-b9c1-40aa-bb36-1b994c32105e cluster=00000000-0000-0000-0000-000000000000 clique=0 completed/success health=-\n",
		"6 PCIe or consumer GPU":                      "0 GPU-deaed3a4-768d-9339-3c28-4c5a4b47e9ba cluster= clique=- not_supported/ health=-\n",
		"7 older driver (no Summary, no Incorrect Configuration rows)": "0 GPU-30a5b24f-c64f-ddf2-f1fa-23614b2a1c9f cluster=6e11e5ce-f087-4640-a473-03d6fcc509ab clique=4026 completed/success health=-\n",
	}
	got := map[string]string{}
	for name, text := range variants(t) {
		got[name] = show(membership(t, text))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestConfigurationsThatAreWrong(t *testing.T) {
	tray := sample(t, "nvidia_smi_q_fabric_gb200.txt")
	for value, want := range map[string]string{
		"Incorrect SysGUID": "system_guid", "Incorrect Chassis Serial Number": "chassis_serial_number", "No Partition": "no_partition",
		"Insufficient Nvlinks": "insufficient_nvlinks", "Incompatible GPU FW": "gpu_firmware", "Invalid Location": "invalid_location",
		"Invalid GPU State": "gpu_state",
	} {
		m := membership(t, strings.Replace(tray, "Incorrect Configuration           : None", "Incorrect Configuration           : "+value, 1))
		if got := event.DecodeFabricHealth(m.Gpus[0].GetHealthMask()).Misconfigured; got != want {
			t.Errorf("%q is %q, want %q", value, got, want)
		}
	}
}

// full is an output of all sections of -q, in which other sections have rows of the same names, and blanks are other ones.
const full = `
==============NVSMI LOG==============

Timestamp                                 : Tue Nov  3 12:00:00 2026
Driver Version                            : 580.95.05
Attached GPUs                             : 2
GPU 00000008:01:00.0
    Product Name                          : NVIDIA GB200
    Serial Number                         : 
    GPU UUID                              : GPU-a
    Clocks Event Reasons
        State                             : Completed
    Fabric
        State                   : Not Started
        Status                  : N/A
        GPU Fabric GUID         : 0x1
    Processes
        GPU instance ID                   : N/A
        Status                            : Running
GPU 00000009:01:00.0
    GPU UUID                              : GPU-b
    Fabric
        State                   : Something New
        Status                  : GPU is lost
        GPU Fabric GUID         : 0x2
    Health
        Bandwidth                         : Degraded
`

func TestOnlyTheFabricSectionCounts(t *testing.T) {
	gpus, unknown, err := Parse(strings.NewReader(full))
	if err != nil {
		t.Fatal(err)
	}
	want := "0 GPU-a cluster= clique=- not_started/ health=-\n1 GPU-b cluster= clique=- /gpu_is_lost health=-\n"
	if diff := cmp.Diff(want, show(Membership("c1", "n1", gpus))); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(unknown, []string{"State: Something New"}) {
		t.Errorf("unknown %q", unknown)
	}
}

func TestRefused(t *testing.T) {
	tray := sample(t, "nvidia_smi_q_fabric_gb200.txt")
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                    {"", "lists no GPU"},
		"an error in place of it":    {"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "lists no GPU"},
		"fewer GPUs than there are":  {"Attached GPUs : 5\n" + tray, "lists 4 GPUs and says that there are 5"},
		"two outputs in one":         {tray + tray, "listed twice"},
		"an old driver":              {"GPU 00000000:1B:00.0\n    GPU UUID : GPU-a\n", "no Fabric section"},
		"a clique that is no number": {strings.Replace(tray, ": 32766", ": x", 1), "no CliqueId"},
		"a GPU without its UUID":     {"GPU 00000000:1B:00.0\n    Fabric\n        State : N/A\n", "no GPU UUID"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := Parse(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// TestEveryPrefix cuts an output that says how many GPUs there are: every cut that loses anything is refused.
func TestEveryPrefix(t *testing.T) {
	whole := "Attached GPUs                             : 4\n" + sample(t, "nvidia_smi_q_fabric_gb200.txt")
	want := show(membership(t, whole))
	for i := range whole {
		b := []byte(whole)
		gpus, _, err := Parse(bytes.NewReader(b[:i:i]))
		if err == nil && show(Membership("c1", "n1", gpus)) != want {
			t.Fatalf("cut at %d of %d, the output gives\n%s", i, len(whole), show(Membership("c1", "n1", gpus)))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample(f, "nvidia_smi_q_fabric_gb200.txt"))
	f.Add(full)
	for _, text := range variants(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		gpus, _, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		m := Membership("c1", "n1", gpus)
		for _, g := range m.Gpus {
			if h := event.DecodeFabricHealth(g.GetHealthMask()); h.Mask() != g.GetHealthMask() {
				t.Errorf("mask %#x is not that of %+v", g.GetHealthMask(), h)
			}
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	// As a whole: a reader never sees half of it.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func testConfig() Config {
	cfg := DefaultConfig()
	cfg.Cluster, cfg.Node, cfg.Interval = "c1", "n1", 20*time.Millisecond
	return cfg
}

func newCollector(t *testing.T, cfg Config) *Collector {
	t.Helper()
	c, err := New(cfg, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestConformance runs a command and reads a recorded file.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	tray := "Attached GPUs : 4\n" + sample(t, "nvidia_smi_q_fabric_gb200.txt")
	local, recorded := filepath.Join(dir, "output"), filepath.Join(dir, "n2.txt")
	write(t, local, tray)
	write(t, recorded, tray)
	collecttest.Run(t, collecttest.Source{
		Cluster: "c1",
		Full:    []string{"spillway.membership.v1 c1/n1", "spillway.membership.v1 c1/n2"},
		New: func(t *testing.T) collect.Collector {
			cfg := testConfig()
			cfg.Command, cfg.Recorded = []string{"cat", local}, filepath.Join(dir, "*.txt")
			return newCollector(t, cfg)
		},
		Change: func(t *testing.T) []string {
			write(t, local, strings.ReplaceAll(tray, ": 32766", ": 7"))
			return []string{"spillway.membership.v1 c1/n1"}
		},
		Break: func(t *testing.T) {
			write(t, local, tray[:len(tray)/2])
			write(t, recorded, tray[:len(tray)/2])
		},
		Mend: func(t *testing.T) {
			write(t, local, tray)
			write(t, recorded, tray)
		},
	})
}

func TestACommandThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		command []string
		want    string
	}{
		"is not there":       {[]string{filepath.Join(t.TempDir(), "nvidia-smi")}, "no such file"},
		"says why":           {[]string{"sh", "-c", "echo 'No devices were found'; exit 6"}, "exit status 6: No devices were found"},
		"hangs":              {[]string{"sleep", "60"}, "no end after 50ms"},
		"prints without end": {[]string{"yes"}, "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			cfg.Command = c.command
			if name == "hangs" {
				cfg.Timeout = 50 * time.Millisecond
			}
			col, out := newCollector(t, cfg), &collecttest.Sink{}
			col.poll(t.Context(), out)
			col.reporter.Report(t.Context(), out, true, func() string { return collect.Summary(col.failing, "outputs") })
			r := out.Records()
			if len(r) != 1 || !strings.Contains(r[0].(*event.Source).Problem, c.want) {
				t.Errorf("records %v, want a problem with %q", r, c.want)
			}
		})
	}
}

func TestARecordedOutputCountsFromWhenItWasWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "n7.txt")
	write(t, path, sample(t, "nvidia_smi_q_fabric_gb200.txt"))
	written := time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)
	if err := os.Chtimes(path, written, written); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig()
	cfg.Command, cfg.Recorded = nil, path
	c, out := newCollector(t, cfg), &collecttest.Sink{}
	c.poll(t.Context(), out)
	r := out.Records()
	if len(r) != 1 || r[0].(*event.Membership).ObservedAtMs != written.UnixMilli() || r[0].RecordKey() != "c1/n7" {
		t.Errorf("records %v", r)
	}
}

func TestWhatHasNotChangedIsToldNowAndThen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "output")
	write(t, path, sample(t, "nvidia_smi_q_fabric_gb200.txt"))
	cfg := testConfig()
	cfg.Command = []string{"cat", path}
	var hours atomic.Int64
	c, err := New(cfg, Deps{Now: func() time.Time {
		return time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC).Add(time.Duration(hours.Load()) * time.Hour)
	}})
	if err != nil {
		t.Fatal(err)
	}
	out := &collecttest.Sink{}
	for i, want := range []int{1, 1, 2} {
		if i == 2 {
			hours.Store(1)
		}
		c.poll(t.Context(), out)
		if got := len(out.Records()); got != want {
			t.Errorf("poll %d: %d memberships, want %d", i, got, want)
		}
	}
}

func TestConfigurations(t *testing.T) {
	for key, change := range map[string]func(*Config){
		"cluster":   func(c *Config) { c.Cluster = "" },
		"cluster: ": func(c *Config) { c.Cluster = "a/b" },
		"interval":  func(c *Config) { c.Interval = 0 },
		"timeout":   func(c *Config) { c.Timeout = 0 },
		"refresh":   func(c *Config) { c.Refresh = 0 },
		"command":   func(c *Config) { c.Command = nil },
		"recorded":  func(c *Config) { c.Recorded = "[" },
	} {
		cfg := testConfig()
		change(&cfg)
		if _, err := New(cfg, Deps{}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: error %v", key, err)
		}
	}
	cfg := testConfig()
	cfg.Node = ""
	if c := newCollector(t, cfg); c.cfg.Node == "" || strings.Contains(c.cfg.Node, ".") {
		t.Errorf("this machine is called %q", c.cfg.Node)
	}
}

//go:build dcgm

package dcgm

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

// tray is two GPUs of a GB200 tray as the library would answer. GPU 1 has blanks of every kind; link 2 of GPU 0 is down.
const tray = `gpu 0
gpu 1
links 0 3
links 1 2
refuse 1526
refuse 585
text 0 -1 1 0 580.95.05
text 0 -1 50 0 NVIDIA GB200
text 0 -1 54 0 GPU-a
text 0 -1 172 0 6e11e5ce-f087-4640-a473-03d6fcc509ab
int 0 -1 170 0 3
int 0 -1 171 0 0
int 0 -1 173 0 32766
int 0 -1 174 0 426
int 0 -1 449 0 1000
int 0 -1 1201 0 123456789012345
int 0 -1 1203 0 123456789012340
int 0 -1 1011 0 5000000
real 0 -1 1002 0 0.5
int 0 0 1508 0 1
int 0 0 1201 0 41152263004115
int 0 1 1508 0 1
int 0 2 1508 0 0
text 1 -1 54 0 GPU-b
text 1 -1 50 0 <<<NOT_SUPPORTED>>>
text 1 -1 172 0 <<<NULL>>>
int 1 -1 170 0 2
int 1 -1 171 0 9223372036854775792
int 1 -1 173 0 9223372036854775794
int 1 -1 174 -6 170
int 1 -1 449 0 -5
int 1 -1 1201 0 9223372036854775793
int 1 -1 1203 -14 17
real 1 -1 1002 0 140737488355330
int 1 0 1508 0 1
int 1 1 1508 0 1
`

// stub builds what stands for NVIDIA's library and returns its path, under the name that DCGM 4 gives it.
func stub(t *testing.T) string {
	t.Helper()
	gcc := testenv.Binary(t, "gcc")
	library := filepath.Join(t.TempDir(), "libdcgm.so.4")
	if out, err := exec.CommandContext(t.Context(), gcc, "-Wall", "-Werror", "-Wno-unused-parameter", "-shared", "-fPIC", "-o", library,
		"testdata/stub/dcgm.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return library
}

// onStub makes a collector that asks the stub, and the path of the stub's scene.
func onStub(t *testing.T, library, scene string, change func(*Config)) *Collector {
	t.Helper()
	t.Setenv("SPILLWAY_STUB", scene)
	c, _ := directTo(t, "library", func(cfg *Config) {
		cfg.Direct.Library = library
		if change != nil {
			change(cfg)
		}
	})
	return c
}

func TestDirectConformance(t *testing.T) {
	library, scene := stub(t), filepath.Join(t.TempDir(), "scene")
	put(t, scene, tray)
	collecttest.Run(t, collecttest.Source{
		Cluster: "c1",
		Full:    []string{"spillway.counters.v1 c1/n1", "spillway.membership.v1 c1/n1"},
		New:     func(t *testing.T) collect.Collector { return onStub(t, library, scene, nil) },
		Change: func(t *testing.T) []string {
			put(t, scene, strings.Replace(tray, "int 0 -1 173 0 32766", "int 0 -1 173 0 7", 1))
			return []string{"spillway.membership.v1 c1/n1"}
		},
		Break: func(t *testing.T) { put(t, scene, tray+"crash\n") },
		Mend:  func(t *testing.T) { put(t, scene, tray) },
	})
}

func counters(r []event.Record, ok func(*event.Counters) bool) bool {
	for _, record := range r {
		if c, is := record.(*event.Counters); is && ok(c) {
			return true
		}
	}
	return false
}

// TestDirectGolden reads the tray, then what is left of it once a link has vanished and a GPU's counters began anew.
func TestDirectGolden(t *testing.T) {
	library, scene := stub(t), filepath.Join(t.TempDir(), "scene")
	t.Setenv("SPILLWAY_STUB", scene)
	dir, err := libraryDir(library)
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	answer := func(text string, at time.Time) []byte {
		put(t, scene, text)
		h, err := startHelper([]string{os.Args[0], `{"address":"127.0.0.1:5555","interval":1000000000,"links":true}`},
			[]string{helperEnv + "=library", "LD_LIBRARY_PATH=" + dir}, 1<<20, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer h.end()
		body, err := h.ask(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		body = regexp.MustCompile(`\d+\n`).ReplaceAll(body, fmt.Appendf(nil, "%d\n", at.UnixMilli()))
		return body
	}
	r := newTestReader(t, testConfig())
	tgt := *target
	tgt.Node = "n1"
	told := func(body []byte, at time.Time) string {
		records, stored, err := r.Read(&tgt, body, at)
		if err != nil {
			t.Fatal(err)
		}
		out := show(records, r)
		stored()
		return out
	}
	got := told(answer(tray, moment), moment)
	less := strings.NewReplacer("int 0 2 1508 0 0\n", "", "1201 0 123456789012345", "1201 0 1000", "int 1 1 1508 0 1\n", "").Replace(tray)
	got += "--- a link of each GPU vanished, and the driver was loaded anew, 30 s later\n" + told(answer(less, moment.Add(30*time.Second)), moment.Add(30*time.Second))
	golden(t, "direct", got)
}

// TestWhatTheLibraryMayDo: a crash, a hang, a lost connection and values that are not renewed cost a read each, and no more.
func TestWhatTheLibraryMayDo(t *testing.T) {
	library := stub(t)
	for name, c := range map[string]struct{ line, reason, problem string }{
		"crashes":                        {"crash", "helper_died", "SIGABRT"},
		"hangs":                          {"hang", "helper_hung", "has not answered"},
		"loses nv-hostengine":            {"lost", "read", "connection to the host engine is not valid"},
		"finds no nv-hostengine anymore": {"lost\ndown", "read", "connect to nv-hostengine at 127.0.0.1:5555"},
	} {
		t.Run(name, func(t *testing.T) {
			scene := filepath.Join(t.TempDir(), "scene")
			put(t, scene, tray)
			t.Setenv("SPILLWAY_STUB", scene)
			col, registry := directTo(t, "library", func(cfg *Config) {
				cfg.Direct.Library, cfg.Timeout = library, 2*time.Second
			})
			out := running(t, col)
			out.Wait(t, "counters", func(r []event.Record) bool { return seen(r, 123456789012345) })
			put(t, scene, tray+c.line+"\n")
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
			put(t, scene, strings.Replace(tray, "123456789012345", "123456789012399", 1))
			out.Wait(t, "counters of a new helper", func(r []event.Record) bool { return seen(r, 123456789012399) })
		})
	}
}

func TestValuesThatAreNotRenewedAreAbsent(t *testing.T) {
	library, scene := stub(t), filepath.Join(t.TempDir(), "scene")
	put(t, scene, "old 3600000\n"+tray)
	out := running(t, onStub(t, library, scene, nil))
	out.Wait(t, "GPUs without a number", func(r []event.Record) bool {
		return counters(r, func(c *event.Counters) bool { return len(c.GpuIndex) == 2 && len(c.NvlinkTxBytes) == 0 })
	})
}

func TestWithoutTheLibrary(t *testing.T) {
	out := running(t, onStub(t, "", filepath.Join(t.TempDir(), "scene"), nil))
	out.Wait(t, "a report that there is no library", func(r []event.Record) bool {
		for _, record := range r {
			if s, ok := record.(*event.Source); ok && strings.Contains(s.GetProblem(), "libdcgm.so not Found") {
				return true
			}
		}
		return false
	})
}

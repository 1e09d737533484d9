//go:build dcgm

package fabric

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

const scene = `gpu GPU-a 0 3 0 6e11e5cef0874640a47303d6fcc509ab 32766 426
gpu GPU-b 0 3 23 00000000000000000000000000000000 0 410
gpu GPU-c 0 2 0 00000000000000000000000000000000 0 0
gpu GPU-d 3 0 0 00000000000000000000000000000000 0 0
`

// onStub makes the helper load a library that knows the fabric up to a version of the structure, and returns its scene.
func onStub(t *testing.T, newest int) string {
	t.Helper()
	gcc, dir := testenv.Binary(t, "gcc"), t.TempDir()
	library, path := filepath.Join(dir, "libnvidia-ml.so.1"), filepath.Join(dir, "scene")
	if out, err := exec.CommandContext(t.Context(), gcc, "-Wall", "-Werror", "-shared", "-fPIC", fmt.Sprintf("-DNEWEST=%d", newest),
		"-o", library, "testdata/stub/nvml.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	write(t, path, scene)
	t.Setenv("SPILLWAY_STUB", path)
	t.Setenv(libraryEnv, library)
	t.Setenv(helperEnv, "1")
	return path
}

func nvmlCollector(t *testing.T) *Collector {
	t.Helper()
	cfg := testConfig()
	cfg.NVML, cfg.Timeout = true, 2*time.Second
	c, err := New(cfg, Deps{Helper: []string{os.Args[0]}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestEveryDriver asks libraries of every age: older ones lack the newer calls, and calling those would end the process.
func TestEveryDriver(t *testing.T) {
	tray := func(masks [4]string) string {
		return "0 GPU-a cluster=6e11e5ce-f087-4640-a473-03d6fcc509ab clique=32766 completed/success health=" + masks[0] + "\n" +
			"1 GPU-b cluster=00000000-0000-0000-0000-000000000000 clique=0 completed/insufficient_resources health=" + masks[1] + "\n" +
			"2 GPU-c cluster= clique=- in_progress/ health=-\n" + "3 GPU-d cluster= clique=- not_supported/ health=-\n"
	}
	healthy := [4]string{"0x1aa", "0x19a route_unhealthy"}
	for newest, want := range map[int]string{4: tray(healthy), 3: tray(healthy), 2: tray(healthy), 1: tray([4]string{"-", "-"}), 0: ""} {
		t.Run(fmt.Sprint(newest), func(t *testing.T) {
			onStub(t, newest)
			out := &collecttest.Sink{}
			nvmlCollector(t).poll(t.Context(), out)
			got := ""
			for _, r := range out.Records() {
				if m, ok := r.(*event.Membership); ok {
					got += show(m)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNVMLStubConformance(t *testing.T) {
	path := onStub(t, 3)
	collecttest.Run(t, collecttest.Source{
		Cluster: "c1",
		Full:    []string{"spillway.membership.v1 c1/n1"},
		New:     func(t *testing.T) collect.Collector { return nvmlCollector(t) },
		Change: func(t *testing.T) []string {
			write(t, path, strings.Replace(scene, " 32766 ", " 7 ", 1))
			return []string{"spillway.membership.v1 c1/n1"}
		},
		Break: func(t *testing.T) { write(t, path, scene+"crash\n") },
		Mend:  func(t *testing.T) { write(t, path, scene) },
	})
}

func TestWhatNVMLMayDo(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"crashes":         {"crash", "SIGABRT"},
		"hangs":           {"hang", "no end after 2s"},
		"finds no driver": {"nodriver", "load NVML: Driver Not Loaded"},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, onStub(t, 3), c.line+"\n")
			col, out := nvmlCollector(t), &collecttest.Sink{}
			col.poll(t.Context(), out)
			if problem := collect.Summary(col.failing, "outputs"); len(out.Records()) > 0 || !strings.Contains(problem, c.want) {
				t.Errorf("problem %q, want %q in it; records %v", problem, c.want, out.Records())
			}
		})
	}
	t.Run("is not there", func(t *testing.T) {
		t.Setenv(libraryEnv, filepath.Join(t.TempDir(), "libnvidia-ml.so.1"))
		t.Setenv(helperEnv, "1")
		col := nvmlCollector(t)
		col.poll(t.Context(), &collecttest.Sink{})
		if problem := collect.Summary(col.failing, "outputs"); !strings.Contains(problem, "load NVML") {
			t.Errorf("problem %q", problem)
		}
	})
}

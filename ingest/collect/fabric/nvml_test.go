package fabric

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
)

// helperEnv makes the test binary the helper process.
const helperEnv = "SPILLWAY_TEST_HELPER"

const trayJSON = `{"gpus":[
{"index":0,"uuid":"GPU-a","state":3,"status":0,"status_text":"SUCCESS","cluster_uuid":"6e11e5cef0874640a47303d6fcc509ab","clique_id":32766,"health_mask":426},
{"index":1,"uuid":"GPU-b","state":3,"status":23,"status_text":"Insufficient Resources","cluster_uuid":"00000000000000000000000000000000","clique_id":0,"health_mask":0},
{"index":2,"uuid":"GPU-c","state":2,"status":0,"status_text":"SUCCESS","cluster_uuid":"00000000000000000000000000000000","clique_id":9,"health_mask":0},
{"index":3,"uuid":"GPU-d","state":0,"status":null,"status_text":"","cluster_uuid":"","clique_id":null,"health_mask":null},
{"index":4,"uuid":"GPU-e","state":9,"status":0,"status_text":"","cluster_uuid":"","clique_id":1,"health_mask":4522},
{"index":5,"uuid":"GPU-f","state":null,"status":null,"status_text":"","cluster_uuid":"","clique_id":null,"health_mask":null}]}
`

func TestParseNVML(t *testing.T) {
	gpus, unknown, err := ParseNVML([]byte(trayJSON))
	if err != nil {
		t.Fatal(err)
	}
	want := `0 GPU-a cluster=6e11e5ce-f087-4640-a473-03d6fcc509ab clique=32766 completed/success health=0x1aa
1 GPU-b cluster=00000000-0000-0000-0000-000000000000 clique=0 completed/insufficient_resources health=-
2 GPU-c cluster= clique=- in_progress/ health=-
3 GPU-d cluster= clique=- not_supported/ health=-
4 GPU-e cluster= clique=- / health=0x11aa
`
	if diff := cmp.Diff(want, show(Membership("c1", "n1", gpus))); diff != "" {
		t.Error(diff)
	}
	if len(unknown) != 1 || unknown[0] != "state: 9" {
		t.Errorf("unknown %q", unknown)
	}
}

func TestNVMLRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                 "",
		"no GPU":                  `{"gpus":[]}`,
		"a GPU left out":          strings.Replace(trayJSON, `"index":1`, `"index":2`, 1),
		"a GPU twice":             strings.Replace(trayJSON, "GPU-b", "GPU-a", 1),
		"half a ClusterUUID":      strings.Replace(trayJSON, "6e11e5cef087", "6e11", 1),
		"a ClusterUUID of no hex": strings.Replace(trayJSON, "6e11e5cef087", "6e11e5cef08x", 1),
	} {
		if gpus, _, err := ParseNVML([]byte(text)); err == nil {
			t.Errorf("%s: read as %v", name, gpus)
		}
	}
	for i := range len(trayJSON) - 2 {
		if _, _, err := ParseNVML([]byte(trayJSON)[:i:i]); err == nil {
			t.Fatalf("%d bytes of it are read", i)
		}
	}
}

func FuzzParseNVML(f *testing.F) {
	f.Add([]byte(trayJSON))
	f.Fuzz(func(t *testing.T, text []byte) {
		if gpus, _, err := ParseNVML(text); err == nil {
			Membership("c1", "n1", gpus)
		}
	})
}

// TestNVMLConformance runs a helper that prints a file.
func TestNVMLConformance(t *testing.T) {
	file := filepath.Join(t.TempDir(), "output")
	write(t, file, trayJSON)
	collecttest.Run(t, collecttest.Source{
		Cluster: "c1",
		Full:    []string{"spillway.membership.v1 c1/n1"},
		New: func(t *testing.T) collect.Collector {
			cfg := testConfig()
			cfg.NVML = true
			c, err := New(cfg, Deps{Helper: []string{"cat", file}})
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
		Change: func(t *testing.T) []string {
			write(t, file, strings.ReplaceAll(trayJSON, ":32766", ":7"))
			return []string{"spillway.membership.v1 c1/n1"}
		},
		Break: func(t *testing.T) { write(t, file, trayJSON[:len(trayJSON)/2]) },
		Mend:  func(t *testing.T) { write(t, file, trayJSON) },
	})
}

func TestNVMLConfiguration(t *testing.T) {
	cfg := testConfig()
	cfg.NVML = true
	if _, err := New(cfg, Deps{}); err == nil || !strings.Contains(err.Error(), "helper") {
		t.Errorf("no helper: error %v", err)
	}
	if err := Built(); err != nil && !strings.Contains(err.Error(), "-tags dcgm") {
		t.Errorf("a program without the libraries: error %v", err)
	}
}

func serveTestHelper() int {
	if err := RunHelper(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

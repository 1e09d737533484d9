package dcgm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/schemas/event"
)

// TestMappingGolden gives the recorded folder to four GPUs that were asked without an exporter.
func TestMappingGolden(t *testing.T) {
	var gpus []gpuAnswer
	for i := range uint32(4) {
		gpus = append(gpus, gpuAnswer{id: i, texts: map[uint16]string{fieldUUID: "GPU-" + string('a'+rune(i))}})
	}
	jobs, err := readMapping("testdata/hpc_job_mapping")
	if err != nil {
		t.Fatal(err)
	}
	r, tgt := newTestReader(t, testConfig()), *target
	tgt.Node = "n1"
	records, _, err := r.Read(&tgt, append(exposition(gpus), jobs...), moment)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "hpc_job_mapping", show(records, r))
}

func TestMappings(t *testing.T) {
	if text, err := readMapping(filepath.Join(t.TempDir(), "nowhere")); err != nil || len(text) > 0 {
		t.Errorf("no folder: %q, %v", text, err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"0": "7\r\n\n  8  \n\"x\\\n", "1.12": "9", "a": "10", "2.": "11"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "3"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := `spillway_gpu{gpu="0",hpc_job="7"} 1
spillway_gpu{gpu="0",hpc_job="8"} 1
spillway_gpu{gpu="0",hpc_job="\"x\\"} 1
spillway_gpu{gpu="1",GPU_I_ID="12",hpc_job="9"} 1
`
	if got, err := readMapping(dir); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	// Files that cannot be read take nothing from the others.
	endless := filepath.Join(dir, "5")
	put(t, endless, "")
	if err := os.Truncate(endless, 1<<40); err != nil { // more than could be held
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "4")); err != nil {
		t.Fatal(err)
	}
	got, err := readMapping(dir)
	if string(got) != want {
		t.Errorf("%s", got)
	}
	if err == nil || !strings.Contains(err.Error(), "5 has more than 65536 bytes, which no list of jobs has") || !strings.Contains(err.Error(), "4: is a directory") {
		t.Errorf("error %v", err)
	}
}

// TestAMappingThatCannotBeRead is counted, and the counters of the node are told all the same.
func TestAMappingThatCannotBeRead(t *testing.T) {
	script, jobs := filepath.Join(t.TempDir(), "script"), t.TempDir()
	put(t, script, "100")
	put(t, filepath.Join(jobs, "1"), "41257\n")
	if err := os.Symlink(jobs, filepath.Join(jobs, "0")); err != nil {
		t.Fatal(err)
	}
	c, registry := directTo(t, script, func(cfg *Config) { cfg.Direct.HPCJobMapping = jobs })
	running(t, c).Wait(t, "counters", func(r []event.Record) bool { return seen(r, 100) })
	if n := failures(t, registry, "mapping"); n < 1 {
		t.Errorf("%v errors are counted as mapping", n)
	}
}

func TestLibraryPath(t *testing.T) {
	for others, want := range map[string]string{"": "/d", "/a:/b": "/d:/a:/b"} {
		if got := libraryPath("/d", others); got != want {
			t.Errorf("before %q: %q, want %q", others, got, want)
		}
	}
}

package dcgm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if err := os.WriteFile(filepath.Join(dir, "5"), []byte(strings.Repeat("7\n", maxMapping)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readMapping(dir); err == nil || !strings.Contains(err.Error(), "no list of jobs") {
		t.Errorf("a file without end: %v", err)
	}
}

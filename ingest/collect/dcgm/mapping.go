package dcgm

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mappingFile is the name of a file that tells who uses a GPU, by its index and that of the MIG instance.
var mappingFile = regexp.MustCompile(`^(\d+)(?:\.(\d+))?$`)

// maxMapping bounds one file; a GPU is shared by a few jobs.
const maxMapping = 64 << 10

// readMapping reads a folder of the form that dcgm-exporter's --hpc-job-mapping-dir has: a file for each GPU, a job id a
// line. It gives them as an exposition, as an exporter would; a folder that is not there says nothing.
func readMapping(dir string) ([]byte, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read hpc_job_mapping: %w", err)
	}
	var out bytes.Buffer
	for _, e := range entries {
		m := mappingFile.FindStringSubmatch(e.Name())
		if m == nil || e.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // the job has ended
		case err != nil:
			return nil, fmt.Errorf("read hpc_job_mapping: %w", err)
		case len(text) > maxMapping:
			return nil, fmt.Errorf("read hpc_job_mapping: %s has more than %d bytes, which no list of jobs has", e.Name(), maxMapping)
		}
		instance := ""
		if m[2] != "" {
			instance = `,GPU_I_ID="` + m[2] + `"`
		}
		for line := range strings.Lines(string(text)) {
			if job := strings.TrimSpace(line); job != "" {
				fmt.Fprintf(&out, "spillway_gpu{gpu=\"%s\"%s,hpc_job=\"%s\"} 1\n", m[1], instance, labelText.Replace(job))
			}
		}
	}
	return out.Bytes(), nil
}

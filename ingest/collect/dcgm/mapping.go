package dcgm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
// line. It gives them as an exposition, as an exporter would; a folder that is not there says nothing. The error names the
// files that could not be read; what the others tell is given all the same.
func readMapping(dir string) ([]byte, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read hpc_job_mapping: %w", err)
	}
	var out bytes.Buffer
	var errs []error
	for _, e := range entries {
		m := mappingFile.FindStringSubmatch(e.Name())
		if m == nil || e.IsDir() {
			continue
		}
		text, err := readMappingFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the job has ended
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read hpc_job_mapping: %w", err))
			continue
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
	return out.Bytes(), errors.Join(errs...)
}

func readMappingFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxMapping+1))
	if err == nil && len(text) > maxMapping {
		err = fmt.Errorf("%s has more than %d bytes, which no list of jobs has", path, maxMapping)
	}
	return text, err
}

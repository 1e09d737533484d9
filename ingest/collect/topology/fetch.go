package topology

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// maxRead bounds what one read of a source may bring, in bytes.
const maxRead = 256 << 20

// read gets the content of a source.
func (c *Collector) read(ctx context.Context, s *Source) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	switch {
	case s.File != "":
		return readFile(s.File)
	case s.URL != "":
		return c.fetch(ctx, *s)
	}
	return runCommand(ctx, s.Command)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open topology: %w; check the path and that this user may read it", err)
	}
	defer f.Close()
	return limited(f, path)
}

func limited(r io.Reader, name string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxRead+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(b) > maxRead:
		return nil, fmt.Errorf("read %s: more than %d MiB, which no topology has; check what it reads", name, maxRead>>20)
	}
	return b, nil
}

// runCommand gives what a command prints. Its environment lacks SLURM_TOPO_LEN, which would cut the lines of scontrol.
func runCommand(ctx context.Context, argv []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLURM_TOPO_LEN=") })
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &limitedBuffer{Buffer: &stderr}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", argv[0], err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run %s: %w; check the command and the PATH of this service", argv[0], err)
	}
	b, readErr := limited(out, argv[0])
	if readErr != nil {
		_ = cmd.Process.Kill() // it would block on the pipe that nobody reads any more
	}
	err = cmd.Wait()
	said := strings.TrimSpace(stderr.String())
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("run %s: %w; is slurmctld reachable?", argv[0], context.Cause(ctx))
	case readErr != nil:
		return nil, readErr
	case err != nil:
		return nil, fmt.Errorf("run %s: %w: %s", argv[0], err, clip(said))
	case len(bytes.TrimSpace(b)) == 0 && said != "":
		return nil, fmt.Errorf("run %s: it printed nothing but %q", argv[0], clip(said))
	}
	return b, nil
}

// limitedBuffer keeps the beginning of what is written to it.
type limitedBuffer struct{ *bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := 4096 - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// get is the Fetch of a collector that is given none.
func get(ctx context.Context, s Source) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", s.URL, err)
	}
	req.Header.Set("Accept", "application/json")
	if s.User != "" {
		req.Header.Set("X-SLURM-USER-NAME", s.User)
	}
	if s.TokenFile != "" {
		token, err := os.ReadFile(s.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read token_file: %w", err)
		}
		// `scontrol token` prints SLURM_JWT=…, which is accepted as it is.
		req.Header.Set("X-SLURM-USER-TOKEN", strings.TrimPrefix(strings.TrimSpace(string(token)), "SLURM_JWT="))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("get topology: %w", err)
	}
	defer resp.Body.Close()
	b, err := limited(resp.Body, s.URL)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return b, nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("get %s: %s: renew the token in token_file, and check user", s.URL, resp.Status)
	case http.StatusAccepted:
		return nil, fmt.Errorf("get %s: the answer is not ready yet", s.URL)
	}
	return nil, fmt.Errorf("get %s: %s: %s", s.URL, resp.Status, clip(string(b)))
}

var errEmpty = errors.New("the answer lists no node, the one before did; it is refused: set allow_empty if the fleet is really gone")

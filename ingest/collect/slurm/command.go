package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
)

// commandSource runs Slurm's own tools on this machine.
type commandSource struct{ cfg Commands }

func (c *commandSource) Name() string { return SourceSqueue }

func (c *commandSource) Jobs(ctx context.Context, _ time.Time) Jobs {
	return func(yield func(*slurmjson.Job) error) (meta slurmjson.Meta, err error) {
		err = runCommand(ctx, c.cfg.Jobs, func(out io.Reader) error {
			meta, err = slurmjson.DecodeJobs(out, yield)
			return err
		})
		return meta, err
	}
}

func (c *commandSource) Nodes(ctx context.Context, _ time.Time) Nodes {
	if len(c.cfg.Nodes) == 0 {
		return nil
	}
	return func(yield func(*slurmjson.Node) error) (meta slurmjson.Meta, err error) {
		err = runCommand(ctx, c.cfg.Nodes, func(out io.Reader) error {
			meta, err = slurmjson.DecodeNodes(out, yield)
			return err
		})
		return meta, err
	}
}

// sacct asks accounting on this machine.
type sacct struct{ argv []string }

func (s sacct) Name() string { return SourceSacct }

// idsPerCommand keeps an argument list short.
const idsPerCommand = 500

func (s sacct) Runs(ctx context.Context, jobs []uint32, since, until time.Time) Jobs {
	const layout = "2006-01-02T15:04:05" // read in the zone of TZ
	window := []string{"-S", since.UTC().Format(layout), "-E", until.UTC().Format(layout)}
	return func(yield func(*slurmjson.Job) error) (meta slurmjson.Meta, err error) {
		for first := true; first || len(jobs) > 0; first = false {
			args := append(append([]string{}, s.argv...), window...)
			n := min(len(jobs), idsPerCommand)
			if n > 0 {
				ids := make([]string, n)
				for i, id := range jobs[:n] {
					ids[i] = strconv.FormatUint(uint64(id), 10)
				}
				args = append(args, "-j", strings.Join(ids, ","))
				jobs = jobs[n:]
			}
			err = runCommand(ctx, args, func(out io.Reader) error {
				meta, err = slurmjson.DecodeJobs(out, yield)
				return err
			})
			if err != nil {
				return meta, err
			}
		}
		return meta, nil
	}
}

// maxStderr is how much of a command's complaints is kept.
const maxStderr = 4 << 10

// runCommand runs one tool, without a shell, and decodes its output as it comes. Output that reads well does not count
// when the tool then fails.
func runCommand(ctx context.Context, argv []string, decode func(io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second // for a child that holds its stderr open
	// Compact output is a quarter of the size; times on the command line are in UTC.
	cmd.Env = append(os.Environ(), "SLURM_JSON=compact", "TZ=UTC")
	var complaints head
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return failed("command", "run %s: %w", argv[0], err)
	}
	if err := cmd.Start(); err != nil {
		return failed("command", "run %s: %w; check that Slurm's tools are installed here, or set rest.url", argv[0], err)
	}
	decodeErr := decode(&capped{src: out, left: maxAnswer})
	if decodeErr != nil {
		cancel() // it may have much more to say
	}
	waitErr := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case context.Cause(ctx) != nil && decodeErr == nil, errors.Is(ctx.Err(), context.DeadlineExceeded):
		return failed("timeout", "run %s: %w", strings.Join(argv, " "), ctx.Err())
	case errors.As(waitErr, &exit) && exit.Exited():
		return failed("command", "run %s: %w (%s); run it by hand as the same user", strings.Join(argv, " "), waitErr, complaints.String())
	case decodeErr != nil:
		return fmt.Errorf("read the output of %s: %w (%s)", strings.Join(argv, " "), decodeErr, complaints.String())
	case waitErr != nil:
		return failed("command", "run %s: %w (%s); run it by hand as the same user", strings.Join(argv, " "), waitErr, complaints.String())
	}
	return nil
}

// head keeps the first bytes written to it.
type head struct{ b bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	h.b.Write(p[:min(len(p), maxStderr-h.b.Len())])
	return len(p), nil
}

func (h *head) String() string {
	return strconv.Quote(strings.Join(strings.Fields(h.b.String()), " "))
}

package dcgm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/scrape"
)

// Direct says how this machine's GPUs are asked without an exporter.
type Direct struct {
	// Enabled asks this machine, in place of exporters. To ask DCGM needs a program built with the tag dcgm.
	Enabled bool `yaml:"enabled"`
	// Command is nvidia-smi, which is run in place of asking DCGM, on machines without it. It tells what the links have
	// carried and nothing else, and needs no tag. Empty: DCGM is asked.
	Command []string `yaml:"command"`
	// Address is where nv-hostengine listens: host:port, or the path of its socket.
	Address string `yaml:"address"`
	// Library is DCGM's, where the loader does not find it as libdcgm.so: /usr/lib/x86_64-linux-gnu/libdcgm.so.4.
	Library string `yaml:"library"`
	// Node is the name of this machine; empty: the host name up to its first dot.
	Node string `yaml:"node"`
	// Links asks every NVLink too, and not the GPUs alone. DCGM tells them apart from 4.3.1 on.
	Links bool `yaml:"links"`
	// HPCJobMapping is a folder that says which job uses which GPU, in the form of dcgm-exporter's --hpc-job-mapping-dir.
	HPCJobMapping string `yaml:"hpc_job_mapping"`
}

// direct asks a helper process for the GPUs of this machine. One that dies, hangs or reports an error is replaced when it
// is time to ask again.
type direct struct {
	c        *Collector
	log      *slog.Logger
	now      func() time.Time
	command  []string // that becomes the helper
	argument string
	target   scrape.Target
	reader   *reader
	reporter collect.Reporter

	helper   *helper
	smi      scrape.Command
	unmapped error // what was wrong with the mapping of jobs the last time
}

func (c *Collector) newDirect(deps Deps) (*direct, error) {
	if len(deps.Helper) == 0 && len(c.cfg.Direct.Command) == 0 {
		return nil, errors.New("direct is enabled, and there is no command that becomes the helper process")
	}
	d := &direct{c: c, log: deps.Log, now: deps.Now, command: deps.Helper, reader: c.newReader()}
	node := c.cfg.Direct.Node
	if node == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("find the name of this machine: %w; set direct.node", err)
		}
		node, _, _ = strings.Cut(host, ".")
	}
	d.target = scrape.Target{URL: "dcgm://" + c.cfg.Direct.Address, Cluster: c.cfg.Cluster, Node: node}
	argument, err := json.Marshal(helperOptions{Address: c.cfg.Direct.Address, Interval: c.cfg.Interval, Links: c.cfg.Direct.Links})
	if err != nil {
		return nil, err
	}
	d.argument = string(argument)
	d.reporter = collect.Reporter{
		Cluster: c.cfg.Cluster, Source: Name, Interval: c.cfg.Interval, Now: d.now, Log: d.log, Metrics: c.metrics,
	}
	return d, nil
}

// run asks until ctx ends.
func (d *direct) run(ctx context.Context, out collect.Emitter) error {
	var env []string
	if library := d.c.cfg.Direct.Library; library != "" {
		dir, err := libraryDir(library)
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		env = []string{"LD_LIBRARY_PATH=" + libraryPath(dir, os.Getenv("LD_LIBRARY_PATH"))}
	}
	defer func() {
		if d.helper != nil {
			d.helper.end()
		}
	}()
	tick := time.NewTicker(d.c.cfg.Interval)
	defer tick.Stop()
	var before error
	for ctx.Err() == nil {
		d.c.metrics.Poll("node")
		err := d.once(ctx, env, out)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err != nil:
			reason := "read"
			if f, ok := errors.AsType[*scrape.Failure](err); ok {
				reason = f.Reason
			}
			d.c.metrics.Failed(reason)
			if before == nil || before.Error() != err.Error() {
				d.log.Error("the GPUs of this machine are not read", "error", err)
			}
		case before != nil:
			d.log.Info("the GPUs of this machine are read again")
		}
		before = err
		d.reporter.Report(ctx, out, err != nil, func() string { return err.Error() })
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}

// once asks once and emits what is told. Every error is a *scrape.Failure. That the jobs of a GPU cannot be read takes
// nothing else along.
func (d *direct) once(ctx context.Context, env []string, out collect.Emitter) error {
	at := d.now()
	text, err := d.ask(ctx, env)
	if err != nil {
		return err
	}
	if dir := d.c.cfg.Direct.HPCJobMapping; dir != "" {
		jobs, err := readMapping(dir)
		if err != nil {
			d.c.metrics.Failed("mapping")
			if d.unmapped == nil || d.unmapped.Error() != err.Error() {
				d.log.Error("which jobs use a GPU is not read, the rest is", "error", err)
			}
		}
		d.unmapped = err
		text = append(text, jobs...)
	}
	records, stored, err := d.reader.Read(&d.target, text, at)
	if err != nil {
		return err
	}
	if len(records) == 0 { // the clock was set back a little
		return nil
	}
	if err := out.Emit(ctx, records...); err != nil {
		return &scrape.Failure{Reason: "emit", Err: fmt.Errorf("emit what DCGM tells: %w", err)}
	}
	stored()
	d.c.metrics.Emitted("scrape", len(records))
	d.c.metrics.Good("targets", 1, at)
	d.reporter.Good(at)
	return nil
}

// ask runs the command, or asks the helper, which it starts where there is none.
func (d *direct) ask(ctx context.Context, env []string) ([]byte, error) {
	if command := d.c.cfg.Direct.Command; len(command) > 0 {
		ctx, cancel := context.WithTimeout(ctx, d.c.cfg.Timeout)
		defer cancel()
		text, err := askSMI(ctx, &d.smi, command, d.now(), d.c.cfg.MaxBytes)
		if err != nil {
			reason := "read"
			if ctx.Err() != nil {
				reason, err = "timeout", fmt.Errorf("no end after %v: %w", d.c.cfg.Timeout, err)
			}
			return nil, &scrape.Failure{Reason: reason, Err: err}
		}
		return text, nil
	}
	if d.helper != nil && d.helper.stopping {
		// A process that the driver holds cannot be ended. There is never more than the one.
		select {
		case <-d.helper.ended:
			d.helper = nil
		default:
			return nil, &scrape.Failure{Reason: "helper_hung", Err: errors.New("the helper process of before hangs in the driver and cannot be ended")}
		}
	}
	if d.helper == nil {
		h, err := startHelper(append(d.command, d.argument), env, d.c.cfg.MaxBytes, d.log)
		if err != nil {
			return nil, &scrape.Failure{Reason: "helper_start", Err: err}
		}
		d.helper = h
	}
	ctx, cancel := context.WithTimeout(ctx, d.c.cfg.Timeout)
	defer cancel()
	text, err := d.helper.ask(ctx)
	if err == nil {
		return text, nil
	}
	reason := "helper_died"
	switch {
	case errors.As(err, new(helperError)):
		reason = "read"
	case ctx.Err() != nil:
		reason, err = "helper_hung", fmt.Errorf("DCGM has not answered for %v: the helper process that asked is ended", d.c.cfg.Timeout)
	}
	d.helper.end()
	return nil, &scrape.Failure{Reason: reason, Err: err}
}

// libraryPath puts a folder before those where the loader looks. An empty part would be the working directory.
func libraryPath(dir, others string) string {
	if others == "" {
		return dir
	}
	return dir + string(os.PathListSeparator) + others
}

// libraryDir makes a folder in which the library has the name that it is looked up by.
func libraryDir(library string) (string, error) {
	if _, err := os.Stat(library); err != nil {
		return "", fmt.Errorf("find direct.library: %w", err)
	}
	library, err := filepath.Abs(library)
	if err != nil {
		return "", fmt.Errorf("find direct.library: %w", err)
	}
	dir, err := os.MkdirTemp("", "spillway-dcgm-")
	if err != nil {
		return "", fmt.Errorf("make a folder for direct.library: %w", err)
	}
	return dir, os.Symlink(library, filepath.Join(dir, "libdcgm.so"))
}

// helper is a running helper process.
type helper struct {
	process  *os.Process
	stdin    io.WriteCloser
	frames   chan frame
	stop     chan struct{} // closed by end
	ended    chan struct{} // closed once the process is gone
	err      error         // how it ended, once it has
	stopping bool
}

type frame struct {
	text []byte
	err  error
}

// endGrace is how long a helper may take to end by itself.
const endGrace = time.Second

func startHelper(command, env []string, limit int, log *slog.Logger) (*helper, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	said := &lastWords{log: log}
	cmd.Stderr = said
	cmd.WaitDelay = endGrace
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the helper process: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the helper process: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the helper process: %w", err)
	}
	h := &helper{
		process: cmd.Process, stdin: stdin, frames: make(chan frame), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	go func() {
		defer close(h.ended)
		in := bufio.NewReader(stdout)
		for {
			text, err := readFrame(in, limit)
			if err != nil && !errors.As(err, new(helperError)) {
				break
			}
			select {
			case h.frames <- frame{text, err}:
			case <-h.stop:
			}
		}
		_ = h.process.Kill() // one that says nonsense may still run
		h.err = fmt.Errorf("the helper process that asks DCGM has died: %w: %s", errors.Join(cmd.Wait(), errDied), said.text())
	}()
	return h, nil
}

var errDied = errors.New("it is started again when it is time to ask")

// ask asks for one answer.
func (h *helper) ask(ctx context.Context) ([]byte, error) {
	if _, err := io.WriteString(h.stdin, "\n"); err != nil {
		select {
		case <-h.ended:
			return nil, h.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	select {
	case f := <-h.frames:
		return f.text, f.err
	case <-h.ended:
		return nil, h.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// end ends the process, and waits a little until it is gone.
func (h *helper) end() {
	if h.stopping {
		return
	}
	h.stopping = true
	close(h.stop)
	h.stdin.Close()
	for range 2 {
		select {
		case <-h.ended:
			return
		case <-time.After(endGrace):
			_ = h.process.Kill()
		}
	}
}

// lastWords logs what a helper says, by the line, and keeps the end of it. Of a crash it takes what it was and leaves out
// the pages of where.
type lastWords struct {
	log     *slog.Logger
	mu      sync.Mutex
	part    string // of a line
	last    string
	crashed bool
}

// Write implements io.Writer.
func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.part += string(p)
	for {
		line, rest, whole := strings.Cut(w.part, "\n")
		if !whole && len(w.part) < maxWords {
			return len(p), nil
		}
		w.part = rest
		w.crashed = w.crashed || strings.HasPrefix(line, "goroutine ")
		if !w.crashed && line != "" {
			w.log.Warn("the helper process that asks DCGM says", "text", line)
			w.last += " " + line
			w.last = w.last[max(0, len(w.last)-maxWords):]
		}
	}
}

// maxWords is how much of what a helper says is kept.
const maxWords = 500

func (w *lastWords) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.TrimSpace(w.last)
}

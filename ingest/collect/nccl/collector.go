package nccl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

// Name is the collector's name in configuration, metrics and source records.
const Name = "nccl"

// Deps are what a collector works with. All may be left out.
type Deps struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

// Collector reads files of nccl-tests as they appear.
type Collector struct {
	cfg     Config
	log     *slog.Logger
	metrics *collect.Metrics
	now     func() time.Time

	told     map[string]version // by path
	failing  map[string]string  // by path, or pattern
	reporter collect.Reporter
}

// version is a state of a file.
type version struct {
	size    int64
	written time.Time
}

// New makes a collector and starts nothing. The error says what is wrong with the configuration.
func New(cfg Config, deps Deps) (*Collector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Collector{cfg: cfg, log: deps.Log, now: deps.Now, told: map[string]version{}, failing: map[string]string{}}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.now == nil {
		c.now = time.Now
	}
	if deps.Registerer != nil {
		c.metrics = collect.NewMetrics(deps.Registerer, Name, c.now)
	}
	c.reporter = collect.Reporter{Cluster: cfg.Cluster, Source: Name, Interval: cfg.Interval, Now: c.now, Log: c.log, Metrics: c.metrics}
	return c, nil
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return Name }

// Run implements collect.Collector. A file is emitted once its runs are over, and again when it is written again.
func (c *Collector) Run(ctx context.Context, out collect.Emitter) error {
	c.reporter.Run(ctx, out, "files", func() { c.poll(ctx, out) }, func() map[string]string { return c.failing })
	return nil
}

// poll looks through all files once.
func (c *Collector) poll(ctx context.Context, out collect.Emitter) {
	c.metrics.Poll("files")
	failing, told := map[string]string{}, map[string]version{}
	fail := func(what, reason string, err error) {
		failing[what] = err.Error()
		c.metrics.Failed(reason)
		if c.failing[what] == "" {
			c.log.Error("benchmarks are not read", "from", what, "error", err)
		}
	}
	for _, pattern := range c.cfg.Files {
		paths, err := filepath.Glob(pattern)
		if _, missing := os.Stat(filepath.Dir(pattern)); err == nil && missing != nil {
			err = missing // no file yet is a quiet day, no folder is a mistake
		}
		if err != nil {
			fail(pattern, "read", fmt.Errorf("find %s: %w", pattern, err))
			for path, v := range c.told { // what was told of it stays so
				if match, _ := filepath.Match(pattern, path); match {
					told[path] = v
				}
			}
		}
		for _, path := range paths {
			if ctx.Err() != nil {
				return
			}
			if v, reason, err := c.file(ctx, path, out); err != nil {
				fail(path, reason, err)
			} else if v != (version{}) {
				told[path] = v
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	c.failing, c.told = failing, told
	if len(failing) == 0 {
		good := c.now()
		c.reporter.Good(good)
		c.metrics.Good("files", len(told), good)
	}
}

// file emits the runs of one file, unless they were or go on, and returns the version that was told.
func (c *Collector) file(ctx context.Context, path string, out collect.Emitter) (version, string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return version{}, "read", fmt.Errorf("read %s: %w", path, err)
	}
	v := version{info.Size(), info.ModTime()}
	if c.told[path] == v {
		return v, "", nil
	}
	records, err := ReadFile(path, c.cfg.Cluster, c.cfg.ShortNames)
	if (errors.Is(err, errNoRun) || errors.Is(err, errCut)) && c.now().Sub(info.ModTime()) < c.cfg.Settle {
		return version{}, "", nil // it may begin, or end, yet
	}
	if err != nil {
		return version{}, "parse", err
	}
	if !ended(records) && !settled(records[0], c.now(), c.cfg.Settle) {
		return version{}, "", nil
	}
	if err := Emit(ctx, out, records); err != nil {
		return version{}, "emit", fmt.Errorf("emit the runs of %s: %w", path, err)
	}
	c.metrics.Emitted("run", len(records))
	return v, "", nil
}

// Emit emits records that ReadFile has given.
func Emit(ctx context.Context, out collect.Emitter, records []*event.Benchmark) error {
	all := make([]event.Record, len(records))
	for i, r := range records {
		if err := r.Validate(); err != nil {
			return err
		}
		all[i] = r
	}
	return out.Emit(ctx, all...)
}

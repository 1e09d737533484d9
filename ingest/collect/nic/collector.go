package nic

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/scrape"
	"github.com/spillway-io/spillway/schemas/event"
)

// Name is the collector's name in configuration, metrics and source records.
const Name = "nic"

// Deps are what a collector works with. All may be left out.
type Deps struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
	Resolver   *net.Resolver
}

// Collector reads ports of NICs.
type Collector struct {
	cfg      Config
	log      *slog.Logger
	metrics  *collect.Metrics
	now      func() time.Time
	filter   filter
	history  *history
	pool     *scrape.Pool // of node_exporters; nil = this machine's sysfs is read
	reporter collect.Reporter
}

// New makes a collector and starts nothing. The error says what is wrong with the configuration.
func New(cfg Config, deps Deps) (*Collector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Collector{cfg: cfg, log: deps.Log, now: deps.Now, history: newHistory(cfg.Forget, cfg.Timeout)}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.now == nil {
		c.now = time.Now
	}
	if deps.Registerer != nil {
		c.metrics = collect.NewMetrics(deps.Registerer, Name, c.now)
	}
	var err error
	if c.filter, err = newFilter(&cfg); err != nil {
		return nil, err
	}
	if !cfg.Sysfs.Enabled {
		c.pool, err = scrape.NewPool(cfg.Config, scrape.Deps{
			Name: Name, NewReader: func() scrape.Reader { return c.newReader() },
			Log: c.log, Metrics: c.metrics, Now: c.now, Resolver: deps.Resolver,
		})
		return c, err
	}
	if c.cfg.Sysfs.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("find the name of this machine: %w; set sysfs.node", err)
		}
		c.cfg.Sysfs.Node, _, _ = strings.Cut(host, ".")
	}
	c.reporter = collect.Reporter{
		Cluster: cfg.Cluster, Source: Name, Interval: cfg.Interval, Now: c.now, Log: c.log, Metrics: c.metrics,
	}
	return c, nil
}

func (c *Collector) newReader() *reader {
	return &reader{c: c, text: scrape.NewText(), ports: map[portKey]*port{}, drops: map[string]int{}}
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return Name }

// Run implements collect.Collector.
func (c *Collector) Run(ctx context.Context, out collect.Emitter) error {
	if c.pool != nil {
		return c.pool.Run(ctx, out)
	}
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	var before error
	for ctx.Err() == nil {
		c.metrics.Poll("node")
		reason, err := c.sysfs(ctx, out)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err != nil:
			c.metrics.Failed(reason)
			if before == nil {
				c.log.Error("ports are not read", "error", err)
			}
		case before != nil:
			c.log.Info("ports are read again")
		}
		before = err
		c.reporter.Report(ctx, out, err != nil, func() string { return err.Error() })
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}

// sysfs reads this machine's ports once, or gives the reason why not.
func (c *Collector) sysfs(ctx context.Context, out collect.Emitter) (string, error) {
	at := c.now()
	ports, whole, err := readSysfs(c.cfg.Sysfs.Root, c.filter.wants)
	if err != nil {
		return "read", err
	}
	record := c.history.record(nodeKey{c.cfg.Cluster, c.cfg.Sysfs.Node}, event.SourceSysfs, ports, at, whole)
	if record == nil { // the clock was set back a little
		c.metrics.Dropped("overtaken", 1)
		return "", nil
	}
	if err := record.Validate(); err != nil {
		return "invalid", err
	}
	if err := out.Emit(ctx, record); err != nil {
		return "emit", fmt.Errorf("emit counters: %w", err)
	}
	c.metrics.Emitted("scrape", 1)
	c.metrics.Good("ports", len(ports), at)
	c.reporter.Good(at)
	return "", nil
}

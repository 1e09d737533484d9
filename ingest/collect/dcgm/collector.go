package dcgm

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/scrape"
)

// Name is the collector's name in configuration, metrics and source records.
const Name = "dcgm"

// Deps are what a collector works with. All may be left out.
type Deps struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
	Resolver   *net.Resolver
	// Helper is the command that becomes the helper process, see RunHelper; it gets one argument more.
	Helper []string
}

// Collector scrapes dcgm-exporters, or asks DCGM on this machine.
type Collector struct {
	cfg     Config
	metrics *collect.Metrics
	history *history
	fields  map[string]*field
	labels  map[string]labelRole
	pool    *scrape.Pool // of exporters; nil = this machine is asked
	direct  *direct
}

// New makes a collector and starts nothing. The error says what is wrong with the configuration.
func New(cfg Config, deps Deps) (*Collector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Direct.Enabled {
		cfg.ExporterInterval = cfg.Interval // there is no exporter with one of its own
	}
	c := &Collector{cfg: cfg, history: newHistory(), labels: labelTable(cfg.Labels)}
	var err error
	if c.fields, err = byName(cfg.Names); err != nil {
		return nil, err
	}
	if deps.Registerer != nil {
		c.metrics = collect.NewMetrics(deps.Registerer, Name, deps.Now)
	}
	if cfg.Direct.Enabled {
		c.direct, err = c.newDirect(deps)
		return c, err
	}
	c.pool, err = scrape.NewPool(cfg.Config, scrape.Deps{
		Name: Name, NewReader: func() scrape.Reader { return c.newReader() },
		Log: deps.Log, Metrics: c.metrics, Now: deps.Now, Resolver: deps.Resolver,
	})
	return c, err
}

func (c *Collector) newReader() *reader {
	return &reader{c: c, text: scrape.NewText(), rows: newRows(c.fields, c.labels)}
}

// sums says whether the bytes of a GPU are the sum of those of its links, as they are of nvidia-smi.
func (c *Collector) sums() bool { return c.cfg.Direct.Enabled && len(c.cfg.Direct.Command) > 0 }

// Name implements collect.Collector.
func (c *Collector) Name() string { return Name }

// Run implements collect.Collector. A target that fails leaves what was read of its node before as it was, and is asked
// again in its next slot.
func (c *Collector) Run(ctx context.Context, out collect.Emitter) error {
	if c.direct != nil {
		return c.direct.run(ctx, out)
	}
	return c.pool.Run(ctx, out)
}

// Package kube is a collector, the first hop of the flow: it lists and watches nodes, pods, Workloads of Kueue, claims of devices
// and ComputeDomains of one Kubernetes API server, and emits placement, node, membership and domain records. It never writes to
// the server, never judges a placement, and never takes a failed or partial answer for the state of the cluster.
package kube

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

// Name is the collector's name in configuration, metrics and source records.
const Name = "kubernetes"

// Deps are what a Collector needs from outside. All may be left out.
type Deps struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

// Collector reads one Kubernetes cluster.
type Collector struct {
	cfg      Config
	deps     Deps
	log      *slog.Logger
	metrics  *collect.Metrics
	decoder  *decoder
	retry    time.Duration // the first pause after a failure
	steady   time.Duration // so long a watch must live to be believed
	news     chan struct{} // takes one without a reader
	reporter collect.Reporter

	mu      sync.Mutex
	model   *model
	feeds   []*feed
	problem string // why the server is not read at all

	// Of Run alone.
	since, good time.Time // of the first and the last moment at which all that is listed was told
	whole       time.Time // when all was looked at last
	said        map[kind]bool
}

const (
	emitAtOnce  = 1000 // records given to the pipeline together
	rediscover  = 10 * time.Minute
	firstRetry  = time.Second
	steadyAfter = 2 * time.Second
)

// New checks the configuration and builds a collector; nothing is read before Run.
func New(cfg Config, deps Deps) (*Collector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	c := &Collector{
		cfg: cfg, deps: deps, log: deps.Log.With("collector", Name), decoder: newDecoder(&cfg), retry: firstRetry, steady: steadyAfter,
		news: make(chan struct{}, 1), said: map[kind]bool{},
	}
	if deps.Registerer != nil {
		c.metrics = collect.NewMetrics(deps.Registerer, Name, deps.Now)
	}
	c.model = newModel(&c.cfg, c.log, c.metrics.Dropped)
	c.reporter = collect.Reporter{
		Cluster: cfg.Cluster, Source: Name, Interval: cfg.Interval, Now: deps.Now, Log: c.log, Metrics: c.metrics, Told: c.told,
	}
	return c, nil
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return Name }

// wake tells Run that there is news.
func (c *Collector) wake() {
	select {
	case c.news <- struct{}{}:
	default: // news are waiting already
	}
}

// Run implements collect.Collector.
func (c *Collector) Run(ctx context.Context, out collect.Emitter) error {
	var wg sync.WaitGroup
	defer func() {
		wg.Wait()
		if len(c.feeds) > 0 {
			c.feeds[0].client.close()
		}
	}()
	wg.Go(func() { c.find(ctx, &wg) })
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-c.news:
			pauseFor(ctx, c.cfg.Gather)
		}
		c.flush(ctx, out)
		c.report(ctx, out)
	}
}

// pauseFor waits, or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// find looks what the server has, until ctx ends, and begins to read each kind as soon as it is there.
func (c *Collector) find(ctx context.Context, wg *sync.WaitGroup) {
	var asked *client
	wanted := c.cfg.wanted()
	pause := c.retry
	for ctx.Err() == nil {
		err := func() (err error) {
			if asked == nil {
				if asked, err = newClient(&c.cfg); err != nil {
					return err
				}
			}
			found, err := asked.discover(ctx, wanted)
			if err != nil {
				return err
			}
			c.begin(ctx, wg, asked, found)
			return nil
		}()
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		begun := len(c.feeds) > 0
		if c.problem = ""; err != nil && !begun { // else what is read goes on being read
			c.problem = err.Error() + hint(err, "anything")
		}
		c.mu.Unlock()
		if err == nil {
			pause = c.retry
			pauseFor(ctx, rediscover)
			continue
		}
		c.metrics.Failed("discover")
		c.log.Warn("what kubernetes has is not known", "error", err)
		c.wake()
		pauseFor(ctx, pause)
		pause = min(2*pause, retryMost)
	}
}

// begin starts to read the kinds that are not read yet, and says once which there are not.
func (c *Collector) begin(ctx context.Context, wg *sync.WaitGroup, asked *client, found []served) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range found {
		if slices.ContainsFunc(c.feeds, func(f *feed) bool { return f.kind == s.kind }) {
			continue
		}
		f := &feed{served: s, c: c, client: asked}
		c.feeds = append(c.feeds, f)
		wg.Go(func() { f.run(ctx) })
		delete(c.said, s.kind)
		c.log.Info("kubernetes is read", "kind", string(s.kind), "path", s.path)
	}
	for _, w := range c.cfg.wanted() {
		if !c.said[w.kind] && !slices.ContainsFunc(c.feeds, func(f *feed) bool { return f.kind == w.kind }) {
			c.said[w.kind] = true
			c.log.Info("the server has none of a kind, so nothing is told by it", "kind", string(w.kind), "group", w.group)
		}
	}
}

// flush emits what has changed, once every kind was read in full. State advances only with what the pipeline took.
func (c *Collector) flush(ctx context.Context, out collect.Emitter) {
	now := c.deps.Now()
	c.mu.Lock()
	synced, live := len(c.feeds) > 0, true
	for _, f := range c.feeds {
		live = f.check(now) && live
		synced = synced && f.synced
	}
	if !synced {
		c.mu.Unlock()
		return
	}
	if c.cfg.Refresh > 0 && now.Sub(c.whole) >= c.cfg.Refresh {
		c.whole = now
		c.model.again()
	}
	b := c.model.propose(now)
	sizes := map[kind]int{}
	for _, f := range c.feeds {
		sizes[f.kind] = c.model.size(f.kind)
	}
	c.mu.Unlock()
	for chunk := range slices.Chunk(b.records, emitAtOnce) {
		if err := out.Emit(ctx, chunk...); err != nil {
			c.mu.Lock()
			b.withdraw()
			c.mu.Unlock()
			if ctx.Err() == nil {
				c.metrics.Failed("emit")
				c.log.Warn("the pipeline did not take records; they are handed on again", "records", len(chunk), "error", err)
				pauseFor(ctx, c.retry)
				c.wake()
			}
			return
		}
		c.metrics.Emitted("watch", len(chunk))
	}
	c.mu.Lock()
	b.commit()
	c.mu.Unlock()
	if c.since.IsZero() {
		c.since = now
	}
	if live {
		c.good = now
		for k, n := range sizes {
			c.metrics.Good(string(k), n, now)
		}
	}
}

// report emits a source record when it is time. Nothing is said before anything is known.
func (c *Collector) report(ctx context.Context, out collect.Emitter) {
	problems := map[string]string{}
	c.mu.Lock()
	if c.problem != "" {
		problems["server"] = c.problem
	}
	for _, f := range c.feeds {
		if f.problem != "" {
			problems[string(f.kind)] = f.problem
		}
	}
	c.mu.Unlock()
	if c.good.IsZero() && len(problems) == 0 {
		return
	}
	c.reporter.Good(c.good)
	if c.reporter.Report(ctx, out, len(problems) > 0, func() string { return collect.Summary(problems, "kinds of objects") }) {
		c.metrics.Emitted("source", 1)
	}
}

// told says of which records all that the server lists was told.
func (c *Collector) told() (out []*event.Told) {
	if c.good.IsZero() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kinds := []kind{kindNodes, kindPods, kindWorkloads, kindClaims, kindSlices, kindDomains, kindCliques}
	for _, t := range []struct {
		source, records string
		of              []kind
	}{
		{SourcePods, "run ", kinds},
		{SourceNodes, "node ", []kind{kindNodes, kindSlices}},
		{event.SourceGFDLabel, "place " + event.SourceGFDLabel + " ", []kind{kindNodes}},
		{event.SourceCloudLabel, "place " + event.SourceCloudLabel + " ", []kind{kindNodes}},
		{event.SourceComputeDomain, "place " + event.SourceComputeDomain + " ", []kind{kindNodes, kindDomains, kindCliques}},
	} {
		if c.model.size(kindNodes) > 0 && c.model.wholly(t.records, t.of...) == nil { // a cluster has nodes
			out = append(out, &event.Told{Source: t.source, SinceMs: c.since.UnixMilli(), GoodAtMs: c.good.UnixMilli()})
		}
	}
	return out
}

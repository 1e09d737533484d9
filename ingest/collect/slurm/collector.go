// Package slurm is a collector, the first hop of the flow: it reads jobs and nodes from Slurm, by slurmrestd or Slurm's own
// commands, and besides from accounting, the jobcomp/kafka plugin and prolog and epilog scripts, and emits placement and
// node records. One decoder and one Poller stand behind all of these ways. It never judges a placement, never looks up a
// topology, and never takes a failed or partial answer for the state of the cluster.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

// Name is the collector's name in configuration, metrics and source records.
const Name = "slurm"

// Deps are what a Collector needs from outside.
type Deps struct {
	Log        *slog.Logger          // nil = slog.Default
	Registerer prometheus.Registerer // nil = nothing is counted
	// Now is the clock; nil = time.Now.
	Now func() time.Time
	// Messages are the topics of Config.JobComp; needed when they are set.
	Messages MessageSource
}

// Collector reads one Slurm cluster.
type Collector struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *collect.Metrics
	source  Source
	closer  Closer // nil = no accounting
	poller  *Poller
	nodes   *NodePoller
	events  chan *event.Placement

	// Of the poll loop alone.
	since, nodesSince time.Time // LastUpdate of the last full answer
	full              time.Time // when jobs were last read in full
	nodesAt           time.Time // when nodes were last read
	nodesFull         time.Time // and in full
	lookedBack        bool
	good              time.Time // of the last good read of jobs
	reporter          collect.Reporter
}

// New checks the configuration and builds a collector; nothing is read before Run.
func New(cfg Config, deps Deps) (*Collector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.JobComp.StartTopic != "" && deps.Messages == nil {
		return nil, errors.New("configuration of the slurm collector: jobcomp topics are set, but nothing is there to read Kafka with")
	}
	if deps.Log == nil {
		deps.Log = slog.Default()
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	c := &Collector{cfg: cfg, deps: deps, log: deps.Log.With("collector", Name), events: make(chan *event.Placement, maxQueued)}
	if deps.Registerer != nil {
		c.metrics = collect.NewMetrics(deps.Registerer, Name, deps.Now)
	}
	c.poller = NewPoller(&c.cfg, c.log, c.metrics.Dropped)
	c.nodes = NewNodePoller(&c.cfg, c.log, c.metrics.Dropped)
	c.reporter = collect.Reporter{
		Source: Name, Interval: cfg.Interval, Now: deps.Now, Log: c.log, Metrics: c.metrics, Told: c.told,
	}
	if cfg.REST.URL == "" {
		c.source = &commandSource{cfg.Commands}
		if len(cfg.Commands.Accounting) > 0 {
			c.closer = sacct{cfg.Commands.Accounting}
		}
		return c, nil
	}
	rest, err := newREST(cfg.REST, cfg.Timeout)
	if err != nil {
		return nil, err
	}
	c.source = rest
	if cfg.REST.Accounting {
		c.closer = slurmDB{rest}
	}
	return c, nil
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return Name }

// Run implements collect.Collector.
func (c *Collector) Run(ctx context.Context, out collect.Emitter) error {
	var wg sync.WaitGroup
	if c.cfg.Events.Listen != "" {
		l, err := c.listen(ctx)
		if err != nil {
			return err
		}
		c.log.Info("prolog and epilog scripts may post", "url", "http://"+l.Addr().String()+EventsPath)
		wg.Go(func() { c.serve(ctx, l) })
		wg.Go(func() { c.forward(ctx, out) })
	}
	if c.cfg.JobComp.StartTopic != "" {
		wg.Go(func() { c.jobcomp(ctx, out) })
	}
	wg.Go(func() { c.poll(ctx, out) })
	wg.Wait()
	if r, ok := c.source.(*restSource); ok {
		r.close()
	}
	return nil
}

// poll reads jobs, nodes and, where runs have to be closed, accounting, until ctx ends.
func (c *Collector) poll(ctx context.Context, out collect.Emitter) {
	wait := backoff{first: c.cfg.Interval}
	for {
		err := c.pollOnce(ctx, out)
		if ctx.Err() != nil {
			return
		}
		c.report(ctx, out, err)
		if err == nil {
			wait.reset()
			sleep(ctx, jitter(c.cfg.Interval))
			continue
		}
		c.metrics.Failed(reasonOf(err))
		delay := wait.next()
		c.log.Warn("reading slurm failed; what is known stays", "error", err, "again_in", delay.Round(time.Millisecond))
		sleep(ctx, delay)
	}
}

// pollOnce reads what is due. Without jobs there is nothing to close; nodes and accounting fail apart.
func (c *Collector) pollOnce(ctx context.Context, out collect.Emitter) error {
	if err := c.pollJobs(ctx, out); err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	var failures []error
	if c.deps.Now().Sub(c.nodesAt) >= c.cfg.NodesInterval {
		if err := c.pollNodes(ctx, out); err != nil {
			failures = append(failures, fmt.Errorf("nodes: %w", err))
		}
	}
	if err := c.closeRuns(ctx, out); err != nil {
		failures = append(failures, fmt.Errorf("accounting: %w", err))
	}
	return errors.Join(failures...)
}

// pollJobs reads all jobs once. The time of the question is the time of the observation: what the answer says was still
// true then.
func (c *Collector) pollJobs(ctx context.Context, out collect.Emitter) error {
	asked := c.deps.Now()
	since := c.since
	if c.cfg.Refresh > 0 && asked.Sub(c.full) >= c.cfg.Refresh {
		since = time.Time{}
	}
	c.metrics.Poll("jobs")
	reading, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	records, meta, err := c.poller.Observe(c.source.Jobs(reading, since), c.source.Name(), asked)
	if err != nil {
		return err
	}
	if err := c.emit(ctx, out, "poll", records); err != nil {
		return err
	}
	c.poller.Commit()
	c.good = asked
	c.metrics.Good("jobs", c.poller.Known(), asked)
	if !meta.Unchanged {
		c.since, c.full = meta.LastUpdate, asked
	}
	return nil
}

func (c *Collector) pollNodes(ctx context.Context, out collect.Emitter) error {
	asked := c.deps.Now()
	reading, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	since := c.nodesSince
	if c.cfg.Refresh > 0 && asked.Sub(c.nodesFull) >= c.cfg.Refresh {
		since = time.Time{}
	}
	read := c.source.Nodes(reading, since)
	if read == nil {
		return nil
	}
	c.metrics.Poll("nodes")
	records, meta, err := c.nodes.Observe(read, asked)
	if err != nil {
		return err
	}
	if err := c.emit(ctx, out, "nodes", records); err != nil {
		return err
	}
	c.nodes.Commit()
	c.nodesAt = asked
	if !meta.Unchanged {
		c.nodesSince, c.nodesFull = meta.LastUpdate, asked
		c.metrics.Good("nodes", meta.Records, c.good)
	}
	return nil
}

// closeRuns finds the ends of runs that are not listed any more, and after a start of those that ended while no collector
// was running, as far back as LookBack. The rest of these ends by what told says.
func (c *Collector) closeRuns(ctx context.Context, out collect.Emitter) error {
	now := c.deps.Now()
	var failure error
	if c.closer != nil && !c.lookedBack && c.cfg.LookBack > 0 {
		if failure = c.account(ctx, out, nil, now.Add(-c.cfg.LookBack), now); failure == nil {
			c.lookedBack = true
		}
	}
	ids, seen := c.poller.Missing()
	if len(ids) == 0 {
		return failure
	}
	patience := time.Time{} // without accounting there is nothing to wait for
	if c.closer != nil {
		patience = now.Add(-c.cfg.CloseWait)
		// A run that was listed at that time ended later; an hour covers clocks that differ.
		if err := c.account(ctx, out, ids, seen.Add(-time.Hour), now.Add(time.Hour)); err != nil {
			failure = err
		}
	}
	records, err := c.poller.GiveUp(patience, now)
	if err != nil {
		return err
	}
	if err := c.emit(ctx, out, "vanished", records); err != nil {
		return err
	}
	c.poller.Commit()
	return failure
}

// account asks accounting and emits what has ended.
func (c *Collector) account(ctx context.Context, out collect.Emitter, jobs []uint32, since, until time.Time) error {
	c.metrics.Poll("accounting")
	reading, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	records, _, err := c.poller.Account(c.closer.Runs(reading, jobs, since, until), c.closer.Name(), c.deps.Now(), false)
	if err != nil {
		return err
	}
	if err := c.emit(ctx, out, "accounting", records); err != nil {
		return err
	}
	c.poller.Commit()
	return nil
}

// emit hands records on, once.
func (c *Collector) emit(ctx context.Context, out collect.Emitter, way string, records []event.Record) error {
	if len(records) == 0 {
		return nil
	}
	if err := out.Emit(ctx, records...); err != nil {
		return failed("emit", "hand %d records to the pipeline: %w; they are handed on again at the next poll", len(records), err)
	}
	c.metrics.Emitted(way, len(records))
	return nil
}

// emitted hands records on until the pipeline has them. It returns false when ctx ends first.
func (c *Collector) emitted(ctx context.Context, out collect.Emitter, way string, records []event.Record) bool {
	wait := backoff{first: time.Second}
	for {
		err := c.emit(ctx, out, way, records)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			c.metrics.Dropped("shutdown", len(records))
			return false
		}
		c.metrics.Failed(reasonOf(err))
		c.log.Warn("the pipeline did not take records", "way", way, "error", err)
		sleep(ctx, wait.next())
	}
}

// report emits a source record after a read, when it is time.
func (c *Collector) report(ctx context.Context, out collect.Emitter, failure error) {
	if c.reporter.Cluster = c.poller.Cluster(); c.reporter.Cluster == "" {
		return // not known before the first good read; until then the log tells
	}
	c.reporter.Good(c.good)
	if c.reporter.Report(ctx, out, failure != nil, func() string { return clean(failure.Error()) }) {
		c.metrics.Emitted("source", 1)
	}
}

// told says which records of earlier runs of the collector are void unless told again: those of jobs, whichever way they
// were read, and those of nodes.
func (c *Collector) told() (out []*event.Told) {
	add := func(source string, since, good time.Time) {
		if !since.IsZero() {
			out = append(out, &event.Told{Source: source, SinceMs: since.UnixMilli(), GoodAtMs: good.UnixMilli()})
		}
	}
	jobs := c.poller.ToldSince()
	add(SourceREST, jobs, c.good)
	add(SourceSqueue, jobs, c.good)
	add(SourceNodes, c.nodes.ToldSince(), c.nodesAt)
	return out
}

// backoff doubles from first up to maxBackoff.
type backoff struct {
	first, last time.Duration
}

const maxBackoff = 5 * time.Minute

func (b *backoff) next() time.Duration {
	b.last = min(max(b.first, 2*b.last), max(maxBackoff, b.first))
	return jitter(b.last)
}

func (b *backoff) reset() { b.last = 0 }

// jitter keeps many collectors from asking in step.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

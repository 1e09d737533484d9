// Package simulate is a collector of the first hop whose source is a simulated fleet of NVL72 racks: nodes, jobs, a
// scheduler and failures, told in the same records as a real cluster would be. It judges nothing, and nothing behind it
// can tell its records from others but by their source. It also holds the scripted scenarios and the bulk generator that
// tests and benchmarks of the later hops are fed with.
package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

const (
	// warmUp is lived through before the history begins, so that the fleet is not empty then.
	warmUp = int64(24 * time.Hour / time.Millisecond)
	// calibration is lived through, after the warm-up, to learn how many records a fleet gives.
	calibration = 2 * warmUp
	batchSize   = 500
	// Waits between tries to store records.
	firstWait   = time.Second
	longestWait = 30 * time.Second
	// beat is how often the collector reports itself alive and, at least, saves its state.
	beat = 10 * time.Second
	// shortestNap bounds how often the collector wakes, so that an idle fleet costs nothing.
	shortestNap = 100 * time.Millisecond
	// idsPerSecond keeps ids of fleets begun at different times apart.
	idsPerSecond = 100
	idEpoch      = 1767225600 // 2026-01-01, Unix seconds
)

// Deps is what a collector is given besides its configuration; every field may be left zero.
type Deps struct {
	Log        *slog.Logger // nil = slog.Default
	Registerer prometheus.Registerer
	Now        func() time.Time // nil = time.Now
	// Ask asks the placement advisor, for partitions with the policy advised; nil = nobody advises.
	Ask func(Question) Answer
}

// Collector emits the life of a simulated fleet. It implements collect.Collector.
type Collector struct {
	config  Config
	log     *slog.Logger
	metrics *collect.Metrics
	now     func() time.Time
	ask     func(Question) Answer

	sims    []*sim
	clock   clock
	shape   []byte
	traffic []*traffic // of each cluster; counters begin at 0 with every start, as after a reboot
	horizon int64      // wall milliseconds up to which the state file covers what is emitted
	pending []event.Record
}

// New makes a collector that does nothing until Run.
func New(config Config, deps Deps) (*Collector, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	shape, err := config.shape()
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	c := &Collector{config: config, log: deps.Log, now: deps.Now, ask: deps.Ask, shape: shape}
	if c.log == nil {
		c.log = slog.Default()
	}
	if c.now == nil {
		c.now = time.Now
	}
	if deps.Registerer != nil {
		c.metrics = collect.NewMetrics(deps.Registerer, Source, c.now)
	}
	return c, nil
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return Source }

// Run implements collect.Collector: the state of the fleet, then its history up to now, then its life as it passes.
func (c *Collector) Run(ctx context.Context, out collect.Emitter) error {
	err := c.run(ctx, out)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

func (c *Collector) run(ctx context.Context, out collect.Emitter) error {
	speed := c.config.Speed
	if c.config.EventsPerSecond > 0 {
		speed = c.config.speedFor(c.config.EventsPerSecond)
	}
	if err := c.begin(ctx, out); err != nil {
		return err
	}
	c.setClock(clock{Fleet: c.fleetTime(), Wall: max(c.now().UnixMilli(), c.wall()), Speed: speed})
	c.horizon = 0 // the state file knows nothing of this clock
	for _, s := range c.sims {
		s.ask = c.ask
		s.tellJobs(c.add) // their time limits strike by another clock now
	}
	c.log.Info("simulated fleet is live", "clusters", len(c.sims), "speed", speed)
	return c.live(ctx, out)
}

// begin brings the fleet up to now: resumed from its state file, or new.
func (c *Collector) begin(ctx context.Context, out collect.Emitter) error {
	c.sims, c.pending = nil, nil
	now := c.now().UnixMilli()
	history := now - c.config.History.Milliseconds()
	var old *savedState
	if c.config.DataDir != "" {
		var err error
		if old, err = readState(c.config.DataDir); err != nil {
			return err
		}
	}
	switch {
	case old == nil:
		c.create(history, warmUp, firstID(now))
	case bytes.Equal(old.Fleet, c.shape):
		if err := c.resume(*old); err != nil {
			return err
		}
		// What may have been emitted before a crash is lived through on the clock of then.
		same := max(c.fleetTime(), c.clock.fleet(min(old.Horizon, now)))
		if err := c.advance(ctx, out, same); err != nil {
			return err
		}
		// The rest of the gap is lived at speed 1, but never more than a history of it.
		c.setClock(clock{Fleet: same, Wall: max(c.wall(), history), Speed: 1})
	default:
		c.log.Warn("the simulated fleet has another shape than the saved one: a new one begins, jobs of the old one are closed as vanished")
		first, err := c.vanish(*old, now)
		if err != nil {
			return err
		}
		if err := c.emit(ctx, out); err != nil {
			return err
		}
		// It begins empty and without a past, so that it never holds what the old one held.
		c.create(max(now, old.Clock.wall(old.Sims[0].Now)), 0, max(first, firstID(now)))
	}
	if err := c.save(max(now, c.wall())); err != nil {
		return err
	}
	return c.advance(ctx, out, max(c.fleetTime(), c.clock.fleet(now)))
}

// create begins a new fleet that is told of from a wall time on, having lived for warm milliseconds before.
func (c *Collector) create(start, warm int64, first uint64) {
	c.clock = clock{Wall: start - warm, Speed: 1}
	for _, cl := range c.config.Clusters {
		s := newSim(c.config.Seed, cl, c.clock, first)
		s.advance(warm, func(event.Record) {})
		s.tellHardware(c.add)
		s.tellJobs(c.add)
		c.sims = append(c.sims, s)
	}
}

// resume takes up a saved fleet of the same shape.
func (c *Collector) resume(old savedState) error {
	sims, err := old.restore(c.config.Seed, c.config.Clusters)
	if err != nil {
		return fmt.Errorf("resume the simulated fleet: %w (delete %s in %s to begin a new one)", err, stateFile, c.config.DataDir)
	}
	c.sims, c.clock = sims, old.Clock
	for _, s := range c.sims {
		s.tellHardware(c.add)
		s.tellJobs(c.add)
	}
	return nil
}

// vanish closes the jobs of a fleet that nobody simulates any more, removes nodes that the new one lacks, and gives an id
// that none of its jobs has. What may have been emitted before a crash is lived through first, so that no job is forgotten.
func (c *Collector) vanish(old savedState, now int64) (first uint64, err error) {
	var was struct {
		Seed     uint64
		Clusters []Cluster
	}
	var sims []*sim
	if err = json.Unmarshal(old.Fleet, &was); err == nil {
		sims, err = old.restore(was.Seed, was.Clusters)
	}
	if err != nil {
		return 0, fmt.Errorf("close the jobs of the old simulated fleet: %w (delete %s in %s to leave them open)", err, stateFile, c.config.DataDir)
	}
	stays := map[string]bool{}
	for _, cl := range c.config.Clusters {
		for _, name := range newFleet(c.config.Seed, cl.Name, cl.Racks, 0).name {
			stays[cl.Name+"/"+name] = true
		}
	}
	last := min(old.Horizon, now)
	for _, s := range sims {
		s.advance(max(s.now, old.Clock.fleet(last)), c.add)
		for _, j := range s.open() {
			revision := max(s.stamp(), uint64(now)*1000)
			for _, p := range s.runRecords(j, event.State_VANISHED, max(now, j.Start), revision) {
				p.EndEarliestMs = ptr(max(last, j.Start))
				c.add(p)
			}
		}
		for node, name := range s.fleet.name {
			if stays[s.fleet.cluster+"/"+name] {
				continue
			}
			for _, r := range s.fleet.gone(node, now, max(s.stamp(), uint64(now)*1000)) {
				c.add(r)
			}
		}
		first = max(first, s.nextID)
	}
	return first, nil
}

// fleetTime is where the fleet stands; all clusters stand at the same time.
func (c *Collector) fleetTime() int64 { return c.sims[0].now }

// wall is the wall time at which the fleet stands.
func (c *Collector) wall() int64 { return c.clock.wall(c.fleetTime()) }

// advance lives on to a fleet time and emits everything on the way.
func (c *Collector) advance(ctx context.Context, out collect.Emitter, to int64) error {
	for {
		next := to
		for _, s := range c.sims {
			next = min(next, s.next())
		}
		for _, s := range c.sims {
			s.advance(next, c.add)
		}
		if next == to {
			return c.emit(ctx, out)
		}
		if len(c.pending) < batchSize {
			continue
		}
		if err := c.emit(ctx, out); err != nil {
			return err
		}
	}
}

// live emits what happens as it happens.
func (c *Collector) live(ctx context.Context, out collect.Emitter) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	nextBeat, nextCounters := int64(0), int64(0)
	for {
		select {
		case <-ctx.Done():
			return c.save(c.wall()) // every record up to here is stored
		case <-timer.C:
		}
		now := max(c.now().UnixMilli(), c.wall())
		if now > c.horizon {
			if err := c.save(now + beat.Milliseconds()); err != nil {
				return err
			}
		}
		if now >= nextBeat {
			nextBeat = now + beat.Milliseconds()
			c.report(now)
		}
		if err := c.advance(ctx, out, max(c.fleetTime(), c.clock.fleet(now))); err != nil {
			return err
		}
		if every := c.config.Counters.Milliseconds(); every > 0 && now >= nextCounters {
			nextCounters = now + every
			c.tellTraffic(now)
			if err := c.emit(ctx, out); err != nil {
				return err
			}
		}
		wake := nextBeat
		if nextCounters > 0 {
			wake = min(wake, nextCounters)
		}
		for _, s := range c.sims {
			wake = min(wake, c.clock.wall(s.next()))
		}
		timer.Reset(max(shortestNap, time.Duration(wake-now)*time.Millisecond))
	}
}

// tellTraffic adds the counters of every cluster.
func (c *Collector) tellTraffic(now int64) {
	for i, s := range c.sims {
		if len(c.traffic) <= i {
			c.traffic = append(c.traffic, newTraffic(c.config.Seed, s, now))
		}
		c.traffic[i].tell(s, now, c.add)
	}
}

// report says that the source was read in full just now.
func (c *Collector) report(now int64) {
	jobs := 0
	for _, s := range c.sims {
		jobs += len(s.jobs)
		c.add(&event.Source{
			Cluster: s.cluster.Name, Source: Source, ObservedAtMs: now, GoodAtMs: &now,
			IntervalMs: ptr(uint32(beat.Milliseconds())),
		})
	}
	c.metrics.Poll("jobs")
	c.metrics.Good("jobs", jobs, time.UnixMilli(now))
}

func (c *Collector) add(r event.Record) { c.pending = append(c.pending, r) }

// emit sends what is pending until all of it is stored, or gives the context's error when that ends.
func (c *Collector) emit(ctx context.Context, out collect.Emitter) error {
	wait := firstWait
	for len(c.pending) > 0 {
		n := min(len(c.pending), batchSize)
		err := out.Emit(ctx, c.pending[:n]...)
		if err == nil {
			c.metrics.Emitted(Source, n)
			c.pending, wait = c.pending[n:], firstWait
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.log.Error("records of the simulated fleet are not stored: trying again", "error", err, "wait", wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, longestWait)
		}
	}
	c.pending = nil
	return nil
}

func (c *Collector) setClock(clk clock) {
	c.clock = clk
	for _, s := range c.sims {
		s.clock = clk
	}
}

// save writes where the fleet stands; until it is called again, nothing later than horizon is emitted.
func (c *Collector) save(horizon int64) error {
	c.horizon = horizon
	if c.config.DataDir == "" {
		return nil
	}
	st := savedState{Fleet: c.shape, Horizon: horizon, Clock: c.clock}
	for _, s := range c.sims {
		saved, err := s.save()
		if err != nil {
			return err
		}
		st.Sims = append(st.Sims, saved)
	}
	return writeState(c.config.DataDir, st)
}

// speedFor is the speed at which the fleet gives about this many records a second, found by living through two days.
func (c Config) speedFor(perSecond float64) float64 {
	records := 0
	for _, cl := range c.Clusters {
		s := newSim(c.Seed, cl, clock{Speed: 1}, 1)
		s.advance(warmUp, func(event.Record) {})
		s.advance(warmUp+calibration, func(event.Record) { records++ })
	}
	return perSecond * float64(calibration) / 1000 / float64(max(records, 1))
}

// firstID is where the ids of a fleet begin that begins now: above those of any fleet begun before.
func firstID(now int64) uint64 {
	return uint64(max(now/1000-idEpoch, 0))*idsPerSecond + 1
}

package topology

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

// Name is the collector's name in configuration, metrics and source records.
const Name = "topology"

const (
	emitAtOnce = 1000 // records given to the pipeline together
	loggedMost = 20   // issues of one document that are logged one by one
)

// Deps are what a collector works with. All may be left out.
type Deps struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
	// Fetch reads the URL of a source, instead of a plain GET.
	Fetch func(ctx context.Context, s Source) ([]byte, error)
}

// Collector reads the configured sources in turn and emits what changed.
type Collector struct {
	cfg     Config
	log     *slog.Logger
	metrics *collect.Metrics
	now     func() time.Time
	fetch   func(ctx context.Context, s Source) ([]byte, error)
	inputs  []*input

	reporter collect.Reporter
}

// input is one source and what is known of it.
type input struct {
	Source
	validFrom time.Time
	digest    [sha256.Size]byte // of the content that known was made from
	doubted   [sha256.Size]byte // of content that would remove nodes, and was read once
	topology  string            // of all that is known
	known     map[string]placed // by node
	since     time.Time         // when it was first read as a whole
	current   bool              // known is what was read last
	emitted   time.Time         // when all of known was emitted last
	good      time.Time         // when it was read well last
	problem   string            // why the last read failed; "" = it did not
}

// placed is what was emitted of a node.
type placed struct {
	levels   []Level
	declared bool // with the first read of all, so that valid_from speaks of it
	refused  bool // its record broke the contract and was left out
}

// New makes a collector and starts nothing. The error says what is wrong with the configuration.
func New(cfg Config, deps Deps) (*Collector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Collector{cfg: cfg, log: deps.Log, now: deps.Now, fetch: deps.Fetch}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.fetch == nil {
		c.fetch = get
	}
	if deps.Registerer != nil {
		c.metrics = collect.NewMetrics(deps.Registerer, Name, c.now)
	}
	for _, s := range cfg.Sources {
		from, err := s.validFrom()
		if err != nil {
			return nil, err
		}
		c.inputs = append(c.inputs, &input{Source: s, validFrom: from, known: map[string]placed{}})
	}
	c.reporter = collect.Reporter{
		Cluster: cfg.Cluster, Source: Name, Interval: cfg.Interval, Now: c.now, Log: c.log, Metrics: c.metrics, Told: c.toldInFull,
	}
	return c, nil
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return Name }

// Run implements collect.Collector. A source that fails keeps its last good state and is read again at the next
// interval. What a source no longer lists is emitted as removed; of nodes that vanished while no collector ran it knows
// nothing, so the source record says since when all that is listed has been told.
func (c *Collector) Run(ctx context.Context, out collect.Emitter) error {
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	for {
		c.pollAll(ctx, out)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *Collector) pollAll(ctx context.Context, out collect.Emitter) {
	for _, in := range c.inputs {
		c.metrics.Poll(in.Source.Source)
		err := c.poll(ctx, in, out)
		if ctx.Err() != nil {
			return
		}
		log := c.log.With("source", in.Source.Source, "from", in.where())
		switch {
		case err != nil:
			if in.problem == "" {
				log.Error("topology is not read, what was read before stays", "error", err)
			}
			in.problem = err.Error()
		case in.problem != "":
			log.Info("topology is read again")
			in.problem = ""
		}
	}
	c.report(ctx, out)
}

// failure is an error with the reason it is counted under.
type failure struct {
	reason string
	error
}

func (f failure) Unwrap() error { return f.error }

// poll reads one source once and emits what differs from what is known. State advances only with what the pipeline took.
func (c *Collector) poll(ctx context.Context, in *input, out collect.Emitter) (err error) {
	defer func() {
		if f, ok := errors.AsType[failure](err); ok && ctx.Err() == nil {
			c.metrics.Failed(f.reason)
		}
	}()
	content, err := c.read(ctx, &in.Source)
	if err != nil {
		return failure{"read", err}
	}
	var instances []byte
	if in.InstancesFile != "" {
		if instances, err = readFile(in.InstancesFile); err != nil {
			return failure{"read", err}
		}
	}
	now := c.now()
	digest := digestOf(content, instances)
	if digest != in.digest {
		believed, err := c.take(ctx, in, content, instances, digest, now, out)
		if err != nil {
			return err
		}
		if believed {
			in.digest = digest
		}
	}
	in.current = digest == in.digest
	if c.cfg.Refresh > 0 && now.Sub(in.emitted) >= c.cfg.Refresh {
		if err := c.refresh(ctx, in, now, out); err != nil {
			return err
		}
	}
	in.good = now
	c.metrics.Good(in.Source.Source, len(in.known), now)
	return nil
}

func digestOf(content, instances []byte) [sha256.Size]byte {
	a, b := sha256.Sum256(content), sha256.Sum256(instances)
	return sha256.Sum256(append(a[:], b[:]...))
}

// take parses new content and emits the changes. Content that would remove nodes is believed when it is read a second
// time: a file may be read while somebody writes it.
func (c *Collector) take(ctx context.Context, in *input, content, instances []byte, digest [sha256.Size]byte, now time.Time, out collect.Emitter) (believed bool, err error) {
	m, err := Parse(bytes.NewReader(content), in.where(), in.Format)
	if err != nil {
		return false, failure{"parse", err}
	}
	choice := in.choice()
	if in.InstancesFile != "" {
		if choice.Names, err = Instances(bytes.NewReader(instances), in.InstancesFile); err != nil {
			return false, failure{"parse", err}
		}
	}
	view, err := m.View(choice)
	if err != nil {
		return false, failure{"parse", err}
	}
	if len(view.Nodes) == 0 && len(in.known) > 0 && !in.AllowEmpty {
		return false, failure{"empty", errEmpty}
	}
	listed := make(map[string]bool, len(view.Nodes))
	for _, n := range view.Nodes {
		listed[n.Name] = true
	}
	for node := range in.known {
		if !listed[node] && in.doubted != digest {
			in.doubted = digest
			return false, nil
		}
	}
	c.note(in, append(m.Issues, view.Issues...))
	first := in.emitted.IsZero()
	if in.since.IsZero() {
		in.since = now
	}

	// A topology under another name is another telling: the old one ends before the new one begins.
	if len(view.Nodes) > 0 && view.Topology != in.topology {
		if err := c.remove(ctx, in, func(string) bool { return true }, now, out); err != nil {
			return false, err
		}
		in.topology = view.Topology
	}
	var changed []Node
	for _, n := range view.Nodes {
		if old, ok := in.known[n.Name]; !ok || !slices.Equal(old.levels, n.Levels) {
			changed = append(changed, n)
		}
	}
	way := "change"
	if first {
		way = "full"
	}
	if err := c.emit(ctx, in, changed, way, first, now, out); err != nil {
		return false, err
	}
	if err := c.remove(ctx, in, func(node string) bool { return !listed[node] }, now, out); err != nil {
		return false, err
	}
	if first {
		in.emitted = now
	}
	return true, nil
}

// emit sends nodes and notes them as known, chunk by chunk.
func (c *Collector) emit(ctx context.Context, in *input, nodes []Node, way string, declared bool, now time.Time, out collect.Emitter) error {
	for chunk := range slices.Chunk(nodes, emitAtOnce) {
		var records []event.Record
		refused := map[string]bool{}
		for _, n := range chunk {
			if r := c.record(in, n, declared, now); r != nil {
				records = append(records, r)
			} else {
				refused[n.Name] = true
			}
		}
		if err := c.send(ctx, way, records, out); err != nil {
			return err
		}
		for _, n := range chunk {
			in.known[n.Name] = placed{levels: n.Levels, declared: declared, refused: refused[n.Name]}
		}
	}
	return nil
}

func (c *Collector) send(ctx context.Context, way string, records []event.Record, out collect.Emitter) error {
	if len(records) == 0 {
		return nil
	}
	if err := out.Emit(ctx, records...); err != nil {
		return failure{"emit", fmt.Errorf("emit membership: %w", err)}
	}
	c.metrics.Emitted(way, len(records))
	return nil
}

// record is the membership of a node, or nil for one that breaks the contract.
func (c *Collector) record(in *input, n Node, declared bool, now time.Time) event.Record {
	r := membership(c.cfg.Cluster, in.Source.Source, in.topology, n, now)
	if declared {
		r.ValidFromMs = event.Millis(in.validFrom)
	}
	if err := r.Validate(); err != nil {
		c.metrics.Dropped("invalid", 1)
		c.log.Warn("node is left out", "source", in.Source.Source, "node", n.Name, "error", err)
		return nil
	}
	return r
}

func membership(cluster, source, topology string, n Node, observed time.Time) *event.Membership {
	r := &event.Membership{
		Cluster: cluster, Node: n.Name, Source: source, Topology: topology,
		ObservedAtMs: observed.UnixMilli(), Revision: event.Revision(observed),
	}
	for _, l := range n.Levels {
		r.Levels = append(r.Levels, &event.Level{Level: l.Level, Value: l.Value})
	}
	return r
}

// remove emits the end of the known nodes that gone names.
func (c *Collector) remove(ctx context.Context, in *input, gone func(node string) bool, now time.Time, out collect.Emitter) error {
	var names []string
	for node := range in.known {
		if gone(node) {
			names = append(names, node)
		}
	}
	slices.Sort(names)
	for chunk := range slices.Chunk(names, emitAtOnce) {
		var records []event.Record
		for _, node := range chunk {
			r := membership(c.cfg.Cluster, in.Source.Source, in.topology, Node{Name: node}, now)
			r.Removed = true
			if r.Validate() == nil { // one that was never emitted cannot be withdrawn
				records = append(records, r)
			}
		}
		if err := c.send(ctx, "removed", records, out); err != nil {
			return err
		}
		for _, node := range chunk {
			delete(in.known, node)
		}
	}
	return nil
}

// refresh emits all that is known again, each node with the beginning it had.
func (c *Collector) refresh(ctx context.Context, in *input, now time.Time, out collect.Emitter) error {
	nodes := map[bool][]Node{} // by declared
	for _, node := range slices.Sorted(maps.Keys(in.known)) {
		p := in.known[node]
		nodes[p.declared] = append(nodes[p.declared], Node{Name: node, Levels: p.levels})
	}
	for _, declared := range []bool{true, false} {
		if err := c.emit(ctx, in, nodes[declared], "refresh", declared, now, out); err != nil {
			return err
		}
	}
	in.emitted = now
	return nil
}

// note counts and logs what is suspect in new content.
func (c *Collector) note(in *input, issues []Issue) {
	c.metrics.Dropped("issue", len(issues))
	for i, issue := range issues {
		if i == loggedMost {
			c.log.Warn("topology has more issues", "source", in.Source.Source, "more", len(issues)-i)
			return
		}
		c.log.Warn("topology has an issue", "source", in.Source.Source, "at", issue.Where, "issue", issue.Text)
	}
}

// whole reports whether each node that the source lists has been told. That it lists none is believed only where that is
// allowed.
func (in *input) whole() bool {
	if in.emitted.IsZero() || !in.current || len(in.known) == 0 && !in.AllowEmpty {
		return false
	}
	for _, p := range in.known {
		if p.refused {
			return false
		}
	}
	return true
}

// report emits the source record when it is time. The source is as old as its oldest part.
func (c *Collector) report(ctx context.Context, out collect.Emitter) {
	var problems []string
	var good time.Time
	for i, in := range c.inputs {
		if in.problem != "" {
			problems = append(problems, in.Source.Source+": "+in.problem)
		}
		if i == 0 || in.good.Before(good) {
			good = in.good
		}
	}
	c.reporter.Good(good)
	c.reporter.Report(ctx, out, len(problems) > 0, func() string { return strings.Join(problems, "; ") })
}

// toldInFull says of which sources each node that they list was told.
func (c *Collector) toldInFull() (out []*event.Told) {
	for _, in := range c.inputs {
		if in.whole() {
			out = append(out, &event.Told{Source: in.Source.Source, SinceMs: in.since.UnixMilli(), GoodAtMs: in.good.UnixMilli()})
		}
	}
	return out
}

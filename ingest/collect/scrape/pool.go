package scrape

import (
	"container/heap"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

const (
	loggedMost = 20 // targets that turn bad or good and are logged, in the time between two reports
	startPause = 5 * time.Millisecond
)

// Reader turns answers into records. Every worker has its own, so that a reader may reuse its buffers; what is known of a
// node from one answer to the next is shared between them. Body is valid during the call only. Once the records are
// stored, done is called, if there is one. An error that is a *Failure is counted under its reason.
type Reader interface {
	Read(t *Target, body []byte, at time.Time) (records []event.Record, done func(), err error)
}

// Deps are what a pool works with. Resolver, Log and Metrics may be left out.
type Deps struct {
	// Name is the collector's, for source records and logs.
	Name string
	// NewReader makes a worker's reader.
	NewReader func() Reader
	Log       *slog.Logger
	Metrics   *collect.Metrics
	Now       func() time.Time
	Resolver  *net.Resolver
}

// Pool asks all targets, each in its own slot of the interval, with a bounded number of workers.
type Pool struct {
	cfg       Config
	deps      Deps
	client    *client
	discovery *discovery
	changed   chan struct{} // what is watched has
}

// NewPool makes a pool and starts nothing. The configuration must be valid.
func NewPool(cfg Config, deps Deps) (*Pool, error) {
	p := &Pool{cfg: cfg, deps: deps}
	if p.deps.Log == nil {
		p.deps.Log = slog.New(slog.DiscardHandler)
	}
	if p.deps.Now == nil {
		p.deps.Now = time.Now
	}
	if p.deps.Resolver == nil {
		p.deps.Resolver = net.DefaultResolver
	}
	var err error
	if p.client, err = newClient(&p.cfg); err != nil {
		return nil, err
	}
	p.discovery = &discovery{cfg: &p.cfg, resolver: p.deps.Resolver, known: map[string][]Group{}}
	p.changed = make(chan struct{}, 1)
	for _, k := range p.cfg.Kubernetes {
		p.discovery.watches = append(p.discovery.watches, newKubeWatch(&p.cfg, k, p.deps.Log, p.changed))
	}
	return p, nil
}

// entry is a target in the schedule.
type entry struct {
	target Target
	offset time.Duration // of its slot in the interval
	due    time.Time
	index  int  // in the queue; -1 = being asked
	gone   bool // no longer listed
	asked  bool // at least once
	err    error
}

// asked is what came of asking a target.
type asked struct {
	entry *entry
	err   error
}

// found is what came of looking for targets.
type found struct {
	targets []Target
	err     error
}

// Run asks the targets until ctx ends, and then returns nil.
func (p *Pool) Run(ctx context.Context, out collect.Emitter) error {
	var wg sync.WaitGroup
	defer p.client.http.CloseIdleConnections()
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	ask, done, lists := make(chan *entry), make(chan asked), make(chan found)
	for range p.cfg.Concurrency {
		wg.Go(func() { p.work(ctx, ask, done, out) })
	}
	for _, w := range p.discovery.watches {
		wg.Go(func() { w.run(ctx) })
	}
	wg.Go(func() { p.discover(ctx, lists) })

	s := &schedule{pool: p, byURL: map[string]*entry{}, reporter: collect.Reporter{
		Cluster: p.cfg.Cluster, Source: p.deps.Name, Interval: p.cfg.Interval, Now: p.deps.Now, Log: p.deps.Log, Metrics: p.deps.Metrics,
	}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		var to chan *entry // nil = nobody is due
		var first *entry
		if len(s.queue) > 0 {
			first = s.queue[0]
			if wait := first.due.Sub(now); wait > 0 {
				timer.Reset(wait)
			} else {
				to = ask
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case to <- first:
			heap.Pop(&s.queue)
			if missed := now.Sub(first.due) / p.cfg.Interval; missed > 0 {
				p.deps.Metrics.Failed("late")
			}
		case l := <-lists:
			s.update(l, time.Now())
			s.report(ctx, out)
		case a := <-done:
			s.settle(a, time.Now())
			s.report(ctx, out)
		}
	}
}

// work asks one target after the other.
func (p *Pool) work(ctx context.Context, ask <-chan *entry, done chan<- asked, out collect.Emitter) {
	reader := p.deps.NewReader()
	var buf []byte
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-ask:
			var err error
			buf, err = p.scrape(ctx, &e.target, reader, buf, out)
			select {
			case <-ctx.Done():
				return
			case done <- asked{e, err}:
			}
		}
	}
}

func (p *Pool) scrape(ctx context.Context, t *Target, reader Reader, buf []byte, out collect.Emitter) ([]byte, error) {
	p.deps.Metrics.Poll("target")
	buf, at, err := p.client.get(ctx, t.URL, buf, p.deps.Now)
	if err != nil {
		return buf, err
	}
	records, stored, err := reader.Read(t, buf, at)
	if err != nil {
		return buf, fmt.Errorf("read %s: %w", t.URL, err)
	}
	if len(records) > 0 {
		if err := out.Emit(ctx, records...); err != nil {
			return buf, &Failure{"emit", fmt.Errorf("emit what %s tells: %w", t.URL, err)}
		}
		p.deps.Metrics.Emitted("scrape", len(records))
	}
	if stored != nil {
		stored()
	}
	return buf, nil
}

// discover looks for targets now and again, and when what is watched changes.
func (p *Pool) discover(ctx context.Context, lists chan<- found) {
	for _, w := range p.discovery.watches {
		select {
		case <-ctx.Done():
			return
		case <-w.tried:
		}
	}
	tick := time.NewTicker(p.cfg.Rediscover)
	defer tick.Stop()
	for {
		targets, err := p.discovery.find(ctx)
		if err != nil && ctx.Err() == nil {
			p.deps.Metrics.Failed("discovery")
		}
		select {
		case <-ctx.Done():
			return
		case lists <- found{targets, err}:
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.changed:
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(watchPause, p.cfg.Rediscover)):
			}
		}
	}
}

// schedule is who is due when, and how it went last.
type schedule struct {
	pool  *Pool
	byURL map[string]*entry
	queue queue

	unasked, failing int // of the listed targets
	lost             error
	reporter         collect.Reporter
	logged           int
	logSince         time.Time
}

// update takes a new list of targets.
func (s *schedule) update(l found, now time.Time) {
	if l.err != nil && s.lost == nil {
		s.pool.deps.Log.Error("targets are not found, those found before stay", "source", s.pool.deps.Name, "error", l.err)
	}
	s.lost = l.err
	listed := make(map[string]bool, len(l.targets))
	spread := min(s.pool.cfg.Interval, time.Duration(len(l.targets))*startPause)
	for _, t := range l.targets {
		listed[t.URL] = true
		if e := s.byURL[t.URL]; e != nil {
			if e.index >= 0 {
				e.target = t // its labels may have changed
			}
			continue
		}
		e := &entry{target: t, offset: offset(t.URL, s.pool.cfg.Interval)}
		e.due = now.Add(time.Duration(float64(e.offset) / float64(s.pool.cfg.Interval) * float64(spread)))
		s.byURL[t.URL] = e
		s.unasked++
		heap.Push(&s.queue, e)
	}
	for url, e := range s.byURL {
		if listed[url] {
			continue
		}
		delete(s.byURL, url)
		if !e.asked {
			s.unasked--
		}
		if e.err != nil {
			s.failing--
		}
		if e.gone = true; e.index >= 0 {
			heap.Remove(&s.queue, e.index)
		}
	}
}

// offset spreads the targets over the interval, each at the same place of it after every restart.
func offset(url string, interval time.Duration) time.Duration {
	sum := sha256.Sum256([]byte(url)) // names in a row must not give slots in a row
	return time.Duration(binary.BigEndian.Uint64(sum[:]) % uint64(interval))
}

// settle notes how asking a target went and gives it its next slot.
func (s *schedule) settle(a asked, now time.Time) {
	p, e := s.pool, a.entry
	if e.gone {
		return
	}
	if !e.asked {
		e.asked = true
		s.unasked--
	}
	if (a.err != nil) != (e.err != nil) {
		if a.err != nil {
			s.failing++
		} else {
			s.failing--
		}
		s.log(e, a.err, now)
	}
	e.err = a.err
	if a.err != nil {
		reason := "read"
		if f, ok := errors.AsType[*Failure](a.err); ok {
			reason = f.Reason
		}
		p.deps.Metrics.Failed(reason)
	} else {
		good := p.deps.Now()
		s.reporter.Good(good)
		p.deps.Metrics.Good("targets", len(s.byURL)-s.unasked-s.failing, good)
	}
	slot := now.Truncate(p.cfg.Interval).Add(e.offset)
	if !slot.After(now) {
		slot = slot.Add(p.cfg.Interval)
	}
	e.due = now.Add(slot.Sub(now)) // by the steady clock: a step of the other would leave the target alone for as long
	heap.Push(&s.queue, e)
}

// log tells of a target that turned bad or good, but not of every one when a whole network does.
func (s *schedule) log(e *entry, err error, now time.Time) {
	if now.Sub(s.logSince) > collect.ReportEvery {
		s.logSince, s.logged = now, 0
	}
	if s.logged++; s.logged > loggedMost {
		return
	}
	if err != nil {
		s.pool.deps.Log.Warn("target is not read", "source", s.pool.deps.Name, "target", e.target.URL, "error", err)
	} else {
		s.pool.deps.Log.Info("target is read again", "source", s.pool.deps.Name, "target", e.target.URL)
	}
}

// bad says whether something is wrong with the source as a whole.
func (s *schedule) bad() bool {
	asked := len(s.byURL) - s.unasked
	return len(s.byURL) == 0 || float64(s.failing) > s.pool.cfg.Tolerate*float64(asked)
}

// problem puts it in words.
func (s *schedule) problem() string {
	switch {
	case len(s.byURL) == 0 && s.lost != nil:
		return "no target is known: " + s.lost.Error()
	case len(s.byURL) == 0:
		return "no target is known: set targets, files or dns"
	}
	example := ""
	for _, e := range s.byURL {
		if e.err != nil && (example == "" || e.err.Error() < example) {
			example = e.err.Error()
		}
	}
	return fmt.Sprintf("%d of %d targets are not read, as: %s", s.failing, len(s.byURL), example)
}

// report emits the source record, but not before every target was asked for the first time.
func (s *schedule) report(ctx context.Context, out collect.Emitter) {
	if s.unasked > 0 && s.reporter.First() {
		return
	}
	s.reporter.Report(ctx, out, s.bad(), s.problem)
}

// queue is a heap of entries by the time they are due.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i]; q[i].index, q[j].index = i, j }

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	e.index = -1
	*q = old[:len(old)-1]
	return e
}

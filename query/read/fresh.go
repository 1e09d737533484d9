package read

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// Freshness says how old and how complete the facts behind an answer are. Every answer carries one.
type Freshness struct {
	AsOf     *time.Time `json:"as_of" doc:"When every source that reports was last read in full; null when none has been."`
	AgeS     *float64   `json:"age_seconds" doc:"Seconds since as_of; null when unknown."`
	Complete bool       `json:"complete" doc:"False when a source is failing or overdue, or facts have waited to be judged for more than ten seconds."`
	Gaps     []string   `json:"gaps" doc:"What is missing, in words; empty when complete."`
}

// Source is the newest report of one collector.
type Source struct {
	Cluster    string     `json:"cluster"`
	Source     string     `json:"source"`
	GoodAt     *time.Time `json:"good_at" doc:"Last full read; null when there has been none."`
	ReportedAt time.Time  `json:"reported_at"`
	Problem    *string    `json:"problem" doc:"Why the newest read failed; null when it did not."`
	Overdue    bool       `json:"overdue" doc:"No report for three times its interval."`
}

// Reports older than this say nothing of today: their collector was taken out of service.
const sourceMemory = 24 * time.Hour

// Without an interval of its own a collector counts as overdue after this long.
const defaultOverdue = time.Minute

// heard remembers the reports for a moment: every answer tells its age, and collectors report once in ten seconds.
type heard struct {
	mu      sync.Mutex
	asked   time.Time
	sources []Source
}

// heardEvery bounds how old the remembered reports are.
const heardEvery = time.Second

// Grace is how long a loaded record may wait for its pass, and a change of membership for the topology, before answers
// count as incomplete: in good order passes gather for two seconds and take one or two, and the first of a large fleet a few
// more. It is told of ten seconds, and at most backlogAtMost, after they stopped.
const Grace = 10 * time.Second

// wait is raw records of one cluster that no pass has judged yet.
type wait struct {
	Cluster string    `ch:"cluster"`
	Table   string    `ch:"raw_table"`
	Rows    uint64    `ch:"rows_behind"`
	Oldest  time.Time `ch:"oldest_loaded_at"`
}

// backlog remembers what waited when it was last asked for.
type backlog struct {
	mu     sync.Mutex
	known  bool
	asked  time.Time
	late   []wait      // for longer than Grace
	behind atomic.Bool // a question is on its way
}

// What waits is asked for anew when it is older than backlogEvery, behind the caller's back: it costs ClickHouse a look at
// many records. Only where what is remembered is older than backlogAtMost does the caller wait for it.
const (
	backlogEvery  = 5 * time.Second
	backlogAtMost = 15 * time.Second
)

// How far back records are searched for such that no pass has judged, or before the last pass where that is longer ago.
// While passes catch up on more than the first, the newest records of it wait too, so that it is told all the same.
const (
	backlogWindow = 15 * time.Minute
	statusWindow  = 2 * time.Hour // to count them
)

func (r *Reader) readUnjudged(ctx context.Context, now time.Time, window time.Duration) ([]wait, error) {
	got, err := rows[wait](ctx, r, "unjudged", params{}.time("now", now).uint("window", uint64(window/time.Second)))
	slices.SortFunc(got, func(a, b wait) int { return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Cluster, b.Cluster)) })
	return got, err
}

// late keeps what has waited for longer than Grace.
func late(waits []wait, now time.Time) []wait {
	return slices.DeleteFunc(slices.Clone(waits), func(w wait) bool { return now.Sub(w.Oldest) <= Grace })
}

// lateRecords gives what waits to be judged for longer than Grace.
func (r *Reader) lateRecords(ctx context.Context) ([]wait, error) {
	b := r.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	now := r.now()
	switch age := now.Sub(b.asked); {
	case !b.known || age >= backlogAtMost:
		waits, err := r.readUnjudged(ctx, now, backlogWindow)
		if err != nil {
			return nil, err
		}
		b.known, b.asked, b.late = true, now, late(waits, now)
	case age >= backlogEvery && b.behind.CompareAndSwap(false, true):
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backlogEvery)
		go func() {
			defer b.behind.Store(false)
			defer cancel()
			waits, err := r.readUnjudged(ctx, now, backlogWindow)
			if err != nil {
				return // what is remembered grows older, and then a caller waits and gets the error
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.asked, b.late = now, late(waits, now)
		}()
	}
	return b.late, nil
}

// reports are what the freshness of an answer rests on.
type reports struct {
	sources []Source
	late    []wait
}

func (r *Reader) reports(ctx context.Context) (out reports, err error) {
	if out.sources, err = r.Sources(ctx); err == nil {
		out.late, err = r.lateRecords(ctx)
	}
	return out, err
}

// Sources gives the newest report of every collector heard of in the last day.
func (r *Reader) Sources(ctx context.Context) ([]Source, error) {
	h := r.heard
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := r.now(); h.sources == nil || now.Sub(h.asked) >= heardEvery {
		sources, err := r.readSources(ctx)
		if err != nil {
			return nil, err
		}
		h.asked, h.sources = now, sources
	}
	return h.sources, nil
}

// Overdue reports whether a collector that is to report every so many milliseconds (nil = not told) has been silent for too
// long.
func Overdue(reported time.Time, interval *uint32, now time.Time) bool {
	limit := defaultOverdue
	if interval != nil {
		limit = max(limit, 3*time.Duration(*interval)*time.Millisecond)
	}
	return now.Sub(reported) > limit
}

func (r *Reader) readSources(ctx context.Context) ([]Source, error) {
	type row struct {
		Cluster    string     `ch:"cluster"`
		Source     string     `ch:"source"`
		GoodAt     *time.Time `ch:"good_at"`
		Problem    string     `ch:"problem"`
		IntervalMS *uint32    `ch:"interval_ms"`
		ReportedAt time.Time  `ch:"reported_at"`
	}
	now := r.now()
	got, err := rows[row](ctx, r, "sources", params{}.time("since", now.Add(-sourceMemory)))
	if err != nil {
		return nil, err
	}
	out := make([]Source, 0, len(got))
	for _, s := range got {
		out = append(out, Source{
			Cluster: s.Cluster, Source: s.Source, GoodAt: s.GoodAt, ReportedAt: s.ReportedAt, Problem: text(s.Problem),
			Overdue: Overdue(s.ReportedAt, s.IntervalMS, now),
		})
	}
	return out, nil
}

// freshness sums up of one cluster (empty = all) what an answer says of itself.
// Freshness tells how old and complete the facts of a cluster (empty = all) are.
func (r *Reader) Freshness(ctx context.Context, cluster string) (Freshness, error) {
	return r.freshness(ctx, cluster)
}

func (r *Reader) freshness(ctx context.Context, cluster string) (Freshness, error) {
	told, err := r.reports(ctx)
	if err != nil {
		return Freshness{}, err
	}
	return told.freshness(cluster, r.now()), nil
}

func (told reports) freshness(cluster string, now time.Time) Freshness {
	d := Summarize(told.sources, cluster, now)
	for _, w := range told.late {
		if event.Covers(cluster, w.Cluster) {
			d.Gap("%d rows of %s of %s wait to be judged since %s: does `spillway enrich` run?", w.Rows, w.Table, w.Cluster,
				w.Oldest.UTC().Format(time.RFC3339))
		}
	}
	return d
}

// Gap adds what an answer lacks.
func (d *Freshness) Gap(format string, args ...any) {
	d.Complete = false
	d.Gaps = append(d.Gaps, fmt.Sprintf(format, args...))
}

// Summarize tells how old and complete the facts are that some collectors give of one cluster (empty = all).
func Summarize(sources []Source, cluster string, now time.Time) Freshness {
	d := Freshness{Complete: true, Gaps: []string{}}
	seen := false
	for _, s := range sources {
		if !event.Covers(cluster, s.Cluster) {
			continue
		}
		seen = true
		switch {
		case s.GoodAt == nil:
			d.Gap("%s of %s has never been read in full", s.Source, s.Cluster)
		case s.Problem != nil:
			d.Gap("%s of %s fails since %s: %s", s.Source, s.Cluster, s.GoodAt.UTC().Format(time.RFC3339), *s.Problem)
		case s.Overdue:
			d.Gap("%s of %s has not reported since %s", s.Source, s.Cluster, s.ReportedAt.UTC().Format(time.RFC3339))
		}
		if s.GoodAt != nil && (d.AsOf == nil || s.GoodAt.Before(*d.AsOf)) {
			d.AsOf = s.GoodAt
		}
	}
	if !seen {
		d.Gap("no collector has reported in the last day: check `spillway collect` and the topics")
	}
	if d.AsOf != nil {
		age := now.Sub(*d.AsOf).Seconds()
		d.AgeS = &age
	}
	return d
}

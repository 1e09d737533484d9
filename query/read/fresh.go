package read

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// Freshness says how old and how complete the facts behind an answer are. Every answer carries one.
type Freshness struct {
	AsOf     *time.Time `json:"as_of" doc:"When every source that reports was last read in full; null when none has been."`
	AgeS     *float64   `json:"age_seconds" doc:"Seconds since as_of; null when unknown."`
	Complete bool       `json:"complete" doc:"False when a source is failing or overdue, or facts wait to be judged."`
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
		limit := defaultOverdue
		if s.IntervalMS != nil {
			limit = max(limit, 3*time.Duration(*s.IntervalMS)*time.Millisecond)
		}
		out = append(out, Source{
			Cluster: s.Cluster, Source: s.Source, GoodAt: s.GoodAt, ReportedAt: s.ReportedAt, Problem: text(s.Problem),
			Overdue: now.Sub(s.ReportedAt) > limit,
		})
	}
	return out, nil
}

// freshness sums the sources of one cluster (empty = all) up into what an answer says of itself.
func (r *Reader) freshness(ctx context.Context, cluster string) (Freshness, error) {
	sources, err := r.Sources(ctx)
	if err != nil {
		return Freshness{}, err
	}
	return summarize(sources, cluster, r.now()), nil
}

func summarize(sources []Source, cluster string, now time.Time) Freshness {
	d := Freshness{Complete: true, Gaps: []string{}}
	gap := func(format string, args ...any) {
		d.Complete = false
		d.Gaps = append(d.Gaps, fmt.Sprintf(format, args...))
	}
	seen := false
	for _, s := range sources {
		if !event.Covers(cluster, s.Cluster) {
			continue
		}
		seen = true
		switch {
		case s.GoodAt == nil:
			gap("%s of %s has never been read in full", s.Source, s.Cluster)
		case s.Problem != nil:
			gap("%s of %s fails since %s: %s", s.Source, s.Cluster, s.GoodAt.UTC().Format(time.RFC3339), *s.Problem)
		case s.Overdue:
			gap("%s of %s has not reported since %s", s.Source, s.Cluster, s.ReportedAt.UTC().Format(time.RFC3339))
		}
		if s.GoodAt != nil && (d.AsOf == nil || s.GoodAt.Before(*d.AsOf)) {
			d.AsOf = s.GoodAt
		}
	}
	if !seen {
		gap("no collector has reported in the last day: check `spillway collect` and the topics")
	}
	if d.AsOf != nil {
		age := now.Sub(*d.AsOf).Seconds()
		d.AgeS = &age
	}
	return d
}

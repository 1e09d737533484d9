package collect

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// ReportEvery is how often a source record is emitted at most, while nothing turns bad or good.
const ReportEvery = 10 * time.Second

// Reporter emits the source records of one collector: at once when reading its source turns bad or good again, else now and
// then. Log and all before it must be set.
type Reporter struct {
	Cluster, Source string
	Interval        time.Duration
	Now             func() time.Time
	Log             *slog.Logger
	Metrics         *Metrics             // nil: nothing is counted
	Told            func() []*event.Told // what was told in full; nil: this source never says so

	good     time.Time // of the newest good read
	reported time.Time
	saidBad  bool // in the last report
}

// Good notes the newest good read; the zero time is none.
func (r *Reporter) Good(at time.Time) { r.good = at }

// First says that nothing was reported yet.
func (r *Reporter) First() bool { return r.reported.IsZero() }

// Report emits a source record if it is time, and says whether it did. Problem is asked for only then, and only of a
// source that is bad.
func (r *Reporter) Report(ctx context.Context, out Emitter, bad bool, problem func() string) bool {
	now := r.Now()
	if bad == r.saidBad && !r.First() && now.Sub(r.reported) < ReportEvery {
		return false
	}
	interval := uint32(min(r.Interval.Milliseconds(), 1<<31))
	record := &event.Source{
		Cluster: r.Cluster, Source: r.Source, ObservedAtMs: now.UnixMilli(), GoodAtMs: event.Millis(r.good), IntervalMs: &interval,
	}
	if bad {
		record.Problem = problem()
	}
	if r.Told != nil {
		record.Told = r.Told()
	}
	if err := out.Emit(ctx, record); err != nil {
		if ctx.Err() == nil {
			r.Metrics.Failed("emit")
			r.Log.Error("how the source is read is not reported", "source", r.Source, "error", err)
		}
		return false
	}
	r.reported, r.saidBad = now, bad
	return true
}

// Run polls at once and then every interval until ctx ends, and reports after each poll; failing gives what is not read
// since the last one, with the problem of each, and noun is what those are.
func (r *Reporter) Run(ctx context.Context, out Emitter, noun string, poll func(), failing func() map[string]string) {
	tick := time.NewTicker(r.Interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		poll()
		if ctx.Err() == nil {
			bad := failing()
			r.Report(ctx, out, len(bad) > 0, func() string { return Summary(bad, noun) })
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// Summary says what is wrong with a source as a whole, the same for the same problems; "" without any.
func Summary(problems map[string]string, noun string) string {
	if len(problems) == 0 {
		return ""
	}
	first := slices.Min(slices.Collect(maps.Values(problems)))
	if n := len(problems); n > 1 {
		return fmt.Sprintf("%d %s are not read, as: %s", n, noun, first)
	}
	return first
}

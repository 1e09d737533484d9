package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/kafka"
	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/internal/telemetry"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/event"
)

func probeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "probe", Short: "Send a job that spills and one that does not, and check what the service makes of them", Args: noArgs,
		Long: "Send a job that spills and one that does not through Kafka, and check the verdicts, the list of spills and the\n" +
			"metric that alerts read. The jobs are of a cluster of their own, " + event.ProbeCluster + ". With --every it goes on and shows\n" +
			"spillway_probe_* on telemetry.listen; without, the exit code tells.",
	}
	settings := configFlag(cmd)
	c := reaching(cmd)
	every := cmd.Flags().Duration("every", 0, "probe again and again, so often; 0 = once")
	within := cmd.Flags().Duration("within", 30*time.Second, "how long the answers may take")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := settings()
		if err != nil {
			return err
		}
		if err := (stages{collect: true}).reachable(s); err != nil {
			return err
		}
		log, err := logger(s, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		tel, err := telemetry.New(s.Telemetry, "spillway-probe", version)
		if err != nil {
			return err
		}
		engines := s.Engine
		engines.ClickHouse.Mode = engine.ModeNone
		e, err := engine.Start(cmd.Context(), engines, log)
		if err != nil {
			return err
		}
		producer := kafka.NewProducer(e.Kafka, kafka.Deps{Log: log, Registry: tel.Registry, Now: time.Now})
		p := newProber(producer, c, *within, tel.Registry)
		run := func() error {
			took, err := p.once(cmd.Context())
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "ok: a spill was seen in %s, and its end in %s\n", took.seen.Round(time.Millisecond), took.gone.Round(time.Millisecond))
			}
			return err
		}
		if *every > 0 {
			run = func() error { return p.repeat(cmd.Context(), *every, s.Telemetry.Listen, tel, log) }
		}
		return errors.Join(run(), producer.Close(), e.Stop())
	}
	return cmd
}

// prober sends known jobs and checks the answers.
type prober struct {
	out    collect.Emitter
	api    *client
	within time.Duration
	now    func() time.Time

	results *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	last    prometheus.Gauge
}

func newProber(out collect.Emitter, api *client, within time.Duration, reg prometheus.Registerer) *prober {
	p := &prober{
		out: out, api: api, within: within, now: time.Now,
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_probe_total", Help: "Probes by result: ok, or the step that failed (send, verdict, list, metric, end).",
		}, []string{"result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_probe_seconds", Help: "Time from a record to the answer that shows it, by step (verdict, end).",
			Buckets: []float64{.1, .25, .5, 1, 2, 3, 5, 10, 30, 60},
		}, []string{"step"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_probe_last_success_timestamp_seconds", Help: "When a probe last went well; 0 = never yet.",
		}),
	}
	if reg != nil {
		reg.MustRegister(p.results, p.seconds, p.last)
	}
	return p
}

// probeTook is how long it took until the spill was seen, and until its end was.
type probeTook struct{ seen, gone time.Duration }

// errProbe marks a probe that found something wrong; step says what.
type errProbe struct {
	step string
	err  error
}

func (e *errProbe) Error() string { return fmt.Sprintf("probe: %s: %v", e.step, e.err) }
func (e *errProbe) Unwrap() error { return e.err }

// repeat probes until ctx ends.
func (p *prober) repeat(ctx context.Context, every time.Duration, listen string, tel *telemetry.Telemetry, log *slog.Logger) error {
	serve := make(chan error, 1)
	if listen != "" {
		go func() { serve <- tel.Serve(ctx, listen) }()
	} else {
		log.Warn("telemetry.listen is empty: spillway_probe_* is shown nowhere, and no alert can go by it")
	}
	for {
		if took, err := p.once(ctx); ctx.Err() != nil {
			return nil
		} else if err != nil {
			log.Error("probe failed", "error", err)
		} else {
			log.Info("probe went well", "seen", took.seen, "gone", took.gone)
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-serve:
			return err
		case <-time.After(every):
		}
	}
}

// closing bounds the record that ends the jobs of a probe that was itself told to end.
const closing = 10 * time.Second

// once sends both jobs, waits for the answers, and ends the jobs again whatever they were. Other probes may run beside it.
func (p *prober) once(ctx context.Context) (took probeTook, err error) {
	result := "ok"
	defer func() {
		var failed *errProbe
		if errors.As(err, &failed) {
			result = failed.step
		}
		if ctx.Err() == nil {
			p.results.WithLabelValues(result).Inc()
		}
	}()
	if err := p.until(ctx, func() error { return p.endLeftOver(ctx) }); err != nil {
		return took, &errProbe{"list", err}
	}
	start := p.now()
	id := strconv.FormatInt(start.UnixMilli(), 10)
	split, whole := "probe-split-"+id, "probe-whole-"+id
	if err := p.out.Emit(ctx, probeFleet(start)...); err != nil {
		return took, &errProbe{"send", err}
	}
	jobs := func(state event.State, at time.Time) []event.Record {
		return []event.Record{
			probeJob(split, state, start, at, p.limit(), "probe-a1", "probe-b1"),
			probeJob(whole, state, start, at, p.limit(), "probe-a2", "probe-a3"),
		}
	}
	ended := false
	end := func() error {
		ended = true
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing) // also when ctx is what ends the probe
		defer cancel()
		return p.out.Emit(ctx, jobs(event.State_COMPLETED, p.now().Add(time.Millisecond))...)
	}
	defer func() {
		if !ended {
			err = errors.Join(err, end())
		}
	}()
	if err := p.out.Emit(ctx, jobs(event.State_RUNNING, start)...); err != nil {
		return took, &errProbe{"send", err}
	}
	if err := p.until(ctx, func() error { return p.verdicts(ctx, split, whole) }); err != nil {
		return took, &errProbe{"verdict", err}
	}
	took.seen = p.now().Sub(start)
	p.seconds.WithLabelValues("verdict").Observe(took.seen.Seconds())
	if err := p.until(ctx, func() error { _, err := p.listed(ctx, split, whole, true); return err }); err != nil {
		return took, &errProbe{"list", err}
	}
	if err := p.until(ctx, func() error { return p.metric(ctx, split, whole, true) }); err != nil {
		return took, &errProbe{"metric", err}
	}
	asked := p.now()
	if err := end(); err != nil {
		return took, &errProbe{"send", err}
	}
	if err := p.until(ctx, func() error { return p.metric(ctx, split, whole, false) }); err != nil {
		return took, &errProbe{"end", err}
	}
	took.gone = p.now().Sub(asked)
	p.seconds.WithLabelValues("end").Observe(took.gone.Seconds())
	p.last.Set(float64(p.now().UnixMilli()) / 1000)
	return took, nil
}

// until asks until the answer is right or the time is over; then the last thing that was wrong is the error.
func (p *prober) until(ctx context.Context, ask func() error) error {
	deadline := p.now().Add(p.within)
	for {
		err := ask()
		if err == nil || p.now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// limit is the time limit of a probe's jobs: their probe has ended them by then, or was killed.
func (p *prober) limit() time.Duration { return 3*p.within + closing }

// endLeftOver ends the jobs of probes that were killed: those that hold nodes beyond their time limit.
func (p *prober) endLeftOver(ctx context.Context) error {
	var held read.Map
	if err := p.api.get(ctx, "/v1/map", url.Values{"cluster": {event.ProbeCluster}}, &held); err != nil {
		return err
	}
	var ends []event.Record
	now := p.now()
	for _, job := range held.Jobs {
		if job.ExpectedEnd == nil || job.ExpectedEnd.Before(now) {
			ends = append(ends, probeJob(job.JobID, event.State_COMPLETED, job.From, now, 0))
		}
	}
	if len(ends) == 0 {
		return nil
	}
	return p.out.Emit(ctx, ends...)
}

// probeFleet is two domains of three nodes of four GPUs.
func probeFleet(at time.Time) []event.Record {
	var out []event.Record
	since := event.Millis(at.Add(-time.Hour))
	four, yes := uint32(4), true
	for _, domain := range []string{"a", "b"} {
		for i := range 3 {
			node := fmt.Sprintf("probe-%s%d", domain, i+1)
			out = append(out,
				&event.Membership{
					Cluster: event.ProbeCluster, Node: node, Source: event.SourceStatic, ValidFromMs: since,
					Levels:       []*event.Level{{Level: event.LevelDomain, Value: "probe-" + domain}},
					ObservedAtMs: at.UnixMilli(), Revision: event.Revision(at),
				},
				&event.Node{
					Cluster: event.ProbeCluster, Node: node, Source: "probe", GpusPresent: &four, GpusHealthy: &four, Schedulable: &yes,
					ValidFromMs: since, ObservedAtMs: at.UnixMilli(), Revision: event.Revision(at),
				})
		}
	}
	return out
}

// probeJob is one job of a probe, with four GPUs of each node. Without nodes and limit nothing is told of them.
func probeJob(id string, state event.State, start, at time.Time, limit time.Duration, nodes ...string) event.Record {
	all, four := uint32(4*len(nodes)), uint32(4)
	r := &event.Placement{
		Cluster: event.ProbeCluster, JobId: id, RunId: id, Scheduler: "probe", Source: "probe", Name: "probe", User: "spillway",
		State: state, StartMs: event.Millis(start), Intent: &event.Intent{}, ObservedAtMs: at.UnixMilli(), Revision: event.Revision(at),
	}
	if len(nodes) > 0 {
		r.Gpus, r.RequestedGpus = &all, &all
	}
	if limit > 0 {
		r.TimeLimitMs = new(limit.Milliseconds())
	}
	if state.Ended() {
		r.EndMs = event.Millis(at)
	}
	for _, n := range nodes {
		r.Placements = append(r.Placements, &event.NodePlacement{Node: n, Gpus: &four})
	}
	return r
}

// verdicts wants the one to be a spill by policy, 4 GPUs in each of two domains, and the other to sit in one domain.
func (p *prober) verdicts(ctx context.Context, split, whole string) error {
	for id, want := range map[string]string{split: "spill", whole: "one_domain"} {
		var job read.Job
		if err := p.api.get(ctx, "/v1/jobs/"+id, url.Values{"cluster": {event.ProbeCluster}}, &job); err != nil {
			return err
		}
		if len(job.Attempts) != 1 || job.Attempts[0].Verdict == nil {
			return fmt.Errorf("job %s has no verdict", id)
		}
		v := job.Attempts[0].Verdict
		if v.Outcome != want {
			return fmt.Errorf("job %s is judged %s, want %s", id, v.Outcome, want)
		}
		if want == "spill" && (v.Cause == nil || *v.Cause != "policy" || v.DomainsUsed == nil || *v.DomainsUsed != 2) {
			return fmt.Errorf("job %s is a spill, but not by policy over 2 domains", id)
		}
	}
	return nil
}

// listed wants the one among the running spills, or no longer so, and the other never. It gives how many are listed: other
// probes may run.
func (p *prober) listed(ctx context.Context, split, whole string, running bool) (spills float64, err error) {
	var page read.Spills
	if err := p.api.get(ctx, "/v1/spills", url.Values{"cluster": {event.ProbeCluster}, "state": {"running"}, "sort": {"newest"}}, &page); err != nil {
		return 0, err
	}
	found := false
	for _, s := range page.Spills {
		if s.JobID == whole {
			return 0, fmt.Errorf("job %s is listed as a spill", whole)
		}
		found = found || s.JobID == split
	}
	switch {
	case running && !found:
		return 0, fmt.Errorf("job %s is not among the %d running spills", split, page.Total)
	case found && !running:
		return 0, fmt.Errorf("job %s is listed as a running spill, and has ended", split)
	}
	return float64(page.Total), nil
}

// metric wants the gauge that alerts read, which the process with the API shows, to count as many spills of this cluster as
// are listed.
func (p *prober) metric(ctx context.Context, split, whole string, running bool) error {
	want, err := p.listed(ctx, split, whole, running)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.api.base, "/")+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read metrics: %w", err)
	}
	got, complete := 0.0, false
	for line := range strings.Lines(string(body)) {
		complete = complete || strings.TrimSpace(line) == "spillway_query_facts_up 1"
		if strings.HasPrefix(line, "spillway_running_placements{") && strings.Contains(line, `cluster="`+event.ProbeCluster+`"`) && strings.Contains(line, `outcome="spill"`) {
			f := strings.Fields(line)
			v, err := strconv.ParseFloat(f[len(f)-1], 64)
			if err != nil {
				return fmt.Errorf("read metrics: %w", err)
			}
			got += v
		}
	}
	if got == 0 && !complete {
		return errors.New("spillway_query_facts_up is not 1: what /metrics leaves out is not none")
	}
	if got != want {
		return fmt.Errorf("spillway_running_placements of spills of %s is %g, and %g are listed", event.ProbeCluster, got, want)
	}
	return nil
}

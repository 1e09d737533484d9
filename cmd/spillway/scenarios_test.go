package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/schemas/event"
)

// TestScenarios sends every scripted case through Kafka, ClickHouse and the passes and asks the reader for the verdicts:
// each case must have those it lists and no others.
func TestScenarios(t *testing.T) {
	t.Parallel()
	s := defaultSettings()
	s.API.Listen = "127.0.0.1:0"
	s.Telemetry.LogLevel = "warn"
	s.Topics.Partitions = 3 // what is told of different jobs and nodes comes in no order
	f, err := open(context.Background(), &s, stages{load: true, enrich: true, serve: true}, true, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	at := time.Now().Add(-time.Hour)
	var cases []simulate.Case
	sent := 0
	send := func(records []event.Record) {
		t.Helper()
		// One by one would keep the order within a key; together they also mix, as several collectors would.
		if len(records) > 0 {
			if err := f.producer.Emit(ctx, records...); err != nil {
				t.Fatal(err)
			}
			sent += len(records)
		}
	}
	for _, name := range simulate.Scenarios() {
		c, err := simulate.Scenario(name, at)
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
		send(c.Records)
	}
	judged := func() {
		t.Helper()
		wait, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		if err := f.judged(wait, sent, ended); err != nil && !errors.Is(err, errRefused) {
			t.Fatal(err)
		}
	}
	judged()
	for _, c := range cases {
		send(c.Later)
	}
	judged()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if diff := cmp.Diff(c.Verdicts, verdicts(t, f, c)); diff != "" {
				t.Errorf("%s\n-want +got:\n%s", c.About, diff)
			}
		})
	}
}

// verdicts reads every verdict of a case's clusters, leaving out what the case does not say.
func verdicts(t *testing.T, f *flow, c simulate.Case) []simulate.Verdict {
	t.Helper()
	jobs := map[[2]string]bool{}
	for _, r := range append(slices.Clone(c.Records), c.Later...) {
		if p, ok := r.(*event.Placement); ok {
			jobs[[2]string{p.GetCluster(), p.GetJobId()}] = true
		}
	}
	expected := map[string]simulate.Verdict{}
	for _, v := range c.Verdicts {
		expected[fmt.Sprint(v.Cluster, v.Job, v.Attempt, v.Seq)] = v
	}
	var out []simulate.Verdict
	for key := range jobs {
		job, err := f.reader.Job(context.Background(), key[0], key[1])
		if err != nil {
			continue // refused as a whole: the case lists no verdict for it
		}
		for _, a := range job.Attempts {
			for _, p := range a.Placements {
				if p.Verdict == nil {
					continue
				}
				v := simulate.Verdict{
					Cluster: key[0], Job: key[1], Attempt: int(a.Attempt), Seq: int(p.Seq), Outcome: p.Verdict.Outcome,
					IntentMet: p.Verdict.IntentMet,
				}
				if p.Verdict.Cause != nil {
					v.Cause = *p.Verdict.Cause
				}
				want := expected[fmt.Sprint(v.Cluster, v.Job, v.Attempt, v.Seq)]
				if n := p.Verdict.DomainsUsed; want.DomainsUsed != nil && n != nil {
					used := int(*n)
					v.DomainsUsed = &used
				}
				if n := p.Verdict.DomainsMin; want.DomainsMin != nil && n != nil {
					fewest := int(*n)
					v.DomainsMin = &fewest
				}
				for _, shard := range p.Verdict.Shape {
					if want.Shape != nil && shard.GPUs != nil {
						v.Shape = append(v.Shape, int(*shard.GPUs))
					}
					if want.Domains != nil {
						v.Domains = append(v.Domains, shard.Domain)
					}
				}
				out = append(out, v)
			}
		}
	}
	order := func(a, b simulate.Verdict) int {
		return slices.Compare([]string{a.Cluster, a.Job, fmt.Sprint(a.Attempt), fmt.Sprint(a.Seq)},
			[]string{b.Cluster, b.Job, fmt.Sprint(b.Attempt), fmt.Sprint(b.Seq)})
	}
	slices.SortFunc(out, order)
	slices.SortFunc(c.Verdicts, order)
	return out
}

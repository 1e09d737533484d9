package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/read"
)

func demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "demo", Short: "Run all stages with a simulated NVL72 fleet whose jobs spill", Args: noArgs,
		Long: "Run all stages on this machine with a simulated fleet of NVL72 racks, half of them placed without regard\n" +
			"to racks, half by the placement advisor. It prints the first spills and goes on until Ctrl-C; the next start resumes.",
	}
	settings := configFlag(cmd)
	racks := cmd.Flags().Int("racks", 16, "racks of 18 nodes x 4 GPUs")
	speed := cmd.Flags().Float64("speed", 0, "seconds of the fleet's life a second; 0 = as configured")
	dataDir := cmd.Flags().String("data-dir", "", "where the demo keeps its data; empty = var/demo")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := settings()
		if err != nil {
			return err
		}
		s.Collect.Sources = []string{"simulate"}
		fleet := &s.Collect.Simulate
		if *speed > 0 {
			fleet.Speed = *speed
		}
		if cmd.Flags().Changed("racks") {
			for i := range fleet.Clusters {
				fleet.Clusters[i].Racks = *racks
			}
		}
		// A job of an hour shows as a minute, so what counts as a short wait shrinks with it.
		s.Enrich.Window = max(time.Second, time.Duration(float64(s.Enrich.Window)/fleet.Speed))
		s.Engine.DataDir = "var/demo"
		if *dataDir != "" {
			s.Engine.DataDir = *dataDir
		}
		// One half of the fleet asks for advice for each job, the other goes without.
		if _, port, err := net.SplitHostPort(s.API.Listen); err == nil && port != "0" {
			fleet.AdviceURL = "http://" + s.API.Listen
			for i := range fleet.Clusters {
				fleet.Clusters[i].Partitions = []simulate.Partition{
					{Name: "flat", Policy: simulate.PolicyFlat}, {Name: "advised", Policy: simulate.PolicyAdvised},
				}
			}
		}
		fleet.DataDir = filepath.Join(s.Engine.DataDir, "fleet")
		if err := s.Validate(); err != nil {
			return &exitError{exitUsage, err}
		}
		s.Telemetry.LogLevel = "warn"
		log, err := logger(s, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		fmt.Fprintf(w, "starting ClickHouse, Kafka and all stages in %s ...\n", s.Engine.DataDir)
		f, err := open(cmd.Context(), s, stages{collect: true, load: true, enrich: true, serve: true}, false, log)
		if err != nil {
			return err
		}
		defer f.close()
		fmt.Fprintf(w, "ready: http://%s (Ctrl-C ends it; the next start resumes)\n\n", f.server.Addr())
		tour := newTour(f, w)
		f.parts = append(f.parts, named{"tour", tour.run}, named{"halves", tour.halves})
		if err := f.run(cmd.Context()); err != nil {
			return err
		}
		fmt.Fprintln(w, "\nended; `spillway demo` resumes where it was")
		return nil
	}
	return cmd
}

// tour shows a newcomer what the flow finds as it finds it.
type tour struct {
	reader *read.Reader
	links  advise.Links
	base   string
	w      io.Writer
}

func newTour(f *flow, w io.Writer) *tour {
	return &tour{reader: f.reader, links: f.settings.API.Links, base: "http://" + f.server.Addr(), w: w}
}

// The tour prints at most this many spills and then leaves the terminal alone.
const tourSpills = 5

func (t *tour) run(ctx context.Context) error {
	shown := map[string]bool{}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for len(shown) < tourSpills {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		page, err := t.reader.Spills(ctx, read.SpillFilter{Running: true, Since: now.Add(-time.Hour), Until: now, BySeverity: true, Limit: 20})
		if err != nil {
			continue // the log tells; the next tick asks again
		}
		for _, s := range page.Spills {
			key := fmt.Sprint(s.Cluster, "/", s.JobID, "/", s.Attempt)
			if shown[key] || len(shown) >= tourSpills {
				continue
			}
			shown[key] = true
			if len(shown) == 1 {
				if t.explain(ctx, s, "the first spill, as `spillway explain %s` tells it") {
					fmt.Fprintln(t.w)
				}
				continue
			}
			fmt.Fprintf(t.w, "%s job %s: %s GPUs as %s over %s domains, %s would do: %s\n", now.Format("15:04:05"), printable(s.JobID),
				cellUint(s.Verdict.GPUs), cellShape(s.Verdict.Shape), cellUint(s.Verdict.DomainsUsed), cellUint(s.Verdict.DomainsMin), causeWord(s))
		}
	}
	fmt.Fprintf(t.w, "\nnow ask it yourself, in another terminal:\n"+
		"  spillway spills --running\n  spillway spills --traffic silent_fallback\n  spillway explain JOB\n  spillway slots --gpus 64\n  spillway domains\n  curl %s/v1/status\n", t.base)
	for _, says := range []string{"confirmed", "silent_fallback"} {
		if !t.measured(ctx, says) {
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// measured waits for a job of which its counters say so, and shows it; false when the demo ends.
func (t *tour) measured(ctx context.Context, says string) bool {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		now := time.Now()
		page, err := t.reader.Spills(ctx, read.SpillFilter{Traffic: says, Since: now.Add(-10 * time.Minute), Until: now, BySeverity: true, Limit: 1})
		if err != nil || len(page.Spills) == 0 {
			continue
		}
		if t.explain(ctx, page.Spills[0], "\n"+now.Format("15:04:05")+" what the counters add, job %s") {
			return true
		}
	}
}

// The halves are compared when each has begun so many gangs, and then once a minute.
const (
	halvesGangs = 20
	halvesEvery = time.Minute
)

// halves shows what asking for advice made of one half of the fleet. Only what began since this start counts: nobody
// advises the past that is told first.
func (t *tour) halves(ctx context.Context) error {
	since := time.Now().Add(3 * time.Second)
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		queues, err := t.reader.Queues(ctx, "", since)
		if err != nil {
			continue // the log tells; the next tick asks again
		}
		by := map[string]read.Queue{}
		for _, q := range queues {
			by[q.Queue] = q
		}
		flat, advised := by["flat"], by["advised"]
		if min(flat.Gangs-flat.Unknown, advised.Gangs-advised.Unknown) < halvesGangs {
			continue
		}
		fmt.Fprintf(t.w, "%s the two halves since the start: without advice %s gangs spilled, mean wait %.1f s; "+
			"with advice %s, %.1f s (a split that is predicted to lose nothing is not waited against)\n", time.Now().Format("15:04:05"),
			spilledShare(flat), flat.MeanWait, spilledShare(advised), advised.MeanWait)
		tick.Reset(halvesEvery)
	}
}

// spilledShare is the share of a queue's gangs that spilled, of those that could be judged.
func spilledShare(q read.Queue) string {
	judged := q.Gangs - q.Unknown
	out := fmt.Sprintf("%.0f %% of %d", 100*float64(q.Spilled)/float64(max(1, judged)), judged)
	if q.Unknown > 0 {
		out += fmt.Sprintf(" (and %d not judged)", q.Unknown)
	}
	return out
}

// explain explains one spill in full, after a sentence of which it is the argument; false when it cannot be read now.
func (t *tour) explain(ctx context.Context, s read.Spill, sentence string) bool {
	job, err := t.reader.Job(ctx, s.Cluster, s.JobID)
	if err != nil {
		return false
	}
	a, err := job.Pick(int32(s.Attempt))
	if err != nil {
		return false
	}
	fmt.Fprintf(t.w, sentence+":\n  %s\n", printable(s.JobID), printableLines(read.Explain(job, a, t.links).Lines, "\n  "))
	return true
}

func causeWord(s read.Spill) string {
	if s.Verdict.Cause == nil {
		return "cause not known"
	}
	return *s.Verdict.Cause
}

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// benchmark measures one figure of BENCHMARKS.md on engines of its own.
type benchmark struct {
	what string
	run  func(ctx context.Context, b *benchRun) error
}

// benchmarks is the list of what can be measured.
func benchmarks() map[string]benchmark {
	return map[string]benchmark{
		"latency":  {"start event to verdict readable through the API, 10,000 GPUs, 100 job events/s", benchLatency},
		"backfill": {"judging many attempts afresh", benchBackfill},
		"advice":   {"event to advice, and POST /v1/advice at 1,000/s, at 10,000 and 100,000 GPUs", benchAdvice},
		"serve":    {"POST /v1/advice at 1,000/s to a `spillway serve` of its own, at 100,000 GPUs, beside a server that only gives one answer", benchServe},
		"slots":    {"/v1/slots at 10,000 GPUs", benchSlots},
		"jobs":     {"/v1/jobs/{job} with millions of attempts stored", benchJobs},
		"idle":     {"memory and CPU of `up` with the simulated fleet", benchIdle},
	}
}

// benchRun is what a benchmark is given.
type benchRun struct {
	settings *settings
	log      *slog.Logger
	w        io.Writer
	attempts int
	seconds  int
}

// sayf prints one line of the result.
func (b *benchRun) sayf(format string, args ...any) { fmt.Fprintf(b.w, format+"\n", args...) }

func benchCommand() *cobra.Command {
	names := slices.Sorted(maps.Keys(benchmarks()))
	cmd := &cobra.Command{
		Use: "bench [NAME...]", Short: "Measure what BENCHMARKS.md records", ValidArgs: names,
		Long: "Measure on engines of its own, in a directory that is removed afterwards. Without a name, all of:\n",
	}
	for _, name := range names {
		cmd.Long += fmt.Sprintf("  %-9s %s\n", name, benchmarks()[name].what)
	}
	cmd.AddCommand(benchAskCommand(), benchBareCommand())
	settings := configFlag(cmd)
	attempts := cmd.Flags().Int("attempts", 1_000_000, "attempts stored for backfill and, times ten, for jobs")
	seconds := cmd.Flags().Int("seconds", 60, "how long latency, slots and idle measure")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := settings()
		if err != nil {
			return err
		}
		s.Telemetry.LogLevel = "warn"
		s.API.Listen = "127.0.0.1:0"
		log, err := logger(s, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		if len(args) == 0 {
			args = names
		}
		for _, name := range args {
			one, ok := benchmarks()[name]
			if !ok {
				return usageError("benchmark %q is none of %v", name, names)
			}
			copied := *s
			b := &benchRun{settings: &copied, log: log, w: cmd.OutOrStdout(), attempts: *attempts, seconds: *seconds}
			b.sayf("%s: %s", name, one.what)
			start := time.Now()
			if err := one.run(cmd.Context(), b); err != nil {
				return fmt.Errorf("benchmark %s: %w", name, err)
			}
			b.sayf("  (%s in all)\n", time.Since(start).Round(time.Second))
		}
		return nil
	}
	return cmd
}

// running opens a throw-away flow and runs it until the returned function is called.
func (b *benchRun) running(ctx context.Context, run stages, more ...named) (*flow, func() error, error) {
	f, err := open(ctx, b.settings, run, true, b.log)
	if err != nil {
		return nil, nil, err
	}
	for _, part := range more {
		f.parts = append(f.parts, part)
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()
	return f, func() error {
		stop()
		err := <-ended
		f.close()
		return err
	}, nil
}

// quantiles sorts durations and gives p50, p99 and the largest.
func quantiles(d []time.Duration) (p50, p99, most time.Duration) {
	if len(d) == 0 {
		return 0, 0, 0
	}
	slices.Sort(d)
	at := func(q float64) time.Duration { return d[min(len(d)-1, int(q*float64(len(d))))] }
	return at(.5), at(.99), d[len(d)-1]
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/kube"
	"github.com/spillway-io/spillway/ingest/collect/slurm"
	"github.com/spillway-io/spillway/ingest/collect/topology"
	"github.com/spillway-io/spillway/internal/progress"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/event"
)

func replayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay FILE...",
		Short: "Feed recorded source output through the whole flow in a throw-away store and print the verdicts",
		Long: "Feed recorded output of Slurm, lists and watches of a Kubernetes API server, and topology files through collectors,\n" +
			"Kafka, ClickHouse and the passes, in a store that is removed afterwards, and print one line, or with -o json one\n" +
			"JSON object, an attempt.\n" +
			"Files may be gzipped; what each holds is told by its content. Nothing is printed unless every file could be used.",
		Example: "  spillway replay squeue.json topology.yaml -o json\n  spillway replay run1/*.json.gz run1/topology.yaml\n" +
			"  spillway replay --cluster k8s nodes.json pods.json workloads.json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("name at least one recorded file: try `spillway replay squeue.json topology.yaml`")
			}
			return nil
		},
	}
	settings := configFlag(cmd)
	var output string
	outputFlag(cmd, &output)
	cluster := cmd.Flags().String("cluster", "", "the cluster's name; empty = the one the files tell")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkOutput(output, "table", "json"); err != nil {
			return err
		}
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
		// Everything is read before an engine starts: a file that cannot be used costs no time and prints no verdict.
		var records gathered
		if err := readRecorded(cmd.Context(), args, *cluster, s, log, &records); err != nil {
			return err
		}
		f, err := open(cmd.Context(), s, stages{load: true, enrich: true, serve: true}, true, log)
		if err != nil {
			return err
		}
		defer f.close()
		outcomes, err := replay(cmd.Context(), f, records, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return printOutcomes(cmd.OutOrStdout(), outcomes, output)
	}
	return cmd
}

// gathered keeps what recorded files say until all of them are read.
type gathered []event.Record

// Emit implements collect.Emitter.
func (g *gathered) Emit(_ context.Context, records ...event.Record) error {
	*g = append(*g, records...)
	return nil
}

// readRecorded sorts files by what they hold and reads them: a node list is read by both collectors.
func readRecorded(ctx context.Context, paths []string, cluster string, s *settings, log *slog.Logger, out *gathered) error {
	var jobs, lists, maps []string
	for _, path := range paths {
		kind, err := slurm.Recognize(path)
		if err != nil {
			return &exitError{exitNotFound, err}
		}
		kubernetes, err := kube.Recognize(path)
		if err != nil {
			return &exitError{exitNotFound, err}
		}
		topo, err := topology.Recognize(path)
		if err != nil {
			return &exitError{exitNotFound, err}
		}
		switch {
		case kind != slurm.KindOther:
			jobs = append(jobs, path)
		case kubernetes:
			lists = append(lists, path)
			continue
		}
		if topo {
			maps = append(maps, path)
		}
		if kind == slurm.KindOther && !topo {
			return fmt.Errorf("replay %s: it is nothing that replay knows: recorded JSON of squeue, sacct, scontrol or slurmrestd, "+
				"jobcomp messages, prolog environments, lists or watches of Kubernetes, or a topology (see `spillway replay --help`)", path)
		}
	}
	config := s.Collect.Slurm
	config.Cluster = cluster
	if err := slurm.ReplayFiles(ctx, jobs, slurm.ReplayOptions{Config: config}, out); err != nil {
		return err
	}
	kubernetes := s.Collect.Kubernetes
	kubernetes.Cluster = cluster
	if err := kube.ReplayFiles(ctx, lists, kube.ReplayOptions{Config: kubernetes, Log: log}, out); err != nil {
		return err
	}
	if cluster == "" {
		var err error
		if cluster, err = onlyCluster(*out); err != nil {
			return err
		}
	}
	if len(maps) == 0 {
		return nil
	}
	return topology.ReplayFiles(ctx, maps, topology.ReplayOptions{Cluster: cluster}, out)
}

// onlyCluster is the cluster that all records are of: a topology file does not say whose it is.
func onlyCluster(records []event.Record) (string, error) {
	found := ""
	for _, r := range records {
		name, _, _ := strings.Cut(r.RecordKey(), "/")
		if found != "" && found != name {
			return "", usageError("the files are of clusters %s and %s: replay one at a time, or name it with --cluster", found, name)
		}
		found = name
	}
	if found == "" {
		return "", usageError("no file names its cluster: add one with jobs or nodes, or name it with --cluster")
	}
	return found, nil
}

// replay sends the records through the running flow and waits until all are judged.
func replay(ctx context.Context, f *flow, records gathered, stderr io.Writer) ([]read.Outcome, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()
	var emit collect.Emitter = f.producer
	const chunk = 1000
	// A recording of a few jobs is judged before a bar could be read.
	bar := progress.New(progress.Options{
		Out: stderr, What: "replay", Total: int64(len(records)), Noun: "records", Quiet: len(records) < 20*chunk,
	})
	defer bar.Done()
	for i := 0; i < len(records); i += chunk {
		if err := emit.Emit(ctx, records[i:min(i+chunk, len(records))]...); err != nil {
			return nil, err
		}
		bar.Add(int64(min(chunk, len(records)-i)))
	}
	if err := f.judged(ctx, len(records), ended); err != nil {
		return nil, err
	}
	outcomes, err := f.reader.Outcomes(ctx, 10_000_000)
	stop()
	return outcomes, errors.Join(err, <-ended)
}

// errRefused says that records broke the contract: all others are judged.
var errRefused = errors.New("records could not be used: the collector that read them broke the contract, please report it")

// judged waits until as many records as were sent are loaded, or dead, and no pass is behind.
func (f *flow) judged(ctx context.Context, sent int, ended <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return errors.Join(errors.New("the flow ended before everything was judged: the lines above say why"), err)
		case <-time.After(50 * time.Millisecond):
		}
		status, err := f.reader.Status(ctx)
		if err != nil {
			return err
		}
		loaded := uint64(0)
		for _, t := range status.Raw {
			loaded += t.Rows
		}
		if loaded >= uint64(sent) && len(status.Unjudged) == 0 {
			for _, d := range status.DeadLetters {
				return fmt.Errorf("%w: %d of %s: %s", errRefused, d.Records, d.Topic, d.Reason)
			}
			return nil
		}
	}
}

func printOutcomes(w io.Writer, outcomes []read.Outcome, output string) error {
	if output == "json" {
		enc := json.NewEncoder(w)
		for _, o := range outcomes {
			if err := enc.Encode(o); err != nil {
				return err
			}
		}
		return nil
	}
	t := table{head: []string{"CLUSTER", "JOB", "ATTEMPT", "START", "GPUS", "NODES", "OUTCOME", "CAUSE", "USED", "MIN", "INTENT", "MET"}}
	for _, o := range outcomes {
		outcome, cause, intent, met := "no gpus", "-", "-", "-"
		if o.Outcome != nil {
			outcome = *o.Outcome
		}
		if o.Cause != nil {
			cause = *o.Cause
		}
		if o.Intent != nil {
			intent = *o.Intent
		}
		if o.IntentMet != nil {
			met = fmt.Sprint(*o.IntentMet)
		}
		t.add(o.Cluster, o.JobID, fmt.Sprint(o.Attempt), cellTime(o.Start, unknown), cellUint(o.GPUs), fmt.Sprint(len(o.Nodes)), outcome, cause,
			cellUint(o.DomainsUsed), cellUint(o.DomainsMin), intent, met)
	}
	t.print(w)
	fmt.Fprintf(w, "\n%d attempts\n", len(outcomes))
	return nil
}

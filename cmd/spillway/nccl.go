package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/ingest/collect/nccl"
	"github.com/spillway-io/spillway/schemas/event"
)

func ncclCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nccl FILE...",
		Short: "Send what nccl-tests measured, and print it",
		Long: "Read outputs of nccl-tests, with lines of NCCL_DEBUG=INFO between or without, or its reports (-J), send each run to Kafka\n" +
			"as a benchmark record and print what its largest messages reached. The nodes' NVLink domains are those of when the file was written.\n" +
			"Files that keep coming are better watched: collect.nccl. Nothing is sent unless every file could be read.",
		Example: "  spillway nccl -c spillway.yaml --cluster alpha all_reduce.log\n  spillway nccl --cluster alpha --dry-run -o json *.log",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("name at least one output of nccl-tests: try `spillway nccl all_reduce.log --cluster alpha`")
			}
			return nil
		},
	}
	settings := configFlag(cmd)
	var output string
	outputFlag(cmd, &output)
	cluster := cmd.Flags().String("cluster", "", "whose GPUs were measured; empty = collect.nccl.cluster")
	short := cmd.Flags().Bool("short-names", false, "cut host names at the first dot")
	dry := cmd.Flags().Bool("dry-run", false, "send nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkOutput(output, "table", "json"); err != nil {
			return err
		}
		s, err := settings()
		if err != nil {
			return err
		}
		if *cluster == "" {
			*cluster = s.Collect.NCCL.Cluster
		}
		if *cluster == "" || strings.Contains(*cluster, "/") {
			return usageError("cluster %q is none: name the cluster with --cluster as the scheduler does", *cluster)
		}
		var records []*event.Benchmark
		for _, path := range args {
			read, err := nccl.ReadFile(path, *cluster, *short || s.Collect.NCCL.ShortNames)
			if errors.Is(err, os.ErrNotExist) {
				return &exitError{exitNotFound, err}
			}
			if err != nil {
				return err
			}
			records = append(records, read...)
		}
		if !*dry {
			if err := sendBenchmarks(cmd, s, records); err != nil {
				return err
			}
		}
		return printBenchmarks(cmd.OutOrStdout(), records, output)
	}
	return cmd
}

// sendBenchmarks sends records to the Kafka of the other stages.
func sendBenchmarks(cmd *cobra.Command, s *settings, records []*event.Benchmark) error {
	if len(s.Engine.Kafka.Brokers) == 0 {
		return usageError("engine.kafka.brokers is empty: name the Kafka of the other stages, or print only with --dry-run")
	}
	s.Telemetry.LogLevel = "warn"
	log, err := logger(s, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	s.Collect.Sources = nil
	f, err := open(cmd.Context(), s, stages{collect: true}, false, log)
	if err != nil {
		return err
	}
	defer f.close()
	return nccl.Emit(cmd.Context(), f.producer, records)
}

// benchmarkLine is what is printed of a run.
type benchmarkLine struct {
	Cluster        string  `json:"cluster"`
	RunID          string  `json:"run_id"`
	Operation      string  `json:"operation"`
	Nodes          int     `json:"nodes"`
	GPUs           uint32  `json:"gpus"`
	JoinedByNVLink *bool   `json:"multi_node_nvlink"`
	LargestBytes   uint64  `json:"largest_bytes"`
	BusGBs         float64 `json:"bus_GBps"` // of the largest message, the better placement
	Problem        string  `json:"problem"`
}

func lineOf(b *event.Benchmark) benchmarkLine {
	l := benchmarkLine{
		Cluster: b.Cluster, RunID: b.RunId, Operation: b.Operation, Nodes: len(b.Node), JoinedByNVLink: b.MultiNodeNvlink, Problem: b.Failure,
	}
	for _, n := range b.NodeGpus {
		l.GPUs += n
	}
	for i, size := range b.SizeBytes {
		if size > l.LargestBytes {
			l.LargestBytes, l.BusGBs = size, 0
		}
		if size == l.LargestBytes {
			l.BusGBs = max(l.BusGBs, b.BusBytesPerSecond[i]/1e9)
		}
	}
	switch {
	case l.Problem != "":
	case b.GetWrongTotal() > 0:
		l.Problem = fmt.Sprintf("%d values were wrong", b.GetWrongTotal())
	case b.Truncated:
		l.Problem = "the output has no end"
	case b.Passed != nil && !*b.Passed:
		l.Problem = "below the threshold it was given"
	}
	return l
}

func printBenchmarks(w io.Writer, records []*event.Benchmark, output string) error {
	t := table{head: []string{"RUN", "OPERATION", "NODES", "GPUS", "NVLINK", "LARGEST", "BUS GB/S", "PROBLEM"}}
	enc := json.NewEncoder(w)
	for _, r := range records {
		l := lineOf(r)
		if output == "json" {
			if err := enc.Encode(l); err != nil {
				return err
			}
			continue
		}
		joined, problem := "-", "-"
		if l.JoinedByNVLink != nil {
			joined = fmt.Sprint(*l.JoinedByNVLink)
		}
		if l.Problem != "" {
			problem = l.Problem
		}
		t.add(l.RunID[:8], l.Operation, strconv.Itoa(l.Nodes), strconv.FormatUint(uint64(l.GPUs), 10), joined,
			strconv.FormatUint(l.LargestBytes, 10), strconv.FormatFloat(l.BusGBs, 'f', 1, 64), problem)
	}
	if output != "json" {
		t.print(w)
	}
	return nil
}

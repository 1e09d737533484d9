package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/internal/progress"
	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/advise/policysim"
	"github.com/spillway-io/spillway/query/read"
)

func simulateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "simulate", Short: "What placement policies would do with a mix of jobs: waits, spills, lost GPU-hours", Args: noArgs,
		Long: "Run every placement policy over the same jobs, the same node failures and the same end estimates, seed by seed, and\n" +
			"compare them. Jobs are drawn from a mix (nvl72, helios, seren), read from a CSV of your own history (columns\n" +
			"job_id,submit,start,end,gpus,nodes,type,state; times in seconds), or taken from a running service: what would\n" +
			"another policy have done last week? The same arguments give the same figures.\n" +
			"The source simulate of collect.sources is something else: it tells of a fleet that is not there.",
		Example: "  spillway simulate --load 0.8,0.9 --seeds 8 --plot waits.svg\n  spillway simulate --trace jobs.csv.gz --racks 32\n" +
			"  spillway simulate --from-history --since 7d",
	}
	c := asking(cmd)
	cfg := policysim.DefaultConfig()
	f := cmd.Flags()
	f.StringVar(&cfg.Mix, "mix", cfg.Mix, "jobs: nvl72, helios or seren")
	trace := f.String("trace", "", "jobs from this CSV instead, gzipped or not")
	history := f.Bool("from-history", false, "jobs, racks and nodes from a running service instead")
	since := f.String("since", "7d", "how much of its history: a duration such as 90m, 24h or 7d")
	f.IntVar(&cfg.Racks, "racks", cfg.Racks, "NVLink domains")
	f.IntVar(&cfg.NodesPerRack, "nodes", cfg.NodesPerRack, "nodes of each")
	f.IntVar(&cfg.GPUsPerNode, "gpus-per-node", cfg.GPUsPerNode, "GPUs of a node")
	f.IntVar(&cfg.Spares, "spares", cfg.Spares, "nodes of each domain that gangs plan without")
	f.IntVar(&cfg.Jobs, "jobs", cfg.Jobs, "jobs drawn for each seed")
	loads := f.Float64Slice("load", []float64{cfg.Load}, "work over healthy capacity; several with commas")
	seeds := f.Int("seeds", 4, "how many seeds")
	first := f.Uint64("first-seed", 1, "the first of them")
	mtbf := f.Duration("node-mtbf", time.Duration(cfg.MTBF)*time.Second, "mean time between failures of a node; 0 = none")
	repair := f.Duration("repair", time.Duration(cfg.Repair)*time.Second, "mean time to repair")
	f.Float64Var(&cfg.EstimateError, "estimate-error", cfg.EstimateError, "sigma of the error of end estimates, of the logarithm")
	f.Float64Var(&cfg.Urgent, "urgent", cfg.Urgent, "share of jobs with a higher priority")
	f.Float64Var(&cfg.Links.Domain, "domain-gbps", cfg.Links.Domain, "GB/s per GPU and direction inside a domain")
	f.Float64Var(&cfg.Links.Cluster, "cluster-gbps", cfg.Links.Cluster, "and between domains")
	only := f.StringSlice("policies", nil, "only these; empty = all")
	curve := f.Bool("trade-off", false, "the bounded policy with patience from little to much instead")
	plot := f.String("plot", "", "write the picture to this file (SVG)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkOutput(c.output, c.formats...); err != nil {
			return err
		}
		back, err := parseBack(*since)
		if err != nil {
			return err
		}
		if ext := strings.ToLower(filepath.Ext(*plot)); slices.Contains([]string{".png", ".jpg", ".jpeg", ".pdf"}, ext) {
			return usageError("--plot %s: the picture is SVG: name it so", *plot)
		}
		cfg.MTBF, cfg.Repair = mtbf.Seconds(), repair.Seconds()
		stderr := cmd.ErrOrStderr()
		if err := jobsFor(cmd.Context(), &cfg, c, *trace, *history, back, stderr); err != nil {
			return err
		}
		if len(cfg.Trace) > 0 {
			*loads = []float64{0} // a history has the load it had
			if n := cfg.Cut(); n > 0 {
				fmt.Fprintf(stderr, "%d of %d jobs are larger than %d racks of %d nodes without %d spares each, and are cut to that: see --racks, --nodes and --spares\n",
					n, len(cfg.Trace), cfg.Racks, cfg.NodesPerRack, cfg.Spares)
			}
		}
		results, err := simulateAll(cmd.Context(), cfg, *only, *curve, *loads, *seeds, *first, stderr)
		if err != nil {
			return err
		}
		if *plot != "" {
			if err := writeFile(*plot, func(w io.Writer) error { return policysim.WritePlot(w, results) }); err != nil {
				return err
			}
		}
		w := cmd.OutOrStdout()
		if c.output == "json" {
			return printJSON(w, policysim.Summarise(results))
		}
		fmt.Fprintln(w, "waits in minutes; lost, spill, harmful and used in percent; ratios paired seed by seed, with their 95 % interval")
		base := "slurm-block"
		if !slices.ContainsFunc(results, func(r policysim.Result) bool { return r.Policy == base }) {
			base = results[0].Policy
		}
		return policysim.WriteTable(w, results, base)
	}
	return cmd
}

// jobsFor fills in where the jobs come from.
func jobsFor(ctx context.Context, cfg *policysim.Config, c *client, trace string, history bool, since time.Duration, stderr io.Writer) error {
	switch {
	case trace != "" && history:
		return usageError("--trace and --from-history: give one of them")
	case trace != "":
		file, err := os.Open(trace)
		if err != nil {
			return &exitError{exitNotFound, fmt.Errorf("open the trace: %w", err)}
		}
		defer file.Close()
		jobs, left, err := policysim.ReadTrace(file)
		if err != nil {
			return err
		}
		if left > 0 {
			fmt.Fprintf(stderr, "%d rows without a start, an end or GPUs are left out\n", left)
		}
		cfg.Trace = jobs
	case history:
		return historyOf(ctx, cfg, c, since, stderr)
	}
	if (trace != "") && len(cfg.Trace) == 0 {
		return fmt.Errorf("%s holds no job that ran", trace)
	}
	return nil
}

// mostRuns are taken from a history; the service gives no more at once.
const mostRuns = 200_000

// historyOf takes jobs and the shape of the fleet from a running service.
func historyOf(ctx context.Context, cfg *policysim.Config, c *client, since time.Duration, stderr io.Writer) error {
	var runs read.Runs
	from := time.Now().Add(-since).UTC().Format(time.RFC3339)
	output := c.output
	defer func() { c.output = output }()
	if err := c.get(ctx, "/v1/runs", url.Values{"since": {from}, "limit": {strconv.Itoa(mostRuns)}}, &runs); err != nil {
		return err
	}
	if len(runs.Runs) == 0 {
		return &exitError{exitNotFound, fmt.Errorf("no run of the last %s has ended: widen --since", since)}
	}
	if !runs.Complete {
		fmt.Fprintf(stderr, "more than %d runs: those submitted after %s are left out: shorten --since, or choose one cluster with --cluster\n",
			mostRuns, runs.Runs[len(runs.Runs)-1].Submit.UTC().Format(time.RFC3339))
	}
	var domains read.Domains
	if err := c.get(ctx, "/v1/domains", url.Values{}, &domains); err != nil {
		return err
	}
	cluster := runs.Runs[0].Cluster
	racks, nodes, per, all := 0, 0, 0, 0
	for _, d := range domains.Domains {
		if d.Cluster == cluster && d.Nodes > 0 {
			racks, all = racks+1, all+int(d.Nodes)
			nodes, per = max(nodes, int(d.Nodes)), max(per, int(d.GPUs)/int(d.Nodes))
		}
	}
	if racks > 0 && per > 0 {
		cfg.Racks, cfg.NodesPerRack, cfg.GPUsPerNode = racks, nodes, per
		cfg.Spares = min(cfg.Spares, nodes-1)
		if more := racks*nodes - all; 10*more > all {
			fmt.Fprintf(stderr, "its domains differ in size: %d nodes are simulated where there are %d, each domain as large as the largest; --trace with --racks and --nodes takes what you say\n",
				racks*nodes, all)
		}
	}
	others := 0
	start := runs.Runs[0].Submit
	for _, r := range runs.Runs {
		if r.Cluster != cluster {
			others++
			continue
		}
		j := policysim.Job{
			ID: r.JobID + "." + strconv.Itoa(int(r.Attempt)), Submit: int64(r.Submit.Sub(start).Seconds()), GPUs: int32(r.GPUs),
			Run: max(1, int64(r.End.Sub(r.Start).Seconds())), Traffic: advise.Traffic{Share: advise.DefaultConfig().Classes["train"].Share},
		}
		if r.ExpectedEnd != nil {
			j.Estimate = max(1, int64(r.ExpectedEnd.Sub(r.Start).Seconds()))
		}
		cfg.Trace = append(cfg.Trace, j)
	}
	fmt.Fprintf(stderr, "%d runs of cluster %s on %d domains of up to %d nodes; how they talk is not known and taken for the worst of both patterns\n",
		len(cfg.Trace), printable(cluster), cfg.Racks, cfg.NodesPerRack)
	if others > 0 {
		fmt.Fprintf(stderr, "%d runs of other clusters are left out: choose one with --cluster\n", others)
	}
	return nil
}

func simulateAll(ctx context.Context, cfg policysim.Config, only []string, curve bool, loads []float64, seeds int, first uint64, stderr io.Writer) ([]policysim.Result, error) {
	if seeds < 1 {
		return nil, usageError("--seeds %d: give at least 1", seeds)
	}
	numbers := make([]uint64, seeds)
	for i := range numbers {
		numbers[i] = first + uint64(i)
	}
	policies := policysim.Policies(&cfg)
	if curve {
		policies = policysim.TradeOff(&cfg)
	}
	var names []string
	for _, p := range policies {
		names = append(names, p.Name)
	}
	for _, name := range only {
		if !slices.Contains(names, name) {
			return nil, usageError("policy %q is none of %s", name, strings.Join(names, ", "))
		}
	}
	if len(only) > 0 {
		policies = slices.DeleteFunc(policies, func(p policysim.Policy) bool { return !slices.Contains(only, p.Name) })
	}
	bar := progress.New(progress.Options{Out: stderr, What: "simulate", Total: int64(len(loads) * len(policies) * seeds), Noun: "runs"})
	defer bar.Done()
	var results []policysim.Result
	for _, load := range loads {
		cfg.Load = load
		if err := cfg.Validate(); err != nil {
			return nil, &exitError{exitUsage, err}
		}
		one, err := policysim.Run(ctx, cfg, policies, numbers, func() { bar.Add(1) })
		if err != nil {
			return nil, err
		}
		results = append(results, one...)
	}
	return results, nil
}

// writeFile writes a file and says which one failed.
func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := write(file); err != nil {
		file.Close()
		return fmt.Errorf("write %s: %w", path, err)
	}
	return file.Close()
}

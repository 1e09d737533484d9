package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/api"
	"github.com/spillway-io/spillway/query/read"
)

func adviseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "advise --gpus N", Short: "Where a job of N GPUs should go, when, at what predicted cost, and why", Args: noArgs,
		Long: "Ask the placement advisor of a running service. It reserves nothing: two who ask may be told the same, but for who\n" +
			"asks with --hold where short holds are turned on. Without advice the reason is printed and the exit code is 1 (2 when\n" +
			"the request itself is wrong).",
		Example: "  spillway advise --gpus 64 --class train --hours 4\n  spillway advise --gpus 256 --mode preferred --segment 16 -o json\n" +
			"  spillway advise --gpus 64 --hold 30s\n  spillway advise --gpus 64 --as-of 2026-11-29T18:00:00Z",
	}
	c := asking(cmd)
	r := &advise.Request{}
	f := cmd.Flags()
	f.IntVar(&r.GPUs, "gpus", 0, "GPUs of the job (required)")
	f.StringVar(&r.Class, "class", "", "kind of job: one of advise.classes, or a service class that one of them stands for")
	mode := f.String("mode", "", "required, preferred or unconstrained; empty = as the class says")
	f.IntVar(&r.SegmentNodes, "segment", 0, "nodes that must stay together; 0 = none asked")
	f.IntVar(&r.MaxDomains, "max-domains", 0, "most domains it may be spread over; 0 = any number")
	hours := f.Float64("hours", 0, "expected run time; 0 = as earlier runs of this user and name, if any")
	wait := f.Duration("max-wait", 0, "longest wait for a better shape, 0s = none at all; left out = no bound of your own")
	f.StringVar(&r.Tenant, "tenant", "", "whose reserved nodes may be used, and for which account advise.tenants is looked up")
	f.StringVar(&r.Queue, "queue", "", "queue or Slurm partition that the job is for, where its tenant may not use all")
	f.StringVar(&r.User, "user", "", "whose earlier runs to go by")
	f.StringVar(&r.Name, "name", "", "name of those runs")
	f.StringSliceVar(&r.ExcludeNodes, "exclude", nil, "nodes not to use")
	f.BoolVar(&r.ExclusiveDomain, "exclusive-domain", false, "nobody else in its domains")
	f.StringVar(&r.GPUModel, "model", "", "GPU model of its nodes; empty = any")
	f.IntVar(&r.GPUsPerNode, "gpus-per-node", 0, "GPUs of each of its nodes; 0 = all that a node has")
	deadline := f.String("deadline", "", "when it must have ended, RFC 3339")
	room := f.Bool("make-room", false, "say who would have to make room")
	priority := f.Int64("priority", 0, "with --make-room: its priority; jobs of a higher one, or of one that nobody tells, stay; left out = any may be named")
	hold := f.Duration("hold", 0, "keep the nodes of a start now for so long, in whole seconds, from others who ask; 0s = not at all")
	f.StringVar(&r.RequestID, "request-id", "", "with --hold: a name to ask again by, which then holds nothing twice; empty = one that is made up")
	release := f.String("release", "", "end the hold of this id, and ask nothing")
	asOf := f.String("as-of", "", "ask about a past instant, RFC 3339, as far as is known of it today")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *release != "" {
			if err := c.ask(cmd.Context(), http.MethodPost, "/v1/holds/"+url.PathEscape(*release)+"/release", nil, &struct{}{}, noAdvice); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "hold %s is over\n", printable(*release))
			return nil
		}
		if r.GPUs < 1 {
			return usageError("say how many GPUs: spillway advise --gpus 64")
		}
		r.Mode, r.DurationS, r.Cluster = advise.Mode(*mode), int64(*hours*3600), c.cluster
		if *room {
			r.Preempt = "plan"
		}
		if cmd.Flags().Changed("max-wait") {
			r.MaxWaitS = new(int64(wait.Seconds()))
		}
		if cmd.Flags().Changed("priority") {
			r.Priority = priority
		}
		if r.HoldS = int64(hold.Seconds()); r.HoldS != 0 && r.RequestID == "" {
			r.RequestID = rand.Text()
		}
		for _, at := range []struct {
			flag, text string
			into       **time.Time
		}{{"deadline", *deadline, &r.Deadline}, {"as-of", *asOf, &r.AsOf}} {
			if at.text == "" {
				continue
			}
			t, err := time.Parse(time.RFC3339, at.text)
			if err != nil {
				return usageError("--%s %q: write it as 2026-11-29T18:00:00Z", at.flag, at.text)
			}
			*at.into = &t
		}
		var answer api.Advice
		if err := c.post(cmd.Context(), "/v1/advice", r, &answer); err != nil {
			return err
		}
		if c.output == "json" {
			return printJSON(cmd.OutOrStdout(), answer)
		}
		printAdvice(cmd.OutOrStdout(), &answer, c.racks(cmd.Context(), answer.Cluster))
		return nil
	}
	return cmd
}

// racks gives what people call the domains of a cluster, by id; nothing where it cannot be had now.
func (c *client) racks(ctx context.Context, cluster string) map[string]string {
	var domains read.Domains
	if c.get(ctx, "/v1/domains", url.Values{"cluster": {cluster}}, &domains) != nil {
		return nil
	}
	names := map[string]string{}
	for _, d := range domains.Domains {
		if d.Label != nil {
			names[d.Domain] = *d.Label
		}
	}
	return names
}

// post asks one question with a body and decodes its answer; a refusal with a remedy names it.
func (c *client) post(ctx context.Context, path string, body, into any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the question: %w", err)
	}
	return c.ask(ctx, http.MethodPost, path, raw, into, noAdvice)
}

// noAdvice turns an answer that gives no advice into an error with the exit code that fits.
func noAdvice(base string, resp *http.Response, body []byte) error {
	var none api.NoAdvice
	if json.Unmarshal(body, &none) != nil || none.Code == "" {
		return refusal(base, resp, body)
	}
	err := fmt.Errorf("no advice (%s): %s: %s", none.Code, printable(none.Detail), printable(none.Remedy))
	if len(none.Legal) > 0 {
		err = fmt.Errorf("%w: these would be answered: %v", err, none.Legal)
	}
	if len(none.Counts) > 0 {
		err = fmt.Errorf("%w (%s)", err, printable(counted(none.Counts)))
	}
	if m := none.MakeRoom; m != nil {
		jobs := []string{}
		for _, move := range m.Moves {
			jobs = append(jobs, move.Job)
		}
		err = fmt.Errorf("%w; room for %d nodes in %s would be made by moving or ending the jobs %s", err, m.Nodes, printable(m.Opens), printable(strings.Join(jobs, ", ")))
		if m.NotBefore != nil {
			err = fmt.Errorf("%w, not before %s", err, m.NotBefore.Format(time.RFC3339))
		}
	}
	switch none.Status {
	case http.StatusUnprocessableEntity:
		return &exitError{exitUsage, err}
	case http.StatusNotFound:
		return &exitError{exitNotFound, err}
	}
	return err
}

// counted lists how many nodes each reason holds for.
func counted(counts []advise.Count) string {
	parts := []string{}
	for _, c := range counts {
		parts = append(parts, fmt.Sprintf("%d nodes %s", c.Nodes, c.Reason))
	}
	return strings.Join(parts, ", ")
}

// printAdvice prints an answer for people; racks names domains.
func printAdvice(w io.Writer, a *api.Advice, racks map[string]string) {
	name := func(id string) string {
		if label := racks[id]; label != "" {
			return label
		}
		return id
	}
	fmt.Fprintf(w, "%s: %s\n", a.Recommendation, printable(strings.Join(a.Why, "; ")))
	if a.NotNow != nil {
		fmt.Fprintf(w, "not now in the best shape: %s\n", printable(a.NotNow.Detail))
		if len(a.NotNow.Counts) > 0 {
			fmt.Fprintf(w, "of all nodes: %s\n", printable(counted(a.NotNow.Counts)))
		}
	}
	fmt.Fprintln(w)
	t := table{head: []string{"RANK", "START", "NODES BY DOMAIN", "GB/S A GPU", "SLOWDOWN", "LOST GPU-H", "BASIS"}}
	for _, c := range a.Candidates {
		var parts []string
		for _, d := range c.Domains {
			parts = append(parts, fmt.Sprintf("%s:%d", clip(name(d.ID), 12), d.Nodes))
		}
		start := c.Start
		if c.WaitS > 0 {
			start = "in " + (time.Duration(c.WaitS) * time.Second).String()
		}
		slow, lost := "not predicted", "-"
		if s := c.Predicted.Slowdown; s != nil {
			slow = fmt.Sprintf("%.3g to %.3g", s[0], s[1])
		}
		if l := c.LostGPUHours; l != nil {
			lost = fmt.Sprintf("%.3g to %.3g", l[0], l[1])
		}
		t.add(fmt.Sprint(c.Rank), start, strings.Join(parts, " "), fmt.Sprintf("%.4g", c.Predicted.BwGBps), slow, lost, c.Predicted.Basis)
	}
	t.print(w)
	for _, c := range a.Candidates {
		if len(c.WaitsFor) > 0 {
			fmt.Fprintf(w, "rank %d waits for jobs %s, by the end estimates\n", c.Rank, printable(strings.Join(c.WaitsFor, ", ")))
		}
		if late, err := time.Parse(time.RFC3339, c.StartP90); err == nil {
			start, _ := time.Parse(time.RFC3339, c.Start)
			fmt.Fprintf(w, "rank %d starts in %s if each job there takes as long as its 90th percentile\n", c.Rank, time.Duration(c.WaitS)*time.Second+late.Sub(start))
		} else if c.WaitS > 0 {
			fmt.Fprintf(w, "rank %d may start later than that, and nobody can say how much: a job there has no limit, has outlived it, or has too few earlier runs\n", c.Rank)
		}
		if len(c.Domains) > 1 {
			fmt.Fprintf(w, "rank %d talks across over %s\n", c.Rank, printable(c.Predicted.BwBasis))
		}
		if len(c.Evicts) > 0 {
			fmt.Fprintf(w, "rank %d evicts the probe jobs %s\n", c.Rank, printable(strings.Join(c.Evicts, ", ")))
		}
		if c.MissesDeadline {
			fmt.Fprintf(w, "rank %d misses the deadline\n", c.Rank)
		}
	}
	if m := a.MakeRoom; m != nil {
		cost := fmt.Sprintf("%.1f GPU-hours", m.CostGPUHours)
		if !m.CostKnown {
			cost = "a cost that is not known (" + cost + " if nothing was saved and each restart takes ten minutes)"
		}
		fmt.Fprintf(w, "\nroom for %d nodes in %s, for %s:\n", m.Nodes, printable(name(m.Opens)), cost)
		for _, move := range m.Moves {
			to := "ends and queues again"
			if move.To != "" {
				to = "moves to " + name(move.To)
			}
			if move.NotBefore != nil {
				to += ", not before " + move.NotBefore.Format(time.RFC3339)
			}
			fmt.Fprintf(w, "  job %s, %d nodes, %s\n", printable(move.Job), move.Nodes, printable(to))
		}
	}
	fmt.Fprintf(w, "\nslurm: %s\n", printable(strings.Join(a.Slurm, " ")))
	for _, k := range slices.Sorted(maps.Keys(a.Kueue)) {
		fmt.Fprintf(w, "kueue: %s: %s\n", printable(k), printable(a.Kueue[k]))
	}
	if a.Hold != nil {
		fmt.Fprintf(w, "held until %s: %d nodes; end it with spillway advise --release %s\n", a.Hold.Until.Format(time.RFC3339), len(a.Hold.Nodes), a.Hold.ID)
	}
	if at := a.Snapshot.AsOf; at != nil {
		fmt.Fprintf(w, "as of %s, as far as is known of it today; domains known of %.1f %% of nodes, ends of %.1f %% of those held\n", at.Format(time.RFC3339),
			100*a.Snapshot.Coverage, 100*a.Snapshot.Estimates)
		return
	}
	stale, age := "", "of unknown age"
	if a.Snapshot.AgeMS != nil {
		age = fmt.Sprintf("%d ms old", *a.Snapshot.AgeMS)
	}
	if a.Snapshot.Stale {
		stale = ", which is stale"
	}
	fmt.Fprintf(w, "good for %d s; advice %s, picture %s%s, domains known of %.1f %% of nodes, ends of %.1f %% of those held\n", a.ExpiresIn, a.AdviceID,
		age, stale, 100*a.Snapshot.Coverage, 100*a.Snapshot.Estimates)
}

package main

import (
	"cmp"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/query/read"
)

func domainsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "domains [DOMAIN]", Short: "Capacity of every NVLink domain, or one domain's nodes and jobs",
		Args: cobra.MaximumNArgs(1),
		Example: "  spillway domains\n  spillway domains rack01 --at 2026-11-29T14:00:00Z\n" +
			"  spillway domains rack01 --since 2026-11-22T00:00:00Z --until 2026-11-29T00:00:00Z",
	}
	c := asking(cmd)
	at := cmd.Flags().String("at", "", "as it stood at this moment (RFC 3339); empty = now")
	since := cmd.Flags().String("since", "", "who held one domain's GPUs from this moment on (RFC 3339)")
	until := cmd.Flags().String("until", "", "with --since: up to this moment; empty = now")
	cmd.MarkFlagsMutuallyExclusive("at", "since")
	cmd.MarkFlagsMutuallyExclusive("at", "until")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := url.Values{}
		if *since != "" || *until != "" {
			if len(args) != 1 {
				return usageError("--since and --until are about one domain: try `spillway domains rack01 --since %s`", cmp.Or(*since, *until))
			}
			return occupancy(cmd, c, url.Values{"domain": {args[0]}, "since": {*since}, "until": {*until}, "limit": {"100000"}})
		}
		if *at != "" {
			q.Set("at", *at)
		}
		if len(args) == 1 {
			return oneDomain(cmd, c, args[0], q)
		}
		var answer read.Domains
		if err := c.get(cmd.Context(), "/v1/domains", q, &answer); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		if c.output == "json" {
			return printJSON(w, answer)
		}
		t := table{head: []string{"CLUSTER", "DOMAIN", "NODES", "USABLE", "WHOLLY FREE", "GPUS", "HELD", "PROBE", "FREE"}}
		for _, d := range answer.Domains {
			t.add(d.Cluster, d.Name(), fmt.Sprint(d.Nodes), fmt.Sprint(d.NodesUsable), fmt.Sprint(d.NodesFree),
				fmt.Sprint(d.GPUsUsable), fmt.Sprint(d.GPUsHeld), fmt.Sprint(d.GPUsProbe), fmt.Sprint(d.GPUsFree))
		}
		t.print(w)
		footer(w, answer.Freshness)
		return nil
	}
	return cmd
}

func oneDomain(cmd *cobra.Command, c *client, id string, q url.Values) error {
	var answer read.DomainAt
	if err := c.get(cmd.Context(), "/v1/domains/"+url.PathEscape(id), q, &answer); err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if c.output == "json" {
		return printJSON(w, answer)
	}
	if d := answer.Capacity; d != nil {
		fmt.Fprintf(w, "%s of %s: %d nodes, %d GPUs usable, %d held, %d held by probes, %d free\n\n", printable(d.Name()), printable(d.Cluster), d.Nodes,
			d.GPUsUsable, d.GPUsHeld, d.GPUsProbe, d.GPUsFree)
	}
	jobs := table{head: []string{"JOB", "NAME", "USER", "STATE", "GPUS HERE", "GPUS", "DOMAINS", "OUTCOME", "FROM", "EXPECTED END"}}
	for _, j := range answer.Jobs {
		jobs.add(j.JobID, j.Name, j.User, j.State, cellUint(j.GPUsHere), cellUint(j.GPUs), fmt.Sprint(j.DomainsUsed), j.Outcome,
			cellTime(&j.From, ""), cellTime(j.ExpectedEnd, unknown))
	}
	jobs.print(w)
	fmt.Fprintln(w)
	nodes := table{head: []string{"NODE", "PARTITION", "USABLE GPUS", "STATE", "REASON", "SINCE"}}
	for _, n := range answer.Nodes {
		usable, state, reason := unknown, unknown, ""
		if n.GPUsUsable != nil {
			usable = fmt.Sprint(*n.GPUsUsable)
		}
		if n.State != nil {
			state = *n.State
		}
		if n.Reason != nil {
			reason = *n.Reason
		}
		partition := n.Partition
		if partition == "" {
			partition = unknown
		}
		nodes.add(n.Node, partition, usable, state, reason, cellTime(&n.Since, ""))
	}
	nodes.print(w)
	footer(w, answer.Freshness)
	return nil
}

// occupancy lists who held GPUs of a domain over a time.
func occupancy(cmd *cobra.Command, c *client, q url.Values) error {
	for key, value := range q {
		if value[0] == "" {
			q.Del(key)
		}
	}
	var answer read.Occupancy
	if err := c.get(cmd.Context(), "/v1/audit/occupancy", q, &answer); err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if c.output == "json" {
		return printJSON(w, answer)
	}
	name := answer.Domain
	if answer.Label != nil {
		name = *answer.Label
	}
	fmt.Fprintf(w, "%s of %s from %s to %s: %d stays\n\n", printable(name), printable(answer.Cluster), cellTime(&answer.Since, ""), cellTime(&answer.Until, ""), answer.Total)
	accounts := table{head: []string{"ACCOUNT", "STAYS", "GPU-HOURS HERE", "STAYS OF UNKNOWN SIZE"}}
	for _, a := range answer.Accounts {
		accounts.add(a.Account, fmt.Sprint(a.Jobs), fmt.Sprintf("%.1f", a.GPUHours), fmt.Sprint(a.UnknownStays))
	}
	accounts.print(w)
	fmt.Fprintln(w)
	stays := table{head: []string{"JOB", "ATTEMPT", "USER", "ACCOUNT", "FROM", "TO", "GPUS HERE", "NODES HERE", "DOMAINS", "OUTCOME"}}
	for _, s := range answer.Stays {
		outcome := s.Outcome
		if s.Probe {
			outcome = "probe job"
		}
		stays.add(s.JobID, fmt.Sprint(s.Attempt), s.User, s.Account, cellTime(&s.From, ""), cellTime(s.To, "still here"), cellUint(s.GPUsHere),
			fmt.Sprint(s.NodesHere), fmt.Sprint(s.DomainsUsed), outcome)
	}
	stays.print(w)
	footer(w, answer.Freshness)
	return nil
}

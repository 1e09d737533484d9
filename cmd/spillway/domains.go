package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/query/read"
)

func domainsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "domains [DOMAIN]", Short: "Capacity of every NVLink domain, or one domain's nodes and jobs",
		Args:    cobra.MaximumNArgs(1),
		Example: "  spillway domains\n  spillway domains rack01 --at 2026-11-29T14:00:00Z",
	}
	c := asking(cmd)
	at := cmd.Flags().String("at", "", "as it stood at this moment (RFC 3339); empty = now")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := url.Values{}
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
		fmt.Fprintf(w, "%s of %s: %d nodes, %d GPUs usable, %d held, %d held by probes, %d free\n\n", d.Name(), d.Cluster, d.Nodes,
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

package main

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/query/read"
)

func jobCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "job JOB", Short: "All runs of a job: where they sat, what was judged, and whether it was worse than last time", Args: oneArg("JOB", "spillway job 4711"),
	}
	c := asking(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var answer read.Job
		if err := c.get(cmd.Context(), "/v1/jobs/"+url.PathEscape(args[0]), url.Values{}, &answer); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		if c.output == "json" {
			return printJSON(w, answer)
		}
		newest := answer.Attempts[0]
		fmt.Fprintf(w, "%s\n\n", printable(fmt.Sprintf("job %s of %s: %s, user %s, account %s, queue %s, class %s", answer.JobID, answer.Cluster,
			newest.Name, newest.User, newest.Account, newest.Queue, newest.ServiceClass)))
		t := table{head: []string{"ATTEMPT", "STATE", "FROM", "TO", "GPUS", "NODES", "OUTCOME", "CAUSE", "SHAPE"}}
		for _, a := range answer.Attempts {
			if len(a.Placements) == 0 {
				t.add(fmt.Sprint(a.Attempt), a.State, cellTime(a.Start, "not started"), cellTime(a.End, "-"), cellUint(a.GPUs), "-", "-", "-", "-")
			}
			for _, p := range a.Placements {
				outcome, cause, shape := "not judged", "-", "-"
				if v := p.Verdict; v != nil {
					outcome, shape = v.Outcome, cellShape(v.Shape)
					if v.Cause != nil {
						cause = *v.Cause
					}
				}
				t.add(fmt.Sprint(a.Attempt), a.State, cellTime(&p.From, ""), cellTime(p.To, "now"), cellUint(p.GPUs),
					strconv.Itoa(len(p.Nodes)), outcome, cause, shape)
			}
		}
		t.print(w)
		for _, a := range answer.Attempts[:1] {
			for _, p := range a.Placements {
				names := make([]string, len(p.Nodes))
				for i, n := range p.Nodes {
					names[i] = n.Node
				}
				fmt.Fprintf(w, "\nnodes of attempt %d, placement %d: %s\n", a.Attempt, p.Seq, clip(printable(strings.Join(names, " ")), 10*maxWidth))
			}
		}
		var compared read.Compare
		if err := c.get(cmd.Context(), "/v1/jobs/"+url.PathEscape(args[0])+"/compare", url.Values{"cluster": {answer.Cluster}}, &compared); err != nil {
			return err
		}
		fmt.Fprintf(w, "\nagainst earlier runs: %s\n", printable(strings.Join(compared.Lines, " ")))
		footer(w, answer.Freshness)
		return nil
	}
	return cmd
}

package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/query/read"
)

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "What each hop of the flow last did and what waits", Args: noArgs}
	c := asking(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var answer read.Status
		if err := c.get(cmd.Context(), "/v1/status", url.Values{}, &answer); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		if c.output == "json" {
			return printJSON(w, answer)
		}
		collectors := table{head: []string{"COLLECTOR", "CLUSTER", "LAST FULL READ", "PROBLEM"}}
		for _, s := range answer.Sources {
			problem := "none"
			if s.Problem != nil {
				problem = *s.Problem
			} else if s.Overdue {
				problem = "overdue"
			}
			collectors.add(s.Source, s.Cluster, cellTime(s.GoodAt, "never"), problem)
		}
		collectors.print(w)
		fmt.Fprintln(w)
		raw := table{head: []string{"TABLE", "ROWS", "LAST LOADED", "NOT JUDGED"}}
		for _, r := range answer.Raw {
			behind := "0"
			for _, u := range answer.Unjudged {
				if u.Table == r.Table {
					behind = fmt.Sprint(u.Rows)
				}
			}
			raw.add(r.Table, fmt.Sprint(r.Rows), cellTime(r.LoadedAt, "never"), behind)
		}
		raw.print(w)
		if len(answer.DeadLetters) > 0 {
			fmt.Fprintln(w)
			dead := table{head: []string{"DEAD LETTERS", "TOPIC", "STAGE", "REASON"}}
			for _, d := range answer.DeadLetters {
				dead.add(fmt.Sprint(d.Records), d.Topic, d.Stage, d.Reason)
			}
			dead.print(w)
		}
		footer(w, answer.Freshness)
		return nil
	}
	return cmd
}

package main

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/query/read"
)

func explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain JOB", Short: "Why a job spilled or did not, in a few lines", Args: oneArg("JOB", "spillway explain 4711"),
	}
	c := asking(cmd)
	attempt := cmd.Flags().Int32("attempt", -1, "which attempt, from 0; -1 = the newest")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var answer read.Explanation
		q := url.Values{"attempt": {strconv.Itoa(int(*attempt))}}
		if err := c.get(cmd.Context(), "/v1/jobs/"+url.PathEscape(args[0])+"/explain", q, &answer); err != nil {
			return err
		}
		if c.output == "json" {
			return printJSON(cmd.OutOrStdout(), answer)
		}
		fmt.Fprintln(cmd.OutOrStdout(), strings.Join(answer.Lines, "\n"))
		return nil
	}
	return cmd
}

// oneArg asks for exactly one argument and shows how it is written when it is missing.
func oneArg(name, example string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageError("exactly one %s is needed: try `%s`", name, example)
		}
		return nil
	}
}

package main

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/query/read"
)

func explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain JOB", Short: "Why a job spilled or did not, in a few lines", Args: oneArg("JOB", "spillway explain 4711"),
		Long: "Why a job spilled or did not, in a few lines.\n\n" +
			"--mail wraps it for the mail a job sends when it ends, with the address of its page.\n" +
			"--admin-comment prints the command that keeps it with the job in Slurm's accounting, behind whatever the job's\n" +
			"AdminComment holds already. Only a Slurm administrator may run it, while slurmctld still knows the job.\n" +
			"--k8s-event prints a Kubernetes Event for `kubectl create -f -`.",
		Example: "  spillway explain 4711\n" +
			"  spillway explain --mail \"$SLURM_JOB_ID\" | mail -s \"Job $SLURM_JOB_ID: placement\" \"$SLURM_JOB_USER\"\n" +
			"  spillway explain --admin-comment 4711 | sh\n" +
			"  spillway explain --k8s-event team-a/train-1 | kubectl create -f -",
	}
	c := asking(cmd)
	f := cmd.Flags()
	attempt := f.Int32("attempt", -1, "which attempt, from 0; -1 = the newest")
	mail := f.Bool("mail", false, "wrapped text for a mail")
	comment := f.Bool("admin-comment", false, "the command that adds it to the job's AdminComment")
	event := f.Bool("k8s-event", false, "a Kubernetes Event manifest")
	kind := f.String("k8s-kind", "batch/v1/Job", "with --k8s-event: group/version/Kind of what the job is")
	cmd.MarkFlagsMutuallyExclusive("mail", "admin-comment", "k8s-event")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var answer read.Explanation
		q := url.Values{"attempt": {strconv.Itoa(int(*attempt))}}
		if err := c.get(cmd.Context(), "/v1/jobs/"+url.PathEscape(args[0])+"/explain", q, &answer); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		var out string
		var err error
		switch {
		case *mail:
			out = mailText(answer, c.base)
		case *comment:
			out, err = adminComment(answer)
		case *event:
			out, err = kubeEvent(answer, *kind, time.Now())
		case c.output == "json":
			return printJSON(w, answer)
		default:
			out = printableLines(answer.Lines, "\n")
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(w, out)
		return nil
	}
	return cmd
}

// oneArg asks for exactly one argument and shows how it is written when it is missing.
func oneArg(name, example string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || strings.TrimSpace(args[0]) == "" {
			return usageError("exactly one %s is needed: try `%s`", name, example)
		}
		return nil
	}
}

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func rejudgeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rejudge [--since 30d]", Short: "Judge placements again by today's rule and configuration", Args: noArgs,
		Long: "Judge again what began since then, by the rule of this version, the window and the precedence configured now, and all\n" +
			"that is known by now. Verdicts that come out as before are left alone. Stop the enrich stage meanwhile: only one\n" +
			"may work on a database, and the one that notices another ends with an error.",
		Example: "  spillway rejudge -c spillway.yaml --since 30d",
	}
	settings := configFlag(cmd)
	since := cmd.Flags().String("since", "30d", "how far back: a duration such as 24h or 7d")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := settings()
		if err != nil {
			return err
		}
		back, err := parseBack(*since)
		if err != nil {
			return err
		}
		run := stages{enrich: true}
		if s.Engine.ClickHouse.Mode != "" || len(s.Engine.ClickHouse.Addresses) > 0 {
			if err := run.reachable(s); err != nil {
				return err
			}
		}
		log, err := logger(s, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		f, err := open(cmd.Context(), s, run, false, log)
		if err != nil {
			return err
		}
		defer f.close()
		now := time.Now()
		stats, err := f.passes.Rejudge(cmd.Context(), now.Add(-back), now)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%d placements judged again in %s: %d verdicts are new or changed\n", stats.Touched, stats.Took.Round(time.Millisecond), stats.Judged)
		return nil
	}
	return cmd
}

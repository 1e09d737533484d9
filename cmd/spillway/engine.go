package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/internal/engine"
)

func engineCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "engine", Short: "The embedded ClickHouse", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	fetch := &cobra.Command{
		Use: "fetch", Short: "Fetch the embedded ClickHouse into the cache, once, and say where it is", Args: noArgs,
	}
	settings := configFlag(fetch)
	fetch.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := settings()
		if err != nil {
			return err
		}
		log, err := logger(s, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		what, err := engine.Fetch(cmd.Context(), s.Engine.ClickHouse, log)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), "clickhouse:", what)
		return nil
	}
	cmd.AddCommand(fetch)
	return cmd
}

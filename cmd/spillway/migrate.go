package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate [--plan]", Short: "Bring the database up to this version's schema", Args: noArgs,
	}
	settings := configFlag(cmd)
	plan := cmd.Flags().Bool("plan", false, "print the statements that would run, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := settings()
		if err != nil {
			return err
		}
		log, err := logger(s, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		s.Engine.Kafka.Mode = engine.ModeNone
		ctx := cmd.Context()
		engines, err := engine.Start(ctx, s.Engine, log)
		if err != nil {
			return err
		}
		defer engines.Stop()
		conn, err := chconn.Open(engines.ClickHouse.Owner.With(""))
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := chconn.WaitReady(ctx, conn); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		opts := clickhouse.Options{
			Database: engines.ClickHouse.Owner.Database, Cluster: engines.ClickHouse.Cluster,
			Progress: func(step clickhouse.Step) { fmt.Fprintln(w, "applying", step.Name) },
		}
		todo, err := clickhouse.Plan(ctx, conn, opts)
		if err != nil {
			return err
		}
		if *plan {
			for _, step := range todo {
				fmt.Fprintf(w, "-- %s\n%s;\n", step.Name, strings.Join(step.Statements, ";\n"))
			}
			fmt.Fprintf(w, "-- %d steps to apply\n", len(todo))
			return nil
		}
		if err := clickhouse.Migrate(ctx, conn, opts); err != nil {
			return err
		}
		fmt.Fprintf(w, "%d steps applied; %s is up to date\n", len(todo), opts.Database)
		return nil
	}
	return cmd
}

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/internal/telemetry"
)

func upCommand() *cobra.Command {
	return stageCommand("up", "Run all stages in one process, with embedded engines unless configured",
		stages{collect: true, load: true, enrich: true, serve: true})
}

func loadCommand() *cobra.Command {
	return stageCommand("load", "Run the loader: Kafka to ClickHouse", stages{load: true})
}

func enrichCommand() *cobra.Command {
	return stageCommand("enrich", "Run the passes: raw tables to verdicts", stages{enrich: true})
}

func serveCommand() *cobra.Command {
	return stageCommand("serve", "Run the HTTP API", stages{serve: true})
}

func collectCommand() *cobra.Command {
	cmd := stageCommand("collect", "Run collectors: sources to Kafka", stages{collect: true})
	cmd.Use = "collect [SOURCE...]"
	cmd.Long = fmt.Sprintf("Run the collectors named, or those of collect.sources. There are: %v.", collectorNames())
	cmd.Args = cobra.ArbitraryArgs
	cmd.ValidArgs = collectorNames()
	return cmd
}

// stageCommand runs some stages until it is interrupted.
func stageCommand(use, short string, run stages) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: noArgs}
	settings := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := settings()
		if err != nil {
			return err
		}
		if len(args) > 0 {
			s.Collect.Sources = args
			if err := s.Validate(); err != nil {
				return &exitError{exitUsage, err}
			}
		}
		if err := run.reachable(s); err != nil {
			return err
		}
		log, err := logger(s, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return runFlow(cmd.Context(), s, run, log)
	}
	return cmd
}

// reachable refuses a stage on its own whose engine would be embedded in it: no other stage could reach that engine.
func (r stages) reachable(s *settings) error {
	if r.collect && r.load && r.enrich && r.serve {
		return nil
	}
	if (r.collect || r.load || r.enrich) && len(s.Engine.Kafka.Brokers) == 0 {
		return usageError("a stage on its own needs the Kafka the others use: set engine.kafka.brokers, or run all stages with `spillway up`")
	}
	if (r.load || r.enrich || r.serve) && len(s.Engine.ClickHouse.Addresses) == 0 {
		return usageError("a stage on its own needs the ClickHouse the others use: set engine.clickhouse.addresses, or run all stages with `spillway up`")
	}
	return nil
}

func runFlow(ctx context.Context, s *settings, run stages, log *slog.Logger) error {
	warn(log, s)
	f, err := open(ctx, s, run, false, log)
	if err != nil {
		return err
	}
	defer f.close()
	if f.server != nil {
		log.Info("ready", "api", "http://"+f.server.Addr(), "pid", os.Getpid())
	} else {
		log.Info("ready", "pid", os.Getpid())
	}
	return f.run(ctx)
}

func logger(s *settings, w io.Writer) (*slog.Logger, error) {
	log, err := telemetry.NewLogger(w, s.Telemetry)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return log, nil
}

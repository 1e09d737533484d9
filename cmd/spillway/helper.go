package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/ingest/collect/dcgm"
	"github.com/spillway-io/spillway/ingest/collect/fabric"
)

// helperCommand is what collectors start to load NVIDIA's libraries in a process of its own. Nobody else calls it.
func helperCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "helper", Short: "A part of a collector that runs as a process of its own", Hidden: true,
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "dcgm ARGUMENT", Short: "Ask DCGM on this machine, a question a line", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return dcgm.RunHelper(args[0], cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			},
		},
		&cobra.Command{
			Use: "nvml", Short: "Print how this machine's GPUs are registered in the NVLink fabric, as NVML tells it", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return fabric.RunHelper(cmd.OutOrStdout()) },
		},
	)
	return cmd
}

// helperOf is the command that becomes a helper process.
func helperOf(name string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return []string{self, "helper", name}, nil
}

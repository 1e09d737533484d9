package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/internal/config"
)

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "Check the configuration and build every stage without starting one", Args: noArgs,
	}
	settings := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := settings()
		if err != nil {
			return err
		}
		if err := dry(s); err != nil {
			return &exitError{exitUsage, err}
		}
		w := cmd.OutOrStdout()
		for _, warning := range s.Warnings() {
			fmt.Fprintln(w, "warning:", warning)
		}
		fmt.Fprintln(w, "the configuration is good")
		return nil
	}
	return cmd
}

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Print the configuration in force, defaults included", Args: noArgs,
	}
	settings := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := settings()
		if err != nil {
			return err
		}
		text, err := config.Dump(s)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	return cmd
}

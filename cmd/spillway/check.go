package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

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
		if err := errors.Join(dry(s), s.Collect.tokens()); err != nil {
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

// tokens opens the files of tokens that the collectors read whenever they ask, and not before: tokens are renewed, so a start
// does not need them.
func (c *collectSettings) tokens() error {
	files := map[string]string{}
	if c.runs("slurm") {
		files["slurm.rest"], files["slurm.events"] = c.Slurm.REST.TokenFile, c.Slurm.Events.TokenFile
	}
	if c.runs("kubernetes") {
		files["kubernetes"] = c.Kubernetes.TokenFile
	}
	if c.runs("topology") {
		for i, source := range c.Topology.Sources {
			files[fmt.Sprintf("topology.sources[%d]", i)] = source.TokenFile
		}
	}
	if c.runs("dcgm") {
		files["dcgm"] = c.DCGM.TokenFile
	}
	if c.runs("nic") {
		files["nic"] = c.NIC.TokenFile
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(files)) {
		path := files[key]
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("read collect.%s.token_file: %w: write the token there, readable to the user that Spillway runs as", key, err))
		case len(strings.Fields(strings.Replace(string(text), "SLURM_JWT=", "", 1))) != 1:
			errs = append(errs, fmt.Errorf("collect.%s.token_file: %s does not hold one token: write the token, or what `scontrol token` prints, and nothing else into it", key, path))
		}
	}
	return errors.Join(errs...)
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

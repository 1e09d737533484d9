package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes, the same for every subcommand; `spillway help exit-codes` prints them.
const (
	exitOK          = 0
	exitFailed      = 1 // the work failed; the last line says why and what to do
	exitUsage       = 2 // the command line or the configuration is wrong
	exitNotFound    = 3 // the job, domain or file asked for is not known
	exitUnreachable = 4 // the service does not answer
)

const exitCodes = `0  done
1  failed: the last line says why and what to do
2  the command line or the configuration is wrong
3  what was asked for is not known
4  the service does not answer`

// exitError carries the exit code of an error.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// run executes one command line and gives its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	// What failed may hold a name, or a line of a file.
	text := printableLines(strings.Split(strings.TrimSpace(err.Error()), "\n"), "\n")
	var coded *exitError
	if errors.As(err, &coded) {
		fmt.Fprintln(stderr, "spillway:", text)
		return coded.code
	}
	// What a command's work returns has a code, see failing: the rest is how cobra refuses a line before that.
	fmt.Fprintf(stderr, "spillway: %s\nsee `spillway --help`, and `spillway COMMAND --help` for the flags of one\n", text)
	return exitUsage
}

// failing gives what a command's work returns the code of a failure, unless it has one.
func failing(cmd *cobra.Command) {
	if work := cmd.RunE; work != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			err := work(cmd, args)
			var coded *exitError
			if err == nil || errors.As(err, &coded) {
				return err
			}
			return &exitError{exitFailed, err}
		}
	}
	for _, c := range cmd.Commands() {
		failing(c)
	}
}

// noArgs is of commands that take flags alone, and of those that only group others.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasSubCommands():
		return usageError("`%s` has no command %q: see `%[1]s --help`", cmd.CommandPath(), args[0])
	default:
		return usageError("%q is not understood: `%s` takes flags alone, see `%[2]s --help`", args[0], cmd.CommandPath())
	}
}

// newRoot is the one list of subcommands, in the order of the flow.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "spillway",
		Short: "Which jobs crossed an NVLink domain, what it cost, why, and where slots are",
		Long: "Spillway takes job placements and NVLink domain membership in and gives cross-domain spills,\n" +
			"their causes and free slots out. `spillway demo` shows it on a simulated NVL72 fleet.",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("%w: see `%s --help`", err, cmd.CommandPath())
	})
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run the flow:"},
		&cobra.Group{ID: "ask", Title: "Ask a running service:"},
		&cobra.Group{ID: "tool", Title: "Tools:"},
	)
	root.AddCommand(
		inGroup("run", upCommand(), demoCommand(), collectCommand(), loadCommand(), enrichCommand(), serveCommand(), migrateCommand())...,
	)
	root.AddCommand(
		inGroup("ask", adviseCommand(), slotsCommand(), spillsCommand(), jobCommand(), explainCommand(), domainsCommand(), statusCommand(), reportCommand())...,
	)
	root.AddCommand(
		inGroup("tool", probeCommand(), replayCommand(), ncclCommand(), rejudgeCommand(), simulateCommand(), checkCommand(), configCommand(), benchCommand(), engineCommand())...,
	)
	root.AddCommand(helperCommand(), &cobra.Command{
		Use: "exit-codes", Short: "Exit codes of every subcommand", Long: exitCodes,
		Args: noArgs,
		Run:  func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), exitCodes) },
	})
	failing(root)
	return root
}

func inGroup(id string, cmds ...*cobra.Command) []*cobra.Command {
	for _, c := range cmds {
		c.GroupID = id
	}
	return cmds
}

// Command spillway is all stages of the flow in one binary: it wires them and decides nothing itself.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spillway-io/spillway/internal/engine"
)

// version is set by the linker.
var version = "dev"

func main() {
	engine.MaybeRunChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

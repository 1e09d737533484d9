package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// hostVariable turns the test binary into a program that runs both engines on the directory named by it, until killed;
// "throwaway" stands for a directory of their own.
// Killing a real process is the only way to see what is left of one.
const hostVariable = "SPILLWAY_ENGINE_TEST_HOST"

func TestMain(m *testing.M) {
	MaybeRunChild()
	if dir := os.Getenv(hostVariable); dir != "" {
		host(dir)
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func host(dir string) {
	cfg := DefaultConfig()
	cfg.DataDir = dir
	start := Start
	if dir == "throwaway" {
		start = StartThrowaway
	}
	e, err := start(context.Background(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	fmt.Println("ready", e.server.process.Pid, e.ClickHouse.Owner.Addresses[0], e.ClickHouse.Owner.Password, e.Kafka.Brokers[0])
	select {}
}

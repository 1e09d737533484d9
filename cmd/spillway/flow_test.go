package main

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// patience bounds what a test waits for on a machine that has much else to do; it says nothing of how long a thing may take.
const patience = 5 * time.Minute

// running is a throw-away flow that runs until the test ends; a stage that fails fails the test.
func running(t testing.TB, s *settings, run stages) *flow {
	t.Helper()
	f, err := open(context.Background(), s, run, true, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		f.close()
	})
	return f
}

package scrape

import (
	"context"
	"errors"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"
)

func TestCommand(t *testing.T) {
	var c Command
	for name, tt := range map[string]struct {
		argv        []string
		out, said   string
		want        error
		wantAnyhow  bool
		withTimeout time.Duration
	}{
		"what it wrote is told apart":  {argv: []string{"sh", "-c", "echo $LC_ALL; echo two >&2"}, out: "C\n", said: "two\n"},
		"one that fails":               {argv: []string{"sh", "-c", "echo no >&2; exit 3"}, said: "no\n", wantAnyhow: true},
		"one that is not there":        {argv: []string{"/nowhere/nvidia-smi"}, wantAnyhow: true},
		"an output without end":        {argv: []string{"yes"}, want: ErrTooLong},
		"one that takes its time":      {argv: []string{"sleep", "60"}, wantAnyhow: true, withTimeout: 10 * time.Millisecond},
		"a child that keeps the pipes": {argv: []string{"sh", "-c", "sleep 3 & exit 0"}, want: exec.ErrWaitDelay, withTimeout: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if tt.withTimeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.withTimeout)
				defer cancel()
			}
			out, said, err := c.Run(ctx, tt.argv, 1000)
			if (err != nil) != (tt.want != nil || tt.wantAnyhow) || tt.want != nil && !errors.Is(err, tt.want) || errors.Is(err, ErrHung) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if tt.want == nil && (string(out) != tt.out || string(said) != tt.said) {
				t.Errorf("%q, %q", out, said)
			}
		})
	}
}

// TestACommandThatCannotBeEnded: a process that the driver holds is waited for by nobody, and there is never a second one.
func TestACommandThatCannotBeEnded(t *testing.T) {
	release := make(chan struct{})
	var runs atomic.Int32
	c := Command{run: func(*exec.Cmd) error { runs.Add(1); <-release; return nil }}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := c.Run(ctx, []string{"true"}, 1000); !errors.Is(err, ErrHung) {
		t.Fatalf("error %v", err)
	}
	if _, _, err := c.Run(t.Context(), []string{"true"}, 1000); !errors.Is(err, ErrHung) {
		t.Fatalf("while it is there: error %v", err)
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("%d processes", n)
	}
	close(release)
	<-c.left
	c.run = nil
	if _, _, err := c.Run(t.Context(), []string{"true"}, 1000); err != nil {
		t.Errorf("once it is gone: error %v", err)
	}
}

// Package service runs the parts of one process together. It knows nothing of what they do.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Component is a part that runs until its context ends and then returns nil. An error ends all the others.
type Component interface {
	Name() string
	Run(ctx context.Context) error
}

// stopWithin bounds how long one component may take to end.
const stopWithin = 15 * time.Second

// Run starts the components in order and returns when all have ended: after ctx ends, or after the first error, which
// it returns. They are stopped in reverse, one after another, so that whoever feeds stops before whoever is fed when
// the list goes from the end of the flow to its beginning. One that does not end in time is named and left behind.
func Run(ctx context.Context, log *slog.Logger, components ...Component) error {
	type running struct {
		name string
		stop context.CancelFunc
		done chan error
	}
	failed := make(chan error, len(components))
	started := make([]running, 0, len(components))
	for _, c := range components {
		// Not a child of ctx: components end in order, not all at once.
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		r := running{c.Name(), stop, make(chan error, 1)}
		go func() {
			err := c.Run(own)
			if err != nil {
				err = fmt.Errorf("%s: %w", r.name, err)
				failed <- err
			}
			r.done <- err
		}()
		started = append(started, r)
	}
	var first error
	select {
	case <-ctx.Done():
	case first = <-failed:
	}
	for i := len(started) - 1; i >= 0; i-- {
		r := started[i]
		r.stop()
		select {
		case err := <-r.done:
			if err != nil && first == nil && !errors.Is(err, context.Canceled) {
				first = err
			}
		case <-time.After(stopWithin):
			log.Error("a component does not end and is left behind", "component", r.name, "after", stopWithin)
		}
	}
	return first
}

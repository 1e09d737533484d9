// Package collecttest is the conformance suite that every collector passes, whatever its source. It drives a collector as
// the program does, through collect.Collector and collect.Emitter, and looks at nothing but the records that come out.
package collecttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

// Source is a source that the test controls, and a way to build collectors on it. The collectors must read it often (every
// 20 ms or so).
type Source struct {
	// New builds a collector, as a start of the program would. It is called several times.
	New func(t *testing.T) collect.Collector
	// Cluster is the cluster that every record must name.
	Cluster string
	// Full are the keys, as Key gives them, of the source's full state at the beginning.
	Full []string
	// Change makes the source say something new, and returns the keys of the records that must follow.
	Change func(t *testing.T) []string
	// Break makes every read fail in the middle of the answer, after some of its content has come; Mend undoes it.
	Break, Mend func(t *testing.T)
}

// Key names the entity of a record: the topic and the record's key.
func Key(r event.Record) string { return r.RecordTopic() + " " + r.RecordKey() }

// patience is how long anything that must happen may take.
const patience = time.Minute

// Run runs the suite.
func Run(t *testing.T, s Source) {
	t.Run("the full state comes first and every record keeps the contract", func(t *testing.T) {
		out := &Sink{}
		defer start(t, s.New(t), out)()
		out.Wait(t, "the full state and a source record", func(r []event.Record) bool { return has(r, s.Full) && reported(r, "") })
		records := out.Records()
		for i, r := range records {
			if src, ok := r.(*event.Source); ok && src.GoodAtMs != nil {
				if missing := without(records[:i], s.Full); len(missing) > 0 {
					t.Errorf("the first good report came before %s", strings.Join(missing, ", "))
				}
				break
			}
		}
		checkRecords(t, s, records)
	})
	t.Run("a restart emits the full state again", func(t *testing.T) {
		first, second := &Sink{}, &Sink{}
		stop := start(t, s.New(t), first)
		first.Wait(t, "the full state", func(r []event.Record) bool { return has(r, s.Full) })
		stop()
		defer start(t, s.New(t), second)()
		second.Wait(t, "the full state after a restart", func(r []event.Record) bool { return has(r, s.Full) })
	})
	t.Run("what is not stored is emitted again", func(t *testing.T) {
		out := &Sink{}
		out.Refuse(3)
		defer start(t, s.New(t), out)()
		out.Wait(t, "the full state after three refusals", func(r []event.Record) bool { return has(r, s.Full) })
	})
	t.Run("cancel ends it with nil, even while the pipeline is full", func(t *testing.T) {
		out := &Sink{}
		out.Block()
		stop := start(t, s.New(t), out)
		testenv.Until(t, "a call of Emit", func() bool { return out.Calls() > 0 })
		stop()
		if n := len(out.Records()); n > 0 {
			t.Errorf("%d records although none was taken", n)
		}
	})
	t.Run("cancel before the start ends it with nil", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := run(ctx, s.New(t), &Sink{}); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Run("a failed read emits nothing of it, and a restart then neither", func(t *testing.T) {
		s.Break(t)
		mended := false
		defer func() {
			if !mended {
				s.Mend(t)
			}
		}()
		out := &Sink{}
		stop := start(t, s.New(t), out)
		defer func() { stop() }()
		// Long enough for several reads, each of which fails.
		end := time.Now().Add(200 * time.Millisecond)
		testenv.Until(t, "several reads", func() bool { return time.Now().After(end) })
		for _, r := range out.Records() {
			if src, ok := r.(*event.Source); !ok || src.Problem == "" || src.GoodAtMs != nil {
				t.Errorf("emitted from a source that answers only in part: %v", r)
			}
		}
		s.Mend(t)
		mended = true
		out.Wait(t, "the full state once the source is mended", func(r []event.Record) bool { return has(r, s.Full) && reported(r, "") })
	})
	t.Run("a source that breaks is reported and what was known stands", func(t *testing.T) {
		out := &Sink{}
		defer start(t, s.New(t), out)()
		out.Wait(t, "a good report", func(r []event.Record) bool { return has(r, s.Full) && reported(r, "") })
		before := len(out.Records())
		s.Break(t)
		mended := false
		defer func() {
			if !mended {
				s.Mend(t)
			}
		}()
		out.Wait(t, "a report of the problem", func(r []event.Record) bool { return reported(r, "problem") })
		for _, r := range out.Records()[before:] {
			if ends(r) {
				t.Errorf("a failed read ended %s: %v", Key(r), r)
			}
		}
		s.Mend(t)
		mended = true
		n := len(out.Records())
		out.Wait(t, "a good report again", func(r []event.Record) bool { return reported(r[n:], "") })
	})
	t.Run("a change is emitted", func(t *testing.T) {
		out := &Sink{}
		defer start(t, s.New(t), out)()
		out.Wait(t, "the full state", func(r []event.Record) bool { return has(r, s.Full) })
		n := len(out.Records())
		want := s.Change(t)
		out.Wait(t, "the change: "+strings.Join(want, ", "), func(r []event.Record) bool { return has(r[min(n, len(r)):], want) })
		checkRecords(t, s, out.Records())
	})
}

// checkRecords holds every record against the contract.
func checkRecords(t *testing.T, s Source, records []event.Record) {
	t.Helper()
	for _, r := range records {
		if _, _, err := event.Encode(r); err != nil {
			t.Errorf("%s: %v", Key(r), err)
		}
		if !strings.HasPrefix(r.RecordKey(), s.Cluster+"/") {
			t.Errorf("the key %q does not begin with the cluster %q", r.RecordKey(), s.Cluster)
		}
	}
}

// start runs a collector and returns what ends it and checks that it ended well.
func start(t *testing.T, c collect.Collector, out collect.Emitter) (stop func()) {
	t.Helper()
	if c.Name() == "" {
		t.Error("the collector has no name")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, out) }()
	return sync.OnceFunc(func() {
		t.Helper()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run returned %v, where it was only cancelled", err)
			}
		case <-time.After(patience):
			t.Fatal("Run did not return after it was cancelled")
		}
	})
}

func run(ctx context.Context, c collect.Collector, out collect.Emitter) error {
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, out) }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return errors.New("nothing: it did not return")
	}
}

func has(records []event.Record, keys []string) bool { return len(without(records, keys)) == 0 }

func without(records []event.Record, keys []string) (missing []string) {
	seen := map[string]bool{}
	for _, r := range records {
		seen[Key(r)] = true
	}
	for _, k := range keys {
		if !seen[k] {
			missing = append(missing, k)
		}
	}
	return missing
}

// reported says whether there is a source record, of a problem or of none.
func reported(records []event.Record, problem string) bool {
	return slices.ContainsFunc(records, func(r event.Record) bool {
		src, ok := r.(*event.Source)
		return ok && (src.Problem == "") == (problem == "")
	})
}

// ends says whether a record takes something away.
func ends(r event.Record) bool {
	switch r := r.(type) {
	case *event.Placement:
		return r.State.Ended()
	case *event.Membership:
		return r.Removed
	case *event.Node:
		return r.Removed
	}
	return false
}

// Sink is an Emitter that remembers, and can refuse or block.
type Sink struct {
	mu      sync.Mutex
	records []event.Record
	calls   int
	refuse  int
	block   bool
}

var errRefused = errors.New("the sink refuses")

// Emit implements collect.Emitter.
func (s *Sink) Emit(ctx context.Context, records ...event.Record) error {
	s.mu.Lock()
	s.calls++
	block := s.block
	if !block && s.refuse == 0 {
		s.records = append(s.records, records...)
		s.mu.Unlock()
		return nil
	}
	if !block {
		s.refuse--
	}
	s.mu.Unlock()
	if block {
		<-ctx.Done()
		return fmt.Errorf("emit: %w", ctx.Err())
	}
	return errRefused
}

// Refuse makes the next calls fail.
func (s *Sink) Refuse(calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = calls
}

// Block makes all calls wait for the end of their context.
func (s *Sink) Block() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.block = true
}

// Calls is how many calls of Emit there were.
func (s *Sink) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Records are all records taken so far, in order.
func (s *Sink) Records() []event.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.records)
}

// Wait waits until a condition on the records holds.
func (s *Sink) Wait(t *testing.T, what string, holds func([]event.Record) bool) {
	t.Helper()
	testenv.Until(t, what, func() bool { return holds(s.Records()) })
}

package simulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink keeps what is emitted, and fails on demand.
type sink struct {
	mu      sync.Mutex
	records []event.Record
	fail    func(call int) error
	calls   int
}

func (s *sink) Emit(_ context.Context, records ...event.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.fail != nil {
		if err := s.fail(s.calls); err != nil {
			return err
		}
	}
	for _, r := range records {
		s.records = append(s.records, proto.Clone(r).(event.Record))
	}
	return nil
}

func (s *sink) failWith(f func(call int) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

func (s *sink) counts() (records, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records), s.calls
}

func (s *sink) all() []event.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.records)
}

// runFor runs a collector for a while of (synthetic) time and stops it cleanly.
func runFor(t *testing.T, c Config, out *sink, d time.Duration) {
	t.Helper()
	stop := begin(t, c, out)
	time.Sleep(d)
	stop()
}

// begin starts a collector and gives what stops it.
func begin(t *testing.T, c Config, out *sink) (stop func()) {
	t.Helper()
	collector, err := New(c, Deps{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- collector.Run(ctx, out) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Fatalf("run: %v", err)
		}
	}
}

// small is a fleet of two clusters that has much going on.
func small(dir string) Config {
	c := DefaultConfig()
	c.DataDir = dir
	c.Speed = 600
	one := DefaultCluster()
	one.Racks, one.DegradedRacks, one.NodeMTBF = 4, 1, 100*time.Hour
	one.Partitions = []Partition{{"gpu", PolicyFlat, 2}, {"block", PolicyBlock, 2}}
	two := one
	two.Name = "other"
	c.Clusters = []Cluster{one, two}
	return c
}

// byCluster splits records, so that equal names do not meet.
func byCluster(records []event.Record) map[string][]event.Record {
	out := map[string][]event.Record{}
	for _, r := range records {
		c := r.(interface{ GetCluster() string }).GetCluster()
		out[c] = append(out[c], r)
	}
	return out
}

func checkAll(t *testing.T, records []event.Record) {
	t.Helper()
	now := time.Now().UnixMilli()
	for _, r := range records {
		if err := r.Validate(); err != nil {
			t.Fatalf("%v\n%v", err, r)
		}
		if observed(r) > now {
			t.Fatalf("a record is observed %d ms in the future: %v", observed(r)-now, r)
		}
	}
	for _, rs := range byCluster(records) {
		checkHeldOnce(t, spans(t, rs))
	}
}

func TestFirstStartTellsHardwareThenHistoryThenLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(testStart)) // synthetic time begins before the contract's
		out := &sink{}
		began := time.Now()
		stop := begin(t, small(""), out)
		synctest.Wait()
		history := out.all()
		if d := time.Since(began); d != 0 {
			t.Errorf("the history took %s to emit", d)
		}
		nodes := 2 * 4 * traysPerRack
		// Of every cluster: three records a node, before any job.
		if _, ok := history[0].(*event.Membership); !ok {
			t.Errorf("the first record is %T", history[0])
		}
		var hardware, starts, sources int
		oldest := time.Now().UnixMilli()
		for _, r := range history {
			switch r := r.(type) {
			case *event.Membership, *event.Node:
				hardware++
			case *event.Source:
				sources++
			case *event.Placement:
				oldest = min(oldest, r.ObservedAtMs)
				if r.State == event.State_RUNNING && r.GetStartMs() > began.Add(-6*time.Hour).UnixMilli() {
					starts++
				}
			}
		}
		if hardware < 3*nodes || sources != 2 || starts < 10 {
			t.Errorf("%d records of hardware, %d of sources, %d starts in the history", hardware, sources, starts)
		}
		if oldest != began.Add(-6*time.Hour).UnixMilli() {
			t.Errorf("the history begins at %s", time.UnixMilli(oldest))
		}
		time.Sleep(5 * time.Minute)
		stop()
		if lived := len(out.all()) - len(history); lived < 100 {
			t.Errorf("%d records in five live minutes at speed 600", lived)
		}
		checkAll(t, out.all())
	})
}

func TestSecondStartResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(testStart)) // synthetic time begins before the contract's
		c, out := small(t.TempDir()), &sink{}
		runFor(t, c, out, 3*time.Minute)
		first := out.all()
		time.Sleep(2 * time.Hour)
		again := time.Now()
		runFor(t, c, out, 3*time.Minute)
		all := out.all()
		checkAll(t, all)
		// Everything that was open when the first one stopped is told again, and the gap was lived through.
		told, gap := map[string]bool{}, 0
		for _, r := range all[len(first):] {
			if p, ok := r.(*event.Placement); ok {
				told[p.Cluster+p.JobId] = true
				if p.ObservedAtMs > observed(first[len(first)-1]) && p.ObservedAtMs < again.UnixMilli() {
					gap++
				}
			}
		}
		if gap < 10 {
			t.Errorf("%d records of the two hours without a collector", gap)
		}
		state := map[string]event.State{}
		for _, r := range first {
			if p, ok := r.(*event.Placement); ok {
				state[p.Cluster+p.JobId] = p.State
			}
		}
		open := 0
		for job, s := range state {
			if s == event.State_RUNNING || s == event.State_PENDING {
				open++
				if !told[job] {
					t.Errorf("job %s was %s and is not heard of again", job, s)
				}
			}
		}
		if open == 0 {
			t.Error("no job was open at the stop: the test proves nothing")
		}
	})
}

func TestAfterACrashTheSameIsToldAgain(t *testing.T) {
	for _, when := range []time.Duration{0, 3 * time.Second, 47*time.Second + 300*time.Millisecond, 2 * time.Minute} {
		t.Run(when.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(testStart)) // synthetic time begins before the contract's
				dir, crashed := t.TempDir(), t.TempDir()
				out := &sink{}
				stop := begin(t, small(dir), out)
				time.Sleep(when)
				synctest.Wait()
				// What is on disk and what was emitted at this moment is all that a crash leaves.
				state, err := os.ReadFile(filepath.Join(dir, stateFile))
				if err != nil {
					t.Fatal(err)
				}
				before := out.all()
				stop()
				if err := os.WriteFile(filepath.Join(crashed, stateFile), state, 0o644); err != nil {
					t.Fatal(err)
				}
				for _, down := range []time.Duration{0, 4 * time.Second, time.Hour} {
					time.Sleep(down)
					after := &sink{}
					runFor(t, small(crashed), after, time.Minute)
					before = append(before, after.all()...)
					checkAll(t, before)
				}
				// Ends are facts: told twice, they must be the same.
				ends := map[string]int64{}
				for _, r := range before {
					p, ok := r.(*event.Placement)
					if !ok || !p.State.Ended() {
						continue
					}
					key := p.Cluster + "/" + p.RunId
					if end, ok := ends[key]; ok && end != p.GetEndMs() {
						t.Errorf("run %s ended at %d and at %d", key, end, p.GetEndMs())
					}
					ends[key] = p.GetEndMs()
				}
			})
		})
	}
}

func TestAnotherShapeBeginsAnewAndClosesWhatRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(testStart)) // synthetic time begins before the contract's
		c, out := small(t.TempDir()), &sink{}
		stop := begin(t, c, out)
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		// As after a crash: the state file is older than what was emitted.
		state, err := os.ReadFile(filepath.Join(c.DataDir, stateFile))
		if err != nil {
			t.Fatal(err)
		}
		first := out.all()
		out.failWith(func(int) error { return errors.New("crashed") })
		stop()
		out.failWith(nil)
		if err := os.WriteFile(filepath.Join(c.DataDir, stateFile), state, 0o644); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		again := time.Now().UnixMilli()
		c.Clusters[0].Racks, c.Clusters[0].Partitions = 6, []Partition{{"gpu", PolicyFlat, 2}, {"block", PolicyBlock, 4}}
		runFor(t, c, out, time.Minute)
		all := out.all()
		checkAll(t, all)
		open := map[string]bool{}
		highest := 0
		for _, r := range first {
			if p, ok := r.(*event.Placement); ok {
				n, _ := strconv.Atoi(p.JobId)
				highest = max(highest, n)
				open[p.Cluster+p.RunId] = !p.State.Ended()
			}
		}
		vanished := 0
		for _, r := range all[len(first):] {
			p, ok := r.(*event.Placement)
			if !ok {
				continue
			}
			if p.State == event.State_VANISHED {
				vanished++
				if !open[p.Cluster+p.RunId] || p.EndEarliestMs == nil {
					t.Errorf("closed as vanished: %v", p)
				}
			} else if p.ObservedAtMs <= again {
				open[p.Cluster+p.RunId] = true // the old fleet, lived through to its horizon
			} else if n, _ := strconv.Atoi(p.JobId); n <= highest {
				t.Fatalf("job id %d is taken again", n)
			}
			if p.State.Ended() {
				delete(open, p.Cluster+p.RunId)
			}
		}
		for run, still := range open {
			if still {
				t.Errorf("run %s stays open for ever", run)
			}
		}
		if vanished == 0 {
			t.Error("nothing was closed")
		}
		// A smaller fleet: the nodes that are no more are taken out.
		c.Clusters = c.Clusters[:1]
		c.Clusters[0].Racks, c.Clusters[0].Partitions = 4, []Partition{{"gpu", PolicyFlat, 2}, {"block", PolicyBlock, 2}}
		before := len(out.all())
		runFor(t, c, out, time.Second)
		removed := 0
		for _, r := range out.all()[before:] {
			if n, ok := r.(*event.Node); ok && n.Removed {
				removed++
			}
		}
		if removed != (2+4)*traysPerRack {
			t.Errorf("%d nodes were removed of two racks and a cluster of four", removed)
		}
		checkAll(t, out.all())
	})
}

func TestCancelEndsItWithNilWhateverItWaitsFor(t *testing.T) {
	for name, prepare := range map[string]func(*collecttest.Sink, context.CancelFunc){
		"before it starts":           func(_ *collecttest.Sink, cancel context.CancelFunc) { cancel() },
		"while the pipeline is full": func(s *collecttest.Sink, _ context.CancelFunc) { s.Block() },
		"while the pipeline refuses": func(s *collecttest.Sink, _ context.CancelFunc) { s.Refuse(1 << 30) },
		"while nothing is wrong":     func(*collecttest.Sink, context.CancelFunc) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(testStart))
				collector, err := New(small(t.TempDir()), Deps{Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				out := &collecttest.Sink{}
				ctx, cancel := context.WithCancel(t.Context())
				prepare(out, cancel)
				done := make(chan error, 1)
				go func() { done <- collector.Run(ctx, out) }()
				time.Sleep(5 * time.Minute)
				cancel()
				synctest.Wait()
				select {
				case err := <-done:
					if err != nil {
						t.Errorf("Run returned %v", err)
					}
				default:
					t.Error("Run goes on")
				}
			})
		})
	}
}

func TestFleetsBegunOneAfterTheOtherShareNoJobIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(testStart))
		ids := func() map[string]bool {
			out := &sink{}
			runFor(t, small(""), out, time.Minute)
			ids := map[string]bool{}
			for _, r := range out.all() {
				if p, ok := r.(*event.Placement); ok {
					ids[p.JobId] = true
				}
			}
			return ids
		}
		first := ids()
		for id := range ids() {
			if first[id] {
				t.Fatalf("job id %s is taken twice", id)
			}
		}
	})
}

func TestRecordsThatAreNotStoredAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(testStart)) // synthetic time begins before the contract's
		good, flaky := &sink{}, &sink{fail: func(call int) error {
			if call%3 == 0 {
				return errors.New("broker is away")
			}
			return nil
		}}
		stopGood, stopFlaky := begin(t, small(""), good), begin(t, small(""), flaky)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		// Retries wait, so the flaky one may be a little behind.
		a, b := jobsOnly(good.all()), jobsOnly(flaky.all())
		n := min(len(a), len(b))
		if n < 100 || !bytes.Equal(encode(t, a[:n]), encode(t, b[:n])) {
			t.Errorf("of %d and %d records the common part differs", len(a), len(b))
		}
		stopGood()
		stopFlaky()
	})
}

// jobsOnly leaves out what depends on when a batch is sent, and what is told anew at the switch to live.
func jobsOnly(records []event.Record) []event.Record {
	var out []event.Record
	for _, r := range records {
		if p, ok := r.(*event.Placement); ok && p.State.Ended() && p.StartMs != nil {
			out = append(out, r)
		}
	}
	return out
}

func TestRates(t *testing.T) {
	load := DefaultConfig()
	load.EventsPerSecond = 100
	load.History, load.Counters = 0, 0
	load.Clusters[0].Racks, load.Clusters[0].DegradedRacks = 139, 10
	load.Clusters[0].Partitions = []Partition{{"gpu", PolicyFlat, 70}, {"block", PolicyBlock, 0}}
	load.Clusters[0].Wave = 0
	demo := DefaultConfig()
	for name, c := range map[string]struct {
		config    Config
		low, high float64
	}{
		"the demo's fleet stays idle friendly":            {demo, .3, 40},
		"10,008 GPUs give the records a second asked for": {load, 80, 120},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(testStart)) // synthetic time begins before the contract's
				out := &sink{}
				stop := begin(t, c.config, out)
				time.Sleep(time.Second)
				synctest.Wait()
				before, calls := out.counts()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				after, callsAfter := out.counts()
				rate := float64(after-before) / 600
				t.Logf("%.2f records/s in %.2f batches/s", rate, float64(callsAfter-calls)/600)
				if rate < c.low || rate > c.high {
					t.Errorf("%.2f records/s, want %g to %g", rate, c.low, c.high)
				}
				stop()
			})
		})
	}
}

func TestDemoShowsASpillWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(testStart)) // synthetic time begins before the contract's
		out := &sink{}
		runFor(t, DefaultConfig(), out, time.Minute)
		c := DefaultCluster()
		now := time.Now().UnixMilli()
		history, fresh := 0, 0
		for _, j := range judgeStarts(c, 1, out.all()) {
			if j.used > j.least {
				history++
				if j.record.GetStartMs() > now-60_000 {
					fresh++
				}
			}
		}
		t.Logf("%d spills told, %d of them live in the first minute", history, fresh)
		if history < 3 || fresh < 1 {
			t.Errorf("%d spills told, %d of them live", history, fresh)
		}
	})
}

func TestStateFilesThatCannotBeReadSayWhatToDo(t *testing.T) {
	c := small(t.TempDir())
	path := filepath.Join(c.DataDir, stateFile)
	collector, err := New(c, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	collector.create(testStart.UnixMilli(), warmUp, 1)
	if err := collector.save(testStart.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{
		"empty":              {},
		"of another version": bytes.Replace(good, []byte(`"version":1`), []byte(`"version":9`), 1),
		"one digit changed":  bytes.Replace(good, []byte(`"origin":1`), []byte(`"origin":2`), 1),
	}
	for n := 1; n < len(good); n += 1 + len(good)/50 {
		damaged[fmt.Sprintf("its first %d bytes", n)] = good[:n:n]
	}
	for name, content := range damaged {
		if bytes.Equal(content, good) {
			t.Fatalf("%s: nothing is damaged", name)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		collector, err := New(c, Deps{})
		if err != nil {
			t.Fatal(err)
		}
		err = collector.Run(t.Context(), &sink{})
		if err == nil || !strings.Contains(err.Error(), "delete") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v names neither the file nor the remedy", name, err)
		}
	}
}

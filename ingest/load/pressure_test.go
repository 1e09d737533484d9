package load

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

// memoryLimit is what one loader may take of memory.
const memoryLimit = 256 << 20

// TestClickHouseDownUnderLoad takes ClickHouse away while counters come in faster than they could ever be kept. The
// loader's memory stays where it was, and once ClickHouse is back everything is there, once. SPILLWAY_OUTAGE=10m makes it
// last so long.
func TestClickHouseDownUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("moves 800,000 rows")
	}
	outage := 5 * time.Second
	if v := os.Getenv("SPILLWAY_OUTAGE"); v != "" {
		var err error
		if outage, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	w := newBench(t)
	p := newProxy(t, w.store.Owner.Addresses[0], func() limits { return limits{up: -1, down: -1} })
	through := w.store.Owner
	through.Addresses = []string{p.address}
	pid, kill := startChildProcess(t, child{Group: "pressure", Brokers: w.kafka.Brokers, ClickHouse: accountOf(through), Default: true})
	defer kill()
	f := newFleet(500, 8)
	sent := uint64(0)
	produce := func(rounds int) {
		for range rounds {
			var batch []event.Record
			for n := range f.nodes {
				batch = append(batch, f.scrape(n, int(sent), countersBegin))
			}
			if err := w.producer.Emit(context.Background(), batch...); err != nil {
				t.Fatal(err)
			}
			sent += uint64(8 * len(f.nodes))
		}
	}
	produce(20)
	w.waitRows(t, "counters", sent)

	p.refuse.Store(true)
	p.cut() // those that are open
	produce(180)
	worst := uint64(0)
	for begun, told := time.Now(), time.Duration(0); time.Since(begun) < outage; pause(context.Background(), 100*time.Millisecond) {
		worst = max(worst, resident(t, pid))
		if time.Since(begun)-told > time.Second {
			told += time.Second
			produce(1)
		}
	}
	p.refuse.Store(false)
	back := time.Now()
	testenv.Eventually(t, 2*time.Minute, func() error {
		worst = max(worst, resident(t, pid))
		rows, _ := w.counts(t, "counters")
		if rows > sent {
			t.Fatalf("%d rows of %d", rows, sent)
		}
		if rows < sent {
			return fmt.Errorf("%d rows of %d", rows, sent)
		}
		return nil
	})
	t.Logf("at most %d MB of memory, for %d rows; all there %s after ClickHouse was back", worst>>20, sent, time.Since(back).Round(100*time.Millisecond))
	if worst > memoryLimit {
		t.Errorf("the loader took %d MB of memory, more than %d", worst>>20, memoryLimit>>20)
	}
}

// resident is the memory that a process holds.
func resident(t testing.TB, pid int) uint64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("memory of a process is read from /proc: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kb uint64
			if _, err := fmt.Sscanf(rest, "%d kB", &kb); err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

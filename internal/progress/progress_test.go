package progress

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time that only tests move.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func (c *clock) pass(d time.Duration) { c.t = c.t.Add(d) }

func TestLinesWhereThereIsNoTerminal(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		work func(*Bar, *clock)
		want string
	}{
		"bytes with a total: how much, how fast, how long still": {
			Options{What: "download engine", Total: 200_000_000, Unit: Bytes},
			func(b *Bar, c *clock) {
				for range 4 {
					c.pass(3 * time.Second)
					b.Add(30_000_000)
				}
				c.pass(8 * time.Second)
				b.Add(80_000_000)
			},
			"download engine: 60.0 MB of 200.0 MB (30 %), 10.0 MB/s, 14s left\n" +
				"download engine: 120.0 MB of 200.0 MB (60 %), 10.0 MB/s, 8s left\n" +
				"download engine: 200.0 MB of 200.0 MB (100 %), 10.0 MB/s\n" +
				"download engine: 200.0 MB in 20s, 10.0 MB/s\n",
		},
		"items without a total: neither share nor time left": {
			Options{What: "replay", Noun: "records"},
			func(b *Bar, c *clock) {
				c.pass(6 * time.Second)
				b.Set(1500)
			},
			"replay: 1500 records, 250/s\nreplay: 1500 records in 6s, 250/s\n",
		},
		"short work has only its last line": {
			Options{What: "bench", Total: 10, Noun: "runs"},
			func(b *Bar, c *clock) {
				for range 10 {
					c.pass(100 * time.Millisecond)
					b.Add(1)
				}
			},
			"bench: 10 runs in 1s, 10/s\n",
		},
		"nothing done yet is no division by zero": {
			Options{What: "wait", Total: 10},
			func(b *Bar, c *clock) {
				c.pass(6 * time.Second)
				b.Add(0)
			},
			"wait: 0 items of 10 items (0 %), 0/s\nwait: 0 items in 6s, 0/s\n",
		},
		"no time passed": {Options{What: "blink"}, func(b *Bar, _ *clock) { b.Add(3) }, "blink: 3 items in 0s\n"},
		"quiet":          {Options{What: "secret", Quiet: true}, func(b *Bar, c *clock) { c.pass(time.Hour); b.Add(3) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			clk := &clock{time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)}
			c.o.Out, c.o.Now = &out, clk.now
			b := New(c.o)
			c.work(b, clk)
			b.Done()
			b.Add(1) // after the end: nothing
			b.Done()
			if out.String() != c.want {
				t.Errorf("shown:\n%swant:\n%s", out.String(), c.want)
			}
		})
	}
}

func TestNoPlaceToShowIsQuiet(t *testing.T) {
	b := New(Options{What: "nowhere"})
	b.Add(1)
	b.Done()
}

func TestWriterCountsFromSeveralGoroutines(t *testing.T) {
	var out bytes.Buffer
	b := New(Options{Out: &out, What: "copy", Unit: Bytes})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := io.Copy(b, strings.NewReader(strings.Repeat("x", 250))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b.Done()
	if !strings.HasPrefix(out.String(), "copy: 1.0 kB in ") {
		t.Errorf("shown %q", out.String())
	}
}

func TestByteSize(t *testing.T) {
	for n, want := range map[float64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 999_949: "999.9 kB", 999_951: "1.0 MB", 2.5e9: "2.5 GB", 3e15: "3000.0 TB"} {
		if got := byteSize(n); got != want {
			t.Errorf("%g: %s, want %s", n, got, want)
		}
	}
}

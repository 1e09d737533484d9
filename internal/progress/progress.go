// Package progress shows how far long work has come: a bar on a terminal, a plain line now and then in a log, nothing when
// told to be quiet. It measures nothing but what it is told, and starts no goroutine.
package progress

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Unit is what is counted.
type Unit int

// Units.
const (
	Items Unit = iota
	Bytes
)

// Options say what is shown and where.
type Options struct {
	// Out is where it is shown, standard error as a rule. A terminal gets a bar, anything else lines.
	Out io.Writer
	// What the work is, in a few words: "download engine".
	What string
	// Total is how much there is to do; 0 = not known.
	Total int64
	Unit  Unit
	// Noun names the items, in the plural: "records". Unused with Bytes.
	Noun string
	// Quiet shows nothing.
	Quiet bool
	// Every is the least time between two lines, or two drawings of the bar; 0 = five seconds, and a tenth of one.
	Every time.Duration
	// Now is the clock of the lines; nil = time.Now.
	Now func() time.Time
}

// Bar is the progress of one piece of work, safe for concurrent use. End it with Done.
type Bar struct {
	mu    sync.Mutex
	o     Options
	bar   *progressbar.ProgressBar // nil = lines
	done  int64
	ended bool
	began time.Time
	told  time.Time // of the last line
}

// New begins to show the progress of a piece of work.
func New(o Options) *Bar {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Noun == "" {
		o.Noun = "items"
	}
	if o.Out == nil {
		o.Quiet = true
	}
	b := &Bar{o: o, began: o.Now()}
	b.told = b.began
	f, ok := o.Out.(*os.File)
	switch {
	case ok && !o.Quiet && term.IsTerminal(int(f.Fd())):
		b.o.Every = cmp.Or(o.Every, 100*time.Millisecond)
		b.bar = newBar(b.o)
	default:
		b.o.Every = cmp.Or(o.Every, 5*time.Second)
	}
	return b
}

func newBar(o Options) *progressbar.ProgressBar {
	options := []progressbar.Option{
		progressbar.OptionSetWriter(o.Out),
		progressbar.OptionSetDescription(o.What),
		progressbar.OptionSetWidth(20),
		progressbar.OptionThrottle(o.Every),
		progressbar.OptionShowCount(),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionSetSpinnerChangeInterval(0), // no goroutine
		progressbar.OptionSpinnerType(14),
	}
	if o.Unit == Bytes {
		options = append(options, progressbar.OptionShowBytes(true))
	} else {
		options = append(options, progressbar.OptionShowIts(), progressbar.OptionSetItsString(o.Noun))
	}
	total := o.Total
	if total <= 0 {
		total = -1
	}
	return progressbar.NewOptions64(total, options...)
}

// Add says that n more are done.
func (b *Bar) Add(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(b.done + n)
}

// Set says that n are done in all.
func (b *Bar) Set(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(n)
}

// Write counts bytes and keeps none, for io.MultiWriter and io.TeeReader.
func (b *Bar) Write(p []byte) (int, error) {
	b.Add(int64(len(p)))
	return len(p), nil
}

func (b *Bar) set(n int64) {
	if b.ended || b.o.Quiet {
		return
	}
	if b.bar != nil {
		// A total that was too low is raised, as the bar refuses to go beyond it.
		if b.o.Total > 0 && n > b.o.Total {
			b.o.Total = n
			b.bar.ChangeMax64(n + 1)
		}
		_ = b.bar.Add64(n - b.done) // what cannot be shown must not stop the work
		b.done = n
		return
	}
	b.done = n
	if now := b.o.Now(); now.Sub(b.told) >= b.o.Every {
		b.told = now
		b.line(now)
	}
}

// Done ends it: the bar goes, and a last line says how much it was and how long it took.
func (b *Bar) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended || b.o.Quiet {
		return
	}
	b.ended = true
	if b.bar != nil {
		_ = b.bar.Clear()
	}
	took := b.o.Now().Sub(b.began)
	fmt.Fprintf(b.o.Out, "%s: %s in %s%s\n", b.o.What, b.amount(b.done), round(took), b.rate(took))
}

// line shows where the work stands.
func (b *Bar) line(now time.Time) {
	took := now.Sub(b.began)
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %s", b.o.What, b.amount(b.done))
	if b.o.Total > 0 {
		fmt.Fprintf(&s, " of %s (%d %%)", b.amount(b.o.Total), b.done*100/b.o.Total)
	}
	s.WriteString(b.rate(took))
	if left := b.o.Total - b.done; left > 0 && b.done > 0 {
		fmt.Fprintf(&s, ", %s left", round(time.Duration(float64(took)*float64(left)/float64(b.done))))
	}
	fmt.Fprintln(b.o.Out, s.String())
}

func (b *Bar) amount(n int64) string {
	if b.o.Unit == Bytes {
		return byteSize(float64(n))
	}
	return fmt.Sprintf("%d %s", n, b.o.Noun)
}

func (b *Bar) rate(took time.Duration) string {
	if took <= 0 {
		return ""
	}
	perSecond := float64(b.done) / took.Seconds()
	if b.o.Unit == Bytes {
		return fmt.Sprintf(", %s/s", byteSize(perSecond))
	}
	return fmt.Sprintf(", %.4g/s", perSecond)
}

// byteSize prints a number of bytes in decimal units.
func byteSize(n float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if math.Abs(n) < 999.95 {
			if unit == "B" {
				return fmt.Sprintf("%.0f B", n)
			}
			return fmt.Sprintf("%.1f %s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.1f TB", n)
}

func round(d time.Duration) time.Duration {
	if d >= 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(10 * time.Millisecond)
}

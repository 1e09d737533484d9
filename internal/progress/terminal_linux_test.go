package progress

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo-terminal: what is written to tty can be read from screen.
func terminal(t *testing.T) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return screen, tty
}

func TestBarOnATerminal(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want []string
	}{
		"bytes":           {Options{Total: 2000, Unit: Bytes}, []string{"50%", "(1.0/2.0 kB", "copy things: 2.0 kB in "}},
		"items":           {Options{Total: 2000, Noun: "records"}, []string{"50%", "(1000/2000", "records/", "copy things: 2000 records in "}},
		"a total too low": {Options{Total: 1500}, []string{"(0/1500", "(1000/1500", "(2000/2001", "copy things: 2000 items in "}},
		"no total":        {Options{Unit: Bytes}, []string{"(1.0 kB", "copy things: 2.0 kB in "}},
	} {
		t.Run(name, func(t *testing.T) {
			screen, tty := terminal(t)
			c.o.Out, c.o.What, c.o.Every = tty, "copy things", 1
			b := New(c.o)
			b.Add(1000)
			b.Add(1000)
			b.Done()
			fmt.Fprint(tty, "END")
			var shown strings.Builder
			for buf := make([]byte, 4096); !strings.HasSuffix(shown.String(), "END"); {
				n, err := screen.Read(buf)
				if err != nil {
					t.Fatal(err)
				}
				shown.Write(buf[:n])
			}
			for _, want := range append(c.want, "copy things", "\r") {
				if !strings.Contains(shown.String(), want) {
					t.Errorf("the screen lacks %q: %q", want, shown.String())
				}
			}
		})
	}
}

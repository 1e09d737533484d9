package scrape

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// texts are expositions with everything that occurs in them.
var texts = map[string]string{
	"samples":                 "# HELP a Some help, with \\ in it.\n# TYPE a counter\na{x=\"1\",y=\"two\"} 3\na{x=\"2\"} 4.5 1700000000000\n\n  \nb 7\n# a comment\nc{} NaN\n",
	"the error of a binary":   "a{x=\"1\"} ERROR - FAILED TO CONVERT TO STRING\nb 2\n",
	"quotes nobody escaped":   "a{x=\"name with \"quotes\"\"} 41\nb{x=\"1\"} 2\n",
	"a line that was cut":     "a{x=\"1\"\nb{y=\"2\"} 3\n",
	"a quote that was cut":    "a{x=\"1\nb{y=\"2\"} 3\nc 4\n",
	"a quote closed later":    "a{x=\"1\nb\",y=\"2\"} 3\nc 4\n",
	"the body of an error":    "a 1\n{\"error\":\"internal server error\"}\nb 2\n",
	"a broken type":           "# TYPE a nonsense\na 1\n# TYPE\nb 2\n",
	"bad lines in a row":      "x x\ny y\nz z\na 1\n",
	"names in quotes":         "{\"a.b\",x=\"1\"} 2\n",
	"escapes":                 "a{x=\"\\\"q\\\" \\\\ \\n\"} 1\n",
	"the last line is bad":    "a 1\nb b\n",
	"the first line is bad":   "b b\na 1\n",
	"carriage returns":        "a 1\r\nb{x=\"1\"} 2\r\n",
	"bytes that are not UTF8": "a{x=\"\xff\"} 1\nb 2\n",
	"a NUL":                   "a{x=\"\x00\"} 1\n\x00\nb 2\n",
}

type got struct {
	Name, Block, Labels string
	Value               uint64
	Millis              int64
}

func collectLines(text string) ([]got, Malformed, error) {
	var out []got
	bad, err := NewText().Read([]byte(text), func(l *Line) {
		var all []string
		l.Labels(func(name, value string) { all = append(all, name+"="+value) })
		slices.Sort(all)
		out = append(out, got{string(l.Name()), string(l.Block()), strings.Join(all, "\x01"), math.Float64bits(l.Value), l.Millis})
	})
	return out, bad, err
}

// oneByOne gives every line to a parser of its own: slow, and plainly right about which lines can be read.
func oneByOne(text string) (out []got, bad int) {
	for line := range strings.Lines(text) {
		if strings.TrimLeft(line, " \t\n") == "" {
			continue
		}
		p := textparse.NewPromParser([]byte(line), labels.NewSymbolTable(), false)
		entry, err := p.Next()
		if err != nil { // io.EOF too: the line is not blank
			bad++
			continue
		}
		if entry != textparse.EntrySeries {
			continue
		}
		series, millis, value := p.Series()
		g := got{Value: math.Float64bits(value)}
		if millis != nil {
			g.Millis = *millis
		}
		if at := bytes.IndexByte(series, '{'); at >= 0 {
			g.Block = string(series[at:])
		}
		var ls labels.Labels
		p.Labels(&ls)
		g.Name = ls.Get(model.MetricNameLabel)
		var all []string
		ls.Range(func(l labels.Label) {
			if l.Name != model.MetricNameLabel {
				all = append(all, l.Name+"="+l.Value)
			}
		})
		slices.Sort(all)
		g.Labels = strings.Join(all, "\x01")
		out = append(out, g)
	}
	return out, bad
}

func TestReadIsThatOfEveryLineAlone(t *testing.T) {
	for name, text := range texts {
		t.Run(name, func(t *testing.T) { checkText(t, text) })
	}
}

func checkText(t *testing.T, text string) {
	t.Helper()
	want, bad := oneByOne(text)
	lines, malformed, err := collectLines(text)
	if err != nil {
		if f, ok := errors.AsType[*Failure](err); !ok || f.Reason != "malformed" || len(want) > 0 && bad <= maxMalformed {
			t.Fatalf("%q: %v", text, err)
		}
		return
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("%q (-line by line +at once):\n%s", text, diff)
	}
	if malformed.Lines() != bad {
		t.Errorf("%q: %d lines cannot be read, counted are %d", text, bad, malformed.Lines())
	}
}

func TestReadCountsByReason(t *testing.T) {
	_, bad, err := collectLines("a{x=\"1\"} ERROR\nb 1\n{\"error\"}\nc{x=\"1} 2\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := (Malformed{Syntax: 2, Value: 1, First: "a{x=\"1\"} ERROR"}); bad != want {
		t.Errorf("%+v, want %+v", bad, want)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, reason string }{
		"an empty answer":              {"", "empty"},
		"an answer cut inside a line":  {"a 1\nb", "truncated"},
		"a page of HTML":               {"<html>\n<body>\n</body>\n</html>\n", "malformed"},
		"more bad lines than any page": {"a 1\n" + strings.Repeat("x x\n", maxMalformed+1), "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := collectLines(c.text)
			if f, ok := errors.AsType[*Failure](err); !ok || f.Reason != c.reason {
				t.Errorf("error %v, want one of reason %s", err, c.reason)
			}
		})
	}
}

func TestReadLeavesTheTextAlone(t *testing.T) {
	for name, text := range texts {
		// What lies behind the text in its memory must not be read or written.
		memory := append([]byte(text), "XXXX"...)
		_, _ = NewText().Read(memory[:len(text)], func(l *Line) { l.Labels(func(string, string) {}) })
		if want := text + "XXXX"; string(memory) != want {
			t.Errorf("%s: the memory became %q", name, memory)
		}
	}
}

func TestEveryPrefix(t *testing.T) {
	for _, text := range texts {
		for i := range text {
			prefix := []byte(text[:i])
			_, err := NewText().Read(prefix[:i:i], func(l *Line) { l.Labels(func(string, string) {}) })
			if f, ok := errors.AsType[*Failure](err); i > 0 && text[i-1] != '\n' && (!ok || f.Reason != "truncated") {
				t.Fatalf("%q: %v", prefix, err)
			}
			if i > 0 && text[i-1] == '\n' {
				checkText(t, text[:i])
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { checkText(t, text+"\n") })
}

func ExampleText() {
	_, err := NewText().Read([]byte("up{node=\"n1\"} 1\n"), func(l *Line) {
		fmt.Printf("%s %s %v\n", l.Name(), l.Block(), l.Value)
	})
	fmt.Println(err)
	// Output:
	// up {node="n1"} 1
	// <nil>
}

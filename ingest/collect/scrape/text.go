package scrape

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// Failure is a read that was refused whole, with the reason it is counted under.
type Failure struct {
	Reason string
	Err    error
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap gives the error without its reason.
func (f *Failure) Unwrap() error { return f.Err }

func failf(reason, format string, args ...any) error {
	return &Failure{reason, fmt.Errorf(format, args...)}
}

// maxMalformed is how many lines of one answer may be unreadable before all of it is taken for something else.
const maxMalformed = 1000

// Malformed counts the lines of an answer that could not be read.
type Malformed struct {
	Syntax int    // not a sample at all, or one whose labels are broken
	Value  int    // a sample whose value is no number
	First  string // the beginning of the first one
}

// Lines is how many there were.
func (m Malformed) Lines() int { return m.Syntax + m.Value }

// Text reads expositions, one after the other; it is reused to save memory.
type Text struct {
	symbols *labels.SymbolTable
	line    Line
}

// NewText makes a reader of expositions.
func NewText() *Text { return &Text{symbols: labels.NewSymbolTable()} }

// Line is one sample. It is valid during the call that it is given to.
type Line struct {
	// Value is the number as written.
	Value float64
	// Millis is the time the exposition gives the sample, in Unix milliseconds; 0 = none, which is the rule.
	Millis int64

	parser textparse.Parser
	series []byte
	labels labels.Labels
}

// Name is the metric's name.
func (l *Line) Name() []byte {
	if n := bytes.IndexByte(l.series, '{'); n > 0 {
		return l.series[:n]
	} else if n < 0 {
		return l.series
	}
	l.parser.Labels(&l.labels) // the name stands quoted between the braces
	return []byte(l.labels.Get(model.MetricNameLabel))
}

// Block is all labels as they are written: two samples with equal blocks have equal labels. It is empty without labels.
func (l *Line) Block() []byte {
	if n := bytes.IndexByte(l.series, '{'); n >= 0 {
		return l.series[n:]
	}
	return nil
}

// Labels gives the labels with escapes undone. The strings may be kept.
func (l *Line) Labels(take func(name, value string)) {
	l.parser.Labels(&l.labels)
	l.labels.Range(func(label labels.Label) {
		if label.Name != model.MetricNameLabel {
			take(label.Name, label.Value)
		}
	})
}

// Read calls take for every sample in the order of the text. A line that cannot be read is counted and skipped, and
// does not harm its neighbours; an answer without end, or without anything that looks like one, is refused. An
// exposition ends with a newline, so one that does not was cut.
func (t *Text) Read(body []byte, take func(*Line)) (Malformed, error) {
	var bad Malformed
	if len(body) == 0 {
		return bad, failf("empty", "the answer is empty: check what listens there")
	}
	if body[len(body)-1] != '\n' {
		return bad, failf("truncated", "the answer ends in the middle of a line, after %d bytes", len(body))
	}
	samples := 0
	for rest := body; len(rest) > 0; {
		done, n, err := t.run(rest, take)
		samples += n
		if err == nil {
			break
		}
		line := skipBlank(rest[done:])
		if len(line) == 0 {
			break
		}
		end := bytes.IndexByte(line, '\n') + 1
		if bad.First == "" {
			bad.First = string(line[:min(end-1, 200)])
		}
		if _, isValue := errors.AsType[*strconv.NumError](err); isValue {
			bad.Value++
		} else {
			bad.Syntax++
		}
		if bad.Lines() > maxMalformed {
			return bad, failf("malformed", "more than %d lines cannot be read, the first is %q: is this a /metrics page?", maxMalformed, bad.First)
		}
		rest = line[end:]
	}
	if samples == 0 && bad.Lines() > 0 {
		return bad, failf("malformed", "no line can be read, the first is %q: is this a /metrics page?", bad.First)
	}
	return bad, nil
}

var (
	errLineBreak = errors.New("a line break inside a label") // an open quote that a later line closed
	errNUL       = errors.New("a NUL byte")                  // which the parser takes for the end
)

// run reads until the first line that cannot be read, or the end, which gives no error. It returns where the line after
// the last good one begins, and the number of samples.
func (t *Text) run(text []byte, take func(*Line)) (done, samples int, err error) {
	// The parser appends a newline. Given the place of the one that is there it writes nothing new and copies nothing.
	parser := textparse.NewPromParser(text[:len(text)-1:len(text)], t.symbols, false)
	t.line.parser = parser
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			if len(skipBlank(text[done:])) > 0 {
				return done, samples, errNUL
			}
			return len(text), samples, nil
		}
		if err != nil {
			return done, samples, err
		}
		var at []byte // some part of the line just read, inside text
		switch entry {
		case textparse.EntrySeries:
			var millis *int64
			at, millis, t.line.Value = parser.Series()
			if bytes.IndexByte(at, '\n') >= 0 {
				return done, samples, errLineBreak
			}
			t.line.Millis = 0
			if millis != nil {
				t.line.Millis = *millis
			}
			t.line.series = at
			take(&t.line)
			samples++
		case textparse.EntryType:
			at, _ = parser.Type()
		case textparse.EntryHelp:
			at, _ = parser.Help()
		case textparse.EntryComment:
			at = parser.Comment()
		default:
			continue
		}
		// The parser tells no position, but its slices share the text's memory up to its end, so their capacity does.
		end := len(text) - cap(at) + len(at)
		done = end + bytes.IndexByte(text[end:], '\n') + 1
	}
}

func skipBlank(text []byte) []byte {
	for {
		end := bytes.IndexByte(text, '\n')
		if end < 0 || len(bytes.TrimLeft(text[:end], " \t")) > 0 {
			return text
		}
		text = text[end+1:]
	}
}

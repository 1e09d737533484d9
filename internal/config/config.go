// Package config reads one YAML file into the settings of a program: strictly, so that a slip in a key is an error and
// not a setting that silently does nothing. It knows no setting of its own, and holds no secret: those are read by
// whoever needs them, from the files that keys ending in _file name.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
)

// Validator is implemented by settings that can be wrong as a whole. The error names the keys at fault and the remedy.
type Validator interface{ Validate() error }

// EnvPrefix begins the environment variables that override keys: SPILLWAY_LOAD_BATCH_ROWS is load.batch_rows.
const EnvPrefix = "SPILLWAY"

// Option changes where Load looks.
type Option func(*loader)

// WithEnv replaces the environment of the process; the form is that of os.Environ.
func WithEnv(env []string) Option { return func(l *loader) { l.env = env } }

// WithNotes calls note for what is not wrong, but that somebody should read: environment variables that are nearly a key.
func WithNotes(note func(string)) Option { return func(l *loader) { l.note = note } }

// WithGone names keys of earlier versions, by path, and what a reader of theirs should know. They are not refused: note is told.
func WithGone(keys map[string]string) Option { return func(l *loader) { l.gone = keys } }

// Load fills into, which holds the defaults, from the file at path and then from the environment, and validates the
// result. An empty path reads no file. A key that is left out, or has no value, keeps its default; a list replaces the
// default as a whole.
//
// Keys are named by yaml tags. Values are strings, booleans, numbers, durations with a unit ("15s"), lists, maps with
// text keys, nested structs, and whatever reads itself by encoding.TextUnmarshaler or UnmarshalYAML(func(any) error).
// Anchors, aliases and tags of YAML are refused. All faults of a file are reported together.
//
// Variables of the environment give a scalar as it is, a list with commas between, anything else as YAML in one line.
func Load[T any](path string, into *T, options ...Option) error {
	l := &loader{file: path, root: reflect.ValueOf(into).Elem(), env: os.Environ(), note: func(string) {}}
	for _, o := range options {
		o(l)
	}
	names, err := keysOf(l.root.Type())
	if err != nil {
		return err
	}
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read configuration: %w; check the path, or leave it out to run with defaults", err)
		}
		l.read(text)
	}
	l.override(names)
	if len(l.faults) > 0 {
		slices.SortStableFunc(l.faults, func(a, b fault) int { return cmp.Compare(a.order(), b.order()) })
		var all []error
		for _, f := range l.faults {
			all = append(all, f)
		}
		return errors.Join(all...)
	}
	if v, ok := any(into).(Validator); ok {
		if err := v.Validate(); err != nil {
			return fmt.Errorf("%s: %w", cmp.Or(path, "configuration"), err)
		}
	}
	return nil
}

// loader is one Load.
type loader struct {
	file   string
	root   reflect.Value
	env    []string
	note   func(string)
	gone   map[string]string // what to say of a key of earlier versions, by path
	faults []fault
}

// fault is one thing that is wrong, at a line of the file or, at line 0, in the environment.
type fault struct {
	where string
	line  int
	text  string
}

func (f fault) Error() string { return f.where + ": " + f.text }

// order is that of the lines, the environment last.
func (f fault) order() int { return cmp.Or(f.line, math.MaxInt) }

func (l *loader) faultf(line int, format string, args ...any) {
	where := l.file
	if line > 0 {
		where = fmt.Sprintf("%s:%d", l.file, line)
	}
	l.faults = append(l.faults, fault{where, line, fmt.Sprintf(format, args...)})
}

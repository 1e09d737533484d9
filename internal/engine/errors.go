package engine

import (
	"errors"
	"strings"
)

// Kinds of failure a caller or a test may tell apart with errors.Is.
var (
	ErrNoClickHouse = errors.New("no clickhouse engine to run")       // neither library, npm, binary nor address
	ErrLibrary      = errors.New("clickhouse library cannot be used") // damaged or of another platform
	ErrPortInUse    = errors.New("port is in use")
	ErrDiskFull     = errors.New("disk is full")
	ErrCorruptData  = errors.New("data directory is damaged")
	ErrDataDirInUse = errors.New("data directory is in use")
	ErrNotReady     = errors.New("engine did not become ready")
	ErrDied         = errors.New("engine ended by itself")
)

// Error is a failure a person can act on: what was being done, which kind it is, what was seen and what to do next.
type Error struct {
	Op     string // what was being done, lower case
	Kind   error  // one of the sentinels above
	Detail string // what was seen, possibly several lines of the engine's own log
	Hint   string // what to do next
}

// Error puts the remedy before the engine's log lines, which may be long.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op + ": " + e.Kind.Error())
	if e.Hint != "" {
		b.WriteString(": " + e.Hint)
	}
	if e.Detail != "" {
		b.WriteString("\n  " + strings.ReplaceAll(strings.TrimSpace(e.Detail), "\n", "\n  "))
	}
	return b.String()
}

// Unwrap makes errors.Is find the kind.
func (e *Error) Unwrap() error { return e.Kind }

package slurm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
)

// Source is one way to ask slurmctld. A read is of the full state, or Unchanged.
type Source interface {
	// Name is the source of the records.
	Name() string
	// Jobs reads all jobs. since is the LastUpdate of the last full answer; zero asks for the full state in any case.
	Jobs(ctx context.Context, since time.Time) Jobs
	// Nodes reads all nodes, likewise; nil when this source has no nodes.
	Nodes(ctx context.Context, since time.Time) Nodes
}

// Closer asks accounting how runs ended.
type Closer interface {
	// Name is the source of the records.
	Name() string
	// Runs reads every run of the given jobs; with no jobs, of all that were in a state other than pending since then.
	Runs(ctx context.Context, jobs []uint32, since, until time.Time) Jobs
}

// readError is a read that failed. reason is its label in the metrics.
type readError struct {
	reason string
	err    error
}

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

func failed(reason, format string, args ...any) error {
	return &readError{reason, fmt.Errorf(format, args...)}
}

// reasonOf is the label of a failed read.
func reasonOf(err error) string {
	var read *readError
	var document *slurmjson.DocumentError
	var reported *slurmjson.ReportedError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &read):
		return read.reason
	case errors.As(err, &reported):
		return "slurm"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &document):
		return "document"
	}
	return "refused"
}

// Package collect is the first hop of the flow: it holds what every collector shares. A collector turns one source
// into records of the contract and emits them; it knows neither Kafka nor ClickHouse, looks nothing up and judges
// nothing.
package collect

import (
	"context"

	"github.com/spillway-io/spillway/schemas/event"
)

// Emitter takes records on their way to Kafka. Emit returns once all of them are stored there, or with the reason
// they are not; it blocks while the pipeline is full, which is the only back-pressure a collector needs. A collector
// may call it from several goroutines. Records of one key are kept in the order of the calls.
type Emitter interface {
	Emit(ctx context.Context, records ...event.Record) error
}

// Collector is one source. Run emits the source's full state first, then changes, until ctx ends, and then returns
// nil. It retries what a retry can mend, counts what it drops, and returns an error only when going on is pointless.
// On a failed read it emits nothing: stale beats partial.
type Collector interface {
	// Name is the source as configuration and metrics call it.
	Name() string
	Run(ctx context.Context, out Emitter) error
}

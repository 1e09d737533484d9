package engine

import (
	"context"
	"log/slog"
)

// Fetch makes sure that an embedded ClickHouse can be started here, fetching its library into the cache when nothing
// else will do, and says what would run. It starts nothing.
func Fetch(ctx context.Context, c ClickHouseConfig, log *slog.Logger) (string, error) {
	p, err := findProgram(ctx, c, log)
	return p.name, err
}

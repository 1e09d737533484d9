package clickhouse

import (
	"errors"
	"fmt"
)

// The oldest server that will do: 26.3 is the first with materialized common table expressions, which query/read uses. Tests
// run on the version that internal/engine fetches.
const oldestYear, oldestMonth = 26, 3

// ErrOldServer marks a ClickHouse that does not know all that is asked of it.
var ErrOldServer = errors.New("this ClickHouse is too old")

// Supported is ErrOldServer unless a server's version(), such as 26.7.3.1, is known to be new enough.
func Supported(version string) error {
	var year, month int
	if _, err := fmt.Sscanf(version, "%d.%d", &year, &month); err == nil && (year > oldestYear || year == oldestYear && month >= oldestMonth) {
		return nil
	}
	return fmt.Errorf("%w: its version is %q, and %d.%d is the oldest that will do: update the server, or leave out engine.clickhouse.addresses to run the one that Spillway brings",
		ErrOldServer, version, oldestYear, oldestMonth)
}

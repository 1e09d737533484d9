package engine

import "time"

const (
	childArg = "__clickhouse-child"
	childEnv = "SPILLWAY_CLICKHOUSE_CHILD"

	// libraryLoaded is what the child says once the library is in. A damaged file may as well crash the loader as be
	// refused by it, so the absence of this line is the only sure sign.
	libraryLoaded = "clickhouse child: library loaded"

	// stopGrace is how long ClickHouse may take to close its tables before it is cut off.
	stopGrace = 15 * time.Second
)

//go:build !linux

package engine

// MaybeRunChild does nothing here: the embedded library is published for Linux only, and a clickhouse binary needs no
// child of ours.
func MaybeRunChild() {}

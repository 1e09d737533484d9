package pass

// runState is what the passes remember between two of them. All of it can be read again from the tables.
type runState struct{}

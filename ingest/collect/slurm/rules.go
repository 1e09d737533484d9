package slurm

import (
	"slices"

	"github.com/spillway-io/spillway/ingest/collect"
)

// Match and ClassRule are the rules on jobs that all schedulers share.
type (
	Match     = collect.Match
	ClassRule = collect.ClassRule
)

func (c *Config) probe(j collect.Subject) bool {
	return slices.ContainsFunc(c.Probes, func(m Match) bool { return m.Matches(j) })
}

package policysim

import (
	"errors"
	"fmt"
	"math"

	"github.com/spillway-io/spillway/query/advise"
)

// Config is what is simulated.
type Config struct {
	Racks, NodesPerRack, GPUsPerNode int
	// Mix names a job mix; Sizes is used instead where it is given, and Trace instead of both.
	Mix   string
	Sizes []Size
	Trace []Job
	// Jobs is how many are drawn, and Load their work as a share of the healthy capacity.
	Jobs int
	Load float64
	// Spares are the nodes of each rack that gangs plan without: 2 of 18 plans with 16.
	Spares int
	// MTBF and Repair are a node's mean times to failure and to repair, in seconds; MTBF 0 for no failures. Jobs save their
	// work every Checkpoint seconds and need Restart seconds to begin again.
	MTBF, Repair        float64
	Checkpoint, Restart int64
	// EstimateError is sigma of the lognormal error of end estimates.
	EstimateError float64
	// Urgent is the share of jobs with a higher priority.
	Urgent float64
	// Reservations is how many blocked jobs the queue holds nodes for, and Depth how many it looks at behind them.
	Reservations, Depth int
	// Links are what strategies predict with, and Truth what slowdowns come from; the zero Truth is Links.
	Links, Truth advise.Links
	// Harm is the predicted loss, as a share of run time, above which a spill is called harmful.
	Harm float64
}

// DefaultConfig is 16 racks of NVL72 at a load of 0.9, with failures and 16-of-18 planning on.
func DefaultConfig() Config {
	return Config{
		Racks: 16, NodesPerRack: 18, GPUsPerNode: 4, Mix: "nvl72", Jobs: 4000, Load: 0.9, Spares: 2,
		MTBF: 30 * 24 * 3600, Repair: 24 * 3600, Checkpoint: 3600, Restart: 600, EstimateError: 0.7,
		Urgent: 0.05, Reservations: 4, Depth: 100, Links: advise.DefaultLinks(), Harm: 0.02,
	}
}

// Validate says what is wrong with a configuration, all of it at once.
func (c *Config) Validate() error {
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.Racks < 1 || c.NodesPerRack < 1, "racks %d of %d nodes: give at least one of each", c.Racks, c.NodesPerRack)
	bad(c.GPUsPerNode < 1 || c.GPUsPerNode > 16, "%d GPUs per node: give 1 to 16", c.GPUsPerNode)
	bad(c.Spares < 0 || c.Spares >= c.NodesPerRack, "%d spares of %d nodes: leave a gang at least one", c.Spares, c.NodesPerRack)
	bad(len(c.Trace) == 0 && c.Jobs < 1, "%d jobs: draw at least one", c.Jobs)
	bad(len(c.Trace) == 0 && !(c.Load > 0 && c.Load <= 2), "load %g: give a share of the capacity, such as 0.9", c.Load)
	bad(!(c.EstimateError >= 0 && c.EstimateError <= 10), "estimate error %g: give a sigma of the logarithm from 0 to 10", c.EstimateError)
	bad(!(c.Urgent >= 0 && c.Urgent <= 1), "urgent %g: give a share of the jobs from 0 to 1", c.Urgent)
	bad(c.MTBF > 0 && c.Repair <= 0, "nodes fail but are never repaired: give a repair time")
	bad(c.Reservations < 1 || c.Depth < 0, "%d reservations, depth %d: reserve for at least one job", c.Reservations, c.Depth)
	speed := func(gbps float64) bool { return gbps > 0 && !math.IsInf(gbps, 1) }
	bad(!speed(c.Links.Domain) || !speed(c.Links.Cluster), "link speeds %g and %g: give both in GB/s", c.Links.Domain, c.Links.Cluster)
	return errors.Join(errs...)
}

// truth is the fabric that jobs run on.
func (c *Config) truth() *advise.Links {
	if c.Truth.Domain > 0 {
		return &c.Truth
	}
	return &c.Links
}

// capacity is the expected number of GPUs on healthy nodes.
func (c *Config) capacity() float64 {
	gpus := float64(c.Racks * c.NodesPerRack * c.GPUsPerNode)
	if c.MTBF > 0 {
		gpus *= c.MTBF / (c.MTBF + c.Repair)
	}
	return gpus
}

// topology is the simulated cluster.
func (c *Config) topology() (*advise.Topology, error) {
	var specs []advise.NodeSpec
	for r := range c.Racks {
		for n := range c.NodesPerRack {
			specs = append(specs, advise.NodeSpec{
				Name: fmt.Sprintf("r%03d-n%02d", r, n), Domain: fmt.Sprintf("nvl-%03d", r), GPUs: c.GPUsPerNode, Model: "sim",
			})
		}
	}
	return advise.NewTopology(1, nil, specs)
}

// Policy is a strategy and what the scheduler that has it would be told of a job.
type Policy struct {
	Name     string
	Strategy advise.Strategy
	// Tell edits the ask; nil leaves it.
	Tell func(c *Config, a *advise.Ask)
}

// Policies are those that are compared: the baselines, each told what its users can tell it, and ours.
func Policies(c *Config) []Policy {
	block := advise.SlurmBlock{Sizes: []int32{int32(c.NodesPerRack - c.Spares)}}
	return []Policy{
		{Name: "flat", Strategy: advise.FirstFit{}},
		{Name: "kueue-least-free", Strategy: advise.KueueLeastFree{}},
		{Name: "kueue-preferred", Strategy: advise.KueueBestFit{}},
		{Name: "kueue-required", Strategy: advise.KueueBestFit{}, Tell: func(c *Config, a *advise.Ask) {
			if int(a.Nodes) <= c.NodesPerRack-c.Spares {
				a.Mode = advise.Required
			}
		}},
		{Name: "slurm-block", Strategy: block},
		{Name: "bounded", Strategy: advise.NewBounded(c.Links), Tell: func(c *Config, a *advise.Ask) { a.Spares = int32(c.Spares) }},
	}
}

// TradeOff is the bounded strategy with patience from little to much, beside Slurm block: how much waiting buys how much
// less loss.
func TradeOff(c *Config) []Policy {
	policies := Policies(c)
	bounded := policies[len(policies)-1]
	out := []Policy{policies[len(policies)-2]}
	for _, patience := range []float64{1, 3, 10, 30, 100, 200, 1000} {
		b := advise.NewBounded(c.Links)
		b.Patience = patience
		out = append(out, Policy{Name: fmt.Sprintf("bounded x%g", patience), Strategy: b, Tell: bounded.Tell})
	}
	return out
}

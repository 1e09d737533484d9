package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Policies a partition places jobs by.
const (
	// PolicyFlat takes the first free nodes in name order and knows no racks: jobs spill.
	PolicyFlat = "flat"
	// PolicyBlock works as Slurm's topology/block with the rack as base block: the fewest racks, or the job waits.
	PolicyBlock = "block"
	// PolicyAdvised asks the placement advisor for each job, and places as flat does where it has no opinion.
	PolicyAdvised = "advised"
)

// Config says what fleet to simulate and how fast its life passes.
type Config struct {
	// Seed makes the fleet and its jobs; the same seed gives the same records.
	Seed uint64 `yaml:"seed"`
	// Speed is how many seconds of the fleet's life pass in one second. Times in the records are those of the wall
	// clock: at 60 a job of one hour shows as one minute.
	Speed float64 `yaml:"speed"`
	// EventsPerSecond, if not 0, chooses the speed that gives about this many records a second of jobs and nodes.
	EventsPerSecond float64 `yaml:"events_per_second"`
	// History is how much of the past, lived at speed 1, is emitted before the live part begins.
	History time.Duration `yaml:"history"`
	// Counters is how often the live part emits counters of GPUs and NICs; 0 = never. It goes by the wall clock.
	Counters time.Duration `yaml:"counters"`
	// DataDir keeps the fleet's state (one file, simulate.json), so that a second start resumes. Empty: every start
	// is a new fleet, and jobs of the last one stay open for ever.
	DataDir string `yaml:"data_dir"`
	// AdviceURL is the API that partitions with the policy advised ask, such as http://127.0.0.1:8470.
	AdviceURL string `yaml:"advice_url"`
	// Clusters are simulated side by side.
	Clusters []Cluster `yaml:"clusters"`
}

// Cluster is one simulated cluster of NVL72 racks: 18 trays (nodes) of 4 GPUs each.
type Cluster struct {
	Name  string `yaml:"name"`
	Racks int    `yaml:"racks"`
	// DegradedRacks is how many of the racks have 16 or 17 healthy trays instead of 18; no more than there are.
	DegradedRacks int `yaml:"degraded_racks"`
	// Mix names the sizes and run times of jobs: nvl72, seren, helios or kalos.
	Mix string `yaml:"mix"`
	// Load is work that arrives over work the healthy GPUs could do.
	Load float64 `yaml:"load"`
	// Wave is how far arrivals swing over a day: 0 not at all, 1 down to none.
	Wave float64 `yaml:"wave"`
	// RunTimeSigma is the spread of run times, of the logarithm.
	RunTimeSigma float64 `yaml:"run_time_sigma"`
	// NodeMTBF is the mean time between failures of one node; 0 = nodes never fail.
	NodeMTBF time.Duration `yaml:"node_mtbf"`
	// ProbeEvery is how often a verification job is submitted, which any real job may evict; 0 = never.
	ProbeEvery time.Duration `yaml:"probe_every"`
	// Partitions share out the racks in order.
	Partitions []Partition `yaml:"partitions"`
}

// Partition is a queue with racks of its own.
type Partition struct {
	Name   string `yaml:"name"`
	Policy string `yaml:"policy"` // flat, block or advised
	Racks  int    `yaml:"racks"`  // 0 = an even part of what the others leave
}

// DefaultConfig is the fleet of the demo: 16 racks, 1,152 GPUs, half of them placed without regard to racks.
func DefaultConfig() Config {
	return Config{
		Seed:     1,
		Speed:    60,
		History:  6 * time.Hour,
		Counters: 10 * time.Second,
		Clusters: []Cluster{DefaultCluster()},
	}
}

// DefaultCluster is what a cluster is where the configuration does not say.
func DefaultCluster() Cluster {
	return Cluster{
		Name:          "nvl72",
		Racks:         16,
		DegradedRacks: 4,
		Mix:           "nvl72",
		Load:          0.8,
		Wave:          0.3,
		RunTimeSigma:  1.5,
		NodeMTBF:      2000 * time.Hour,
		ProbeEvery:    30 * time.Minute,
		Partitions: []Partition{
			{Name: "gpu", Policy: PolicyFlat},
			{Name: "block", Policy: PolicyBlock},
		},
	}
}

// UnmarshalYAML gives the keys a cluster leaves out their defaults.
func (c *Cluster) UnmarshalYAML(unmarshal func(any) error) error {
	type plain Cluster // without this method
	p := plain(DefaultCluster())
	if err := unmarshal(&p); err != nil {
		return err
	}
	*c = Cluster(p)
	return nil
}

const (
	maxSpeed  = 100_000
	maxRacks  = 10_000
	maxDegree = 10 // largest run_time_sigma; beyond it every run is the shortest or the longest
)

// Validate returns the first thing that is wrong, with the key and what to write instead.
func (c Config) Validate() error {
	switch {
	case !(c.Speed > 0 && c.Speed <= maxSpeed) && c.EventsPerSecond == 0:
		return fmt.Errorf("speed is %g: give how many seconds of the fleet's life pass in one, above 0 up to %d", c.Speed, maxSpeed)
	case !(c.EventsPerSecond >= 0 && c.EventsPerSecond <= maxSpeed):
		return fmt.Errorf("events_per_second is %g: give a rate, or 0 to go by speed", c.EventsPerSecond)
	case c.History < 0:
		return fmt.Errorf("history is %s: give how much of the past to make up, such as 6h, or 0s for none", c.History)
	case c.Counters < 0 || c.Counters > 0 && c.Counters < time.Second:
		return fmt.Errorf("counters is %s: give at least 1s, or 0s for none", c.Counters)
	case len(c.Clusters) == 0:
		return fmt.Errorf("clusters is empty: name at least one cluster to simulate")
	}
	names := map[string]bool{}
	for i, cl := range c.Clusters {
		if err := cl.validate(); err != nil {
			return fmt.Errorf("clusters[%d]: %w", i, err)
		}
		if names[cl.Name] {
			return fmt.Errorf("clusters[%d]: name %q is taken by an earlier cluster: names must differ", i, cl.Name)
		}
		names[cl.Name] = true
	}
	return nil
}

func (c Cluster) validate() error {
	switch {
	case c.Name == "" || strings.Contains(c.Name, "/"):
		return fmt.Errorf("name is %q: give a name without a slash", c.Name)
	case c.Racks < 1 || c.Racks > maxRacks:
		return fmt.Errorf("racks is %d: give 1 to %d", c.Racks, maxRacks)
	case c.DegradedRacks < 0:
		return fmt.Errorf("degraded_racks is %d: give 0 or more", c.DegradedRacks)
	case mixes[c.Mix] == nil:
		return fmt.Errorf("mix is %q: give one of %s", c.Mix, strings.Join(slices.Sorted(maps.Keys(mixes)), ", "))
	case !(c.Load > 0 && c.Load <= 2):
		return fmt.Errorf("load is %g: give arriving work over capacity, above 0 up to 2", c.Load)
	case !(c.Wave >= 0 && c.Wave <= 1):
		return fmt.Errorf("wave is %g: give 0 (steady) to 1", c.Wave)
	case !(c.RunTimeSigma >= 0 && c.RunTimeSigma <= maxDegree):
		return fmt.Errorf("run_time_sigma is %g: give 0 to %d, about 1.5 for real fleets", c.RunTimeSigma, maxDegree)
	case c.NodeMTBF < 0 || c.NodeMTBF > 0 && c.NodeMTBF < time.Hour:
		return fmt.Errorf("node_mtbf is %s: give at least 1h, or 0s for nodes that never fail", c.NodeMTBF)
	case c.ProbeEvery < 0 || c.ProbeEvery > 0 && c.ProbeEvery < time.Second:
		return fmt.Errorf("probe_every is %s: give at least 1s, or 0s for no probe jobs", c.ProbeEvery)
	case len(c.Partitions) == 0:
		return fmt.Errorf("partitions is empty: give at least one, with a policy of flat or block")
	}
	_, err := c.shares()
	return err
}

// shares gives each partition's number of racks.
func (c Cluster) shares() ([]int, error) {
	left, even := c.Racks, 0
	names := map[string]bool{}
	for i, p := range c.Partitions {
		switch {
		case p.Name == "" || names[p.Name]:
			return nil, fmt.Errorf("partitions[%d]: name is %q: give each partition a name of its own", i, p.Name)
		case p.Policy != PolicyFlat && p.Policy != PolicyBlock && p.Policy != PolicyAdvised:
			return nil, fmt.Errorf("partitions[%d]: policy is %q: give flat, block or advised", i, p.Policy)
		case p.Racks < 0:
			return nil, fmt.Errorf("partitions[%d]: racks is %d: give a number, or 0 for an even part of the rest", i, p.Racks)
		case p.Racks == 0:
			even++
		}
		names[p.Name] = true
		left -= p.Racks
	}
	switch {
	case left < even:
		return nil, fmt.Errorf("partitions ask for more than the %d racks of the cluster: raise racks, or lower that of a partition", c.Racks)
	case left > 0 && even == 0:
		return nil, fmt.Errorf("partitions leave %d of %d racks to nobody: set racks of a partition to 0 for the rest", left, c.Racks)
	}
	racks := make([]int, len(c.Partitions))
	for i, p := range c.Partitions {
		racks[i] = p.Racks
		if p.Racks == 0 {
			racks[i] = left / even
			left -= racks[i]
			even--
		}
	}
	return racks, nil
}

package policysim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/spillway-io/spillway/query/advise"
)

// Size is one row of a job mix: jobs of this many GPUs, their share of all jobs and their mean run time in seconds.
type Size struct {
	GPUs  int
	Share float64
	Mean  float64
}

// Mixes are the job mixes by name. They are rows of those of the same names of ingest/collect/simulate, whose mix.go says where
// the figures come from (nvl72 is assumed; helios and seren are read off plots of AcmeTrace, CC BY 4.0): all but those of 3, 5
// and 7 GPUs, and of more than 512. A test of cmd/spillway compares them.
func Mixes() map[string][]Size {
	return map[string][]Size{
		"nvl72": {
			{1, .22, 3600}, {2, .05, 3600}, {4, .20, 5400}, {8, .18, 7200}, {16, .13, 9000}, {24, .02, 9000}, {32, .08, 12000},
			{48, .02, 12000}, {64, .05, 14400}, {72, .02, 14400}, {128, .02, 18000}, {144, .005, 18000}, {256, .005, 20000},
		},
		"helios": {
			{1, .7219, 3719}, {2, .0256, 16579}, {4, .0563, 10650}, {8, .1401, 12686}, {16, .0303, 20522}, {24, .0036, 10624},
			{32, .0127, 28258}, {40, .0010, 15052}, {48, .0010, 19843}, {56, .0006, 9841}, {64, .0012, 25254}, {80, .0008, 13494},
			{120, .0007, 7931}, {152, .0005, 15909},
		},
		"seren": {
			{1, .5404, 809}, {2, .1139, 626}, {4, .0240, 1924}, {8, .2876, 1342}, {16, .0111, 2244}, {32, .0096, 6296},
			{48, .0007, 1157}, {64, .0043, 10842}, {128, .0023, 14570}, {256, .0018, 12388}, {512, .0013, 5052},
		},
	}
}

// Job is one job of a run. Times are seconds from the start of the run.
type Job struct {
	ID     string
	Submit int64
	GPUs   int32
	// Run is how long it runs in the best shape it could have; Estimate is what its submitter says.
	Run, Estimate int64
	Traffic       advise.Traffic
	// Priority orders the queue before the time of submission does; higher first.
	Priority int64
}

// The assumed communication classes of jobs: shares of jobs, and the exposed communication of a step, which is that of the
// advisor's classes train and train-moe.
const (
	ringShare, ringTraffic = 0.60, 0.03
	allShare, allTraffic   = 0.25, 0.10
)

// generate draws the jobs of a seed. Run times are lognormal about the size's mean, arrivals Poisson with a daily wave,
// and the span is such that the work is the asked share of the healthy capacity.
func (c *Config) generate(seed uint64) ([]Job, error) {
	mix := c.Sizes
	if len(mix) == 0 {
		mix = Mixes()[c.Mix]
	}
	if len(mix) == 0 {
		return nil, fmt.Errorf("drawing jobs: there is no mix %q: use nvl72, helios or seren", c.Mix)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	jobs := make([]Job, c.Jobs)
	work := 0.0
	for i := range jobs {
		size := pick(mix, rng.Float64())
		run := size.Mean * math.Exp(2*rng.NormFloat64()-2)
		jobs[i] = Job{
			ID: fmt.Sprint(i), GPUs: c.legal(size.GPUs), Run: int64(min(max(run, 10), 7*24*3600)),
			Traffic: c.traffic(rng.Float64(), size.GPUs),
		}
		work += float64(jobs[i].GPUs) * float64(jobs[i].Run)
	}
	span := work / (c.Load * c.capacity())
	for i, at := range arrivals(rng, len(jobs), span) {
		jobs[i].Submit = at
	}
	for i := range jobs {
		jobs[i].Estimate = c.estimate(rng, jobs[i].Run)
		if rng.Float64() < c.Urgent {
			jobs[i].Priority = 1
		}
	}
	return jobs, nil
}

// draw gives the jobs of a seed: the trace's, with drawn end estimates, or else generated ones. Jobs of a trace keep their
// size; only what is larger than the cluster without its spares is cut to it.
func (c *Config) draw(seed uint64) ([]Job, error) {
	if len(c.Trace) == 0 {
		return c.generate(seed)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	jobs := slices.Clone(c.Trace)
	for i := range jobs {
		jobs[i].GPUs = min(jobs[i].GPUs, c.most())
		if jobs[i].Estimate == 0 {
			jobs[i].Estimate = c.estimate(rng, jobs[i].Run)
		}
	}
	return jobs, nil
}

// most is the largest gang, in GPUs, that leaves every domain its spares.
func (c *Config) most() int32 { return int32(c.Racks * (c.NodesPerRack - c.Spares) * c.GPUsPerNode) }

// Cut is how many jobs of the trace are larger than the cluster without its spares, and are run as if they were not.
func (c *Config) Cut() (jobs int) {
	for i := range c.Trace {
		if c.Trace[i].GPUs > c.most() {
			jobs++
		}
	}
	return jobs
}

func pick(mix []Size, u float64) Size {
	sum := 0.0
	for _, s := range mix {
		sum += s.Share
	}
	u *= sum
	for _, s := range mix {
		if u < s.Share {
			return s
		}
		u -= s.Share
	}
	return mix[len(mix)-1]
}

// legal is the size that is submitted where gangs leave spares: what would need a spare node, or a part of one, is cut to
// the largest shape that does not.
func (c *Config) legal(gpus int) int32 {
	domain := (c.NodesPerRack - c.Spares) * c.GPUsPerNode
	if gpus > domain {
		gpus -= gpus % domain
	}
	return int32(min(gpus, c.Racks*domain/2))
}

// traffic draws a class. A job larger than a domain crosses the network anyway and is built for it: all-reduce.
func (c *Config) traffic(u float64, gpus int) advise.Traffic {
	switch {
	case gpus > (c.NodesPerRack-c.Spares)*c.GPUsPerNode, u < ringShare:
		return advise.Traffic{Pattern: advise.AllReduce, Share: ringTraffic}
	case u < ringShare+allShare:
		return advise.Traffic{Pattern: advise.AllToAll, Share: allTraffic}
	}
	return advise.Traffic{Pattern: advise.PatternNone}
}

// estimate is the run time times a lognormal error of median 1.5.
func (c *Config) estimate(rng *rand.Rand, run int64) int64 {
	return max(60, int64(float64(run)*1.5*math.Exp(c.EstimateError*rng.NormFloat64())))
}

// arrivals draws n sorted times in [0, span) at a rate that swings by 30 % over a day.
func arrivals(rng *rand.Rand, n int, span float64) []int64 {
	const day, swing = 24 * 3600, 0.3
	w := 2 * math.Pi / day
	sum := func(t float64) float64 { return t + swing/w*(1-math.Cos(w*t)) }
	at := make([]int64, n)
	for i := range at {
		u := rng.Float64() * sum(span)
		at[i] = int64(sort.Search(int(span), func(t int) bool { return sum(float64(t)) >= u }))
	}
	slices.Sort(at)
	return at
}

// failure is a node that goes down and comes back.
type failure struct {
	node     int32
	from, to int64
}

// failures draws when nodes are down until the time end, apart from the jobs, so that a change of mix leaves them alone.
func (c *Config) failures(seed uint64, end int64) []failure {
	if c.MTBF <= 0 {
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	var all []failure
	for n := range c.Racks * c.NodesPerRack {
		for at := rng.ExpFloat64() * c.MTBF; at < float64(end); at += rng.ExpFloat64() * c.MTBF {
			down := max(60, rng.ExpFloat64()*c.Repair)
			all = append(all, failure{node: int32(n), from: int64(at), to: int64(at + down)})
			at += down
		}
	}
	slices.SortFunc(all, func(a, b failure) int {
		if a.from != b.from {
			return int(a.from - b.from)
		}
		return int(a.node - b.node)
	})
	return all
}

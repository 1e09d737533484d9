package policysim

import "slices"

// Result is what a policy did with a seed. Only jobs submitted in the middle of the run are judged, from 15 to 95 % of its
// span. Waits are in seconds and count every time a job was queued.
type Result struct {
	Policy string
	Seed   uint64
	Load   float64

	Jobs           int // judged
	Unstarted      int // judged jobs that never ran
	MeanWait       float64
	P95Wait        float64
	Waits          [4]float64 // mean by size class
	Counts         [4]int
	Lost           float64 // GPU-hours lost to slowdown, as a share of useful GPU-hours
	Spills         float64 // gangs that a domain could hold and that were split, as a share of such gangs
	Harmful        float64 // gangs with a loss above Harm, as a share of all gangs
	Utilised       float64 // GPUs held, as a share of the healthy capacity
	Requeues       int     // by node failures
	Swaps          int     // failed nodes replaced inside the domain
	FailedGPUHours float64 // work lost to failures
}

// SizeClasses names the classes of Result.Waits.
func SizeClasses() [4]string { return [4]string{"< 1 node", "1 node", "2 nodes to 1 rack", "> 1 rack"} }

func (c *Config) class(j *job) int {
	switch {
	case j.ask.Shared > 0:
		return 0
	case j.ask.Nodes == 1:
		return 1
	case int(j.ask.Nodes) <= c.NodesPerRack:
		return 2
	}
	return 3
}

func (o *Result) summarise(c *Config, jobs []job, utilised float64) {
	o.Utilised = utilised
	var waits []float64
	useful, lost := 0.0, 0.0
	gangs, fitting, spills, harmful := 0.0, 0.0, 0.0, 0.0
	for i := range jobs {
		j := &jobs[i]
		if !j.counted {
			continue
		}
		o.Jobs++
		if j.left > 0 {
			o.Unstarted++
			continue
		}
		w := float64(j.wait)
		waits = append(waits, w)
		k := c.class(j)
		o.Waits[k] += w
		o.Counts[k]++
		o.MeanWait += w
		work := float64(j.GPUs) * float64(j.Run)
		useful += work
		lost += work * (j.slow - 1)
		if k < 2 {
			continue
		}
		gangs++
		if j.slow-1 > c.Harm {
			harmful++
		}
		if k == 2 {
			fitting++
			if j.parts > 1 {
				spills++
			}
		}
	}
	if len(waits) == 0 {
		return
	}
	slices.Sort(waits)
	o.MeanWait /= float64(len(waits))
	o.P95Wait = waits[min(len(waits)-1, len(waits)*95/100)]
	for k, n := range o.Counts {
		o.Waits[k] /= max(1, float64(n))
	}
	o.Lost = lost / max(1, useful)
	o.Spills = spills / max(1, fitting)
	o.Harmful = harmful / max(1, gangs)
}

package advise

import (
	"maps"
	"math"
	"slices"
)

// Gang is one class of a mix of gangs: its size in nodes and its weight, such as its share of GPU-hours.
type Gang struct {
	Nodes  int32   `json:"nodes"`
	Weight float64 `json:"weight"`
}

// Fragmentation says how far free nodes are of use to gangs. Slices are indexed by gang size in nodes less one, up to
// the largest domain.
type Fragmentation struct {
	// FreeNodes are wholly free; PartialGPUs are free on nodes in use, which only jobs smaller than a node can have.
	FreeNodes   int32 `json:"free_nodes"`
	PartialGPUs int32 `json:"partial_gpus"`
	// Largest is the most free nodes in one domain.
	Largest int32 `json:"largest_nodes"`
	// Slots is N(s), how many gangs of s nodes fit now, each inside one domain; Ideal is how many would if the free nodes of
	// each GPU model were in full domains; Cliff is their ratio, K(s), 1 where no more would fit.
	Slots []int32   `json:"slots"`
	Ideal []int32   `json:"ideal_slots"`
	Cliff []float64 `json:"cliff"`
	// Stranded is S(s): free GPUs in domains with too few free nodes for a gang of s.
	Stranded []int32 `json:"stranded_gpus"`
	// Drain is T(s): the Unix time at which some domain first has s nodes free by the end estimates; 0 for now, -1 where
	// no estimate reaches it.
	Drain []int64 `json:"drain"`
	// External is 1 - largest / min(free, largest domain), of the model of the largest gang: 0 where the best gang possible fits.
	External float64 `json:"external"`
	// Phi is the mix-weighted expected number of free nodes that a gang cannot use, as a share of the free nodes, and
	// PhiNodes the number itself (fragmentation gradient descent's measure, at the grain of a domain). Noisy where
	// few nodes are free.
	Phi      float64 `json:"phi"`
	PhiNodes float64 `json:"phi_nodes"`
}

// ModelFragmentation is the Fragmentation of the domains of one GPU model.
type ModelFragmentation struct {
	Model       *string `json:"gpu_model" doc:"Null where it is not known: nobody tells, or the nodes of a domain disagree. Such domains are counted as if they were of one model."`
	GPUsPerNode int32   `json:"gpus_per_node"`
	Domains     int     `json:"domains"`
	Fragmentation
}

// Fragment measures what a view has free, for a mix of gangs, at the Unix time now: of all domains that are not closed to
// the asker, and of those of each GPU model, by name with the unknown last. Slots are of one model each.
func Fragment(v *View, mix []Gang, now int64) (all Fragmentation, models []ModelFragmentation) {
	byModel := map[string][]int{}
	var open []int
	for d := range v.Topology.Domains {
		if v.closed == nil || !v.closed[d] {
			model := v.Topology.Domains[d].Model
			byModel[model] = append(byModel[model], d)
			open = append(open, d)
		}
	}
	models = []ModelFragmentation{}
	var measured []Measures
	for _, model := range ModelNames(byModel) {
		of := ModelFragmentation{Domains: len(byModel[model])}
		if model != "" {
			of.Model = &model
		}
		size, free := int32(0), make([]int32, 0, of.Domains)
		for _, d := range byModel[model] {
			size, free = max(size, v.Topology.Domains[d].Count), append(free, v.Free[d])
			of.GPUsPerNode = max(of.GPUsPerNode, v.Topology.Domains[d].GPUsPerNode)
		}
		m := Measure(free, size, mix)
		of.Fragmentation = fragmentation(v, byModel[model], m, now)
		measured, models = append(measured, m), append(models, of)
	}
	return fragmentation(v, open, Together(measured), now), models
}

// ModelNames are the keys, sorted, with "" for the unknown last.
func ModelNames[V any](byModel map[string]V) []string {
	names := slices.Sorted(maps.Keys(byModel))
	if len(names) > 0 && names[0] == "" {
		names = append(names[1:], "")
	}
	return names
}

// fragmentation adds to measures of domains what their nodes in use say.
func fragmentation(v *View, domains []int, m Measures, now int64) Fragmentation {
	f := Fragmentation{
		FreeNodes: m.FreeNodes, Largest: m.Largest, Slots: m.ByNodes, Ideal: m.ideal, Cliff: m.Cliff, External: m.External, Phi: m.Phi,
		PhiNodes: m.phiNodes, Stranded: make([]int32, len(m.ByNodes)), Drain: make([]int64, len(m.ByNodes)),
	}
	for i := range f.Drain {
		f.Drain[i] = Never
	}
	for _, d := range domains {
		f.domain(v, d, now)
	}
	for i := range f.Drain {
		if f.Drain[i] == Never {
			f.Drain[i] = -1
		}
	}
	return f
}

func (f *Fragmentation) domain(v *View, d int, now int64) {
	dom := &v.Topology.Domains[d]
	free := v.Free[d]
	for n := int32(1); n < maxGPUs; n++ {
		f.PartialGPUs += n * v.partial[d*maxGPUs+int(n)]
	}
	for i := range f.Slots {
		s := int32(i) + 1
		if free < s {
			f.Stranded[i] += free * dom.GPUsPerNode
		}
		if free >= s {
			f.Drain[i] = 0
		} else if i < int(dom.Count) && f.Drain[i] != 0 {
			if i += int(v.withheld(d)); i < int(dom.Count) {
				if t := v.order[d][i]; t != Never {
					if t <= now {
						t = now + OverdueGrace
					}
					f.Drain[s-1] = min(f.Drain[s-1], t)
				}
			}
		}
	}
}

// Phi is the weighted expected number of free nodes that gangs of the mix cannot use: those of domains with fewer than the
// gang needs.
func Phi(free []int32, mix []Gang) float64 { return freeTally(nil).of(free).phi(mix) }

// freeTally is how many domains have how many free nodes. Measures that ask nothing else of domains read it instead of
// all of them.
type freeTally []int32

// of counts the domains anew.
func (f freeTally) of(free []int32) freeTally {
	clear(f)
	for _, n := range free {
		n = max(0, n)
		for int(n) >= len(f) {
			f = append(f, 0)
		}
		f[n]++
	}
	return f
}

func (f freeTally) phi(mix []Gang) float64 {
	sum, weights := 0.0, 0.0
	for _, g := range mix {
		weights += g.Weight
		lost := int32(0)
		for n, domains := range f[:min(len(f), int(g.Nodes))] {
			lost += int32(n) * domains
		}
		sum += g.Weight * float64(lost)
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}

// phiShare is phi as a share of the free nodes.
func (f freeTally) phiShare(mix []Gang) float64 {
	nodes := f.slots(1)
	if nodes == 0 {
		return 0
	}
	return round(f.phi(mix)/float64(nodes), 3)
}

// slots is how many gangs of a size are free, each in one domain.
func (f freeTally) slots(nodes int32) int32 {
	sum := int32(0)
	for n, domains := range f {
		sum += int32(n) / nodes * domains
	}
	return sum
}

// Entropy of how the free nodes are spread, 0 for all in one domain to 1 for evenly over those that have any. It is for a
// chart only: 9+9 and 17+1 differ more in use than in it.
func Entropy(free []int32) float64 {
	total, some := 0.0, 0.0
	for _, n := range free {
		if n > 0 {
			total += float64(n)
			some++
		}
	}
	if some < 2 {
		return 0
	}
	h := 0.0
	for _, n := range free {
		if n > 0 {
			h -= float64(n) / total * math.Log2(float64(n)/total)
		}
	}
	return h / math.Log2(some)
}

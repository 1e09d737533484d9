package advise

// Measures are what the free nodes of each domain alone say of their use to gangs: the part of a Fragmentation that can
// be told of the past too. ByNodes and Cliff are indexed by gang size in nodes less one, up to the largest domain.
type Measures struct {
	FreeNodes int32     `json:"free_nodes"`
	Largest   int32     `json:"largest_nodes" doc:"Most free nodes in one domain."`
	ByNodes   []int32   `json:"slots_by_nodes" doc:"Gangs that fit, each inside one domain: of one node, of two, and so on."`
	Cliff     []float64 `json:"cliff" doc:"Those over how many would fit if the free nodes of each GPU model were in full domains; 1 where no more would."`
	External  float64   `json:"external" doc:"1 - largest / min(free, largest domain), of the GPU model of the largest gang: 0 where the best gang possible fits."`
	Phi       float64   `json:"phi" doc:"Share of the free nodes that gangs of the usual mix cannot use."`

	ideal    []int32 // as ByNodes: how many would fit if the free nodes were in full domains
	best     int32   // the largest gang that so many free nodes could be
	phiNodes float64
}

// Measure tells of the free nodes of each domain of one GPU model, the largest of which has size nodes.
func Measure(free []int32, size int32, mix []Gang) Measures {
	m := Measures{ByNodes: make([]int32, size), ideal: make([]int32, size), phiNodes: Phi(free, mix)}
	for _, n := range free {
		m.FreeNodes += n
		m.Largest = max(m.Largest, n)
		for i := range min(n, size) {
			m.ByNodes[i] += n / (i + 1)
		}
	}
	for i := range size {
		m.ideal[i] = packed(m.FreeNodes, size, i+1)
	}
	m.best = min(m.FreeNodes, size)
	return m.weighed()
}

// Together are the measures of several GPU models. A gang is of one model, so that what would fit is counted of each and
// summed: free nodes of two models never make one slot.
func Together(models []Measures) Measures {
	var m Measures
	for _, of := range models {
		if more := len(of.ByNodes) - len(m.ByNodes); more >= 0 {
			m.ByNodes, m.ideal = append(m.ByNodes, make([]int32, more)...), append(m.ideal, make([]int32, more)...)
		}
		m.FreeNodes += of.FreeNodes
		m.Largest, m.best = max(m.Largest, of.Largest), max(m.best, of.best)
		m.phiNodes += of.phiNodes
		for i := range of.ByNodes {
			m.ByNodes[i] += of.ByNodes[i]
			m.ideal[i] += of.ideal[i]
		}
	}
	return m.weighed()
}

// weighed fills in what follows from the counts.
func (m Measures) weighed() Measures {
	m.Cliff = make([]float64, len(m.ByNodes))
	for i := range m.Cliff {
		m.Cliff[i] = 1
		if m.ideal[i] > m.ByNodes[i] {
			m.Cliff[i] = float64(m.ByNodes[i]) / float64(m.ideal[i])
		}
	}
	if m.FreeNodes > 0 {
		m.External = 1 - float64(m.Largest)/float64(m.best)
		m.Phi = m.phiNodes / float64(m.FreeNodes)
	}
	return m
}

// packed is how many gangs would fit if the free nodes were in full domains of that size.
func packed(free, size, gang int32) int32 { return free/size*(size/gang) + free%size/gang }

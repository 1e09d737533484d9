package advise

// Measures are what the free nodes of each domain alone say of their use to gangs: the part of a Fragmentation that can
// be told of the past too. ByNodes and Cliff are indexed by gang size in nodes less one, up to the largest domain.
type Measures struct {
	FreeNodes int32     `json:"free_nodes"`
	Largest   int32     `json:"largest_nodes" doc:"Most free nodes in one domain."`
	ByNodes   []int32   `json:"slots_by_nodes" doc:"Gangs that fit, each inside one domain: of one node, of two, and so on."`
	Cliff     []float64 `json:"cliff" doc:"Those over how many would fit if the free nodes were in full domains; 1 where no more would."`
	External  float64   `json:"external" doc:"1 - largest / min(free, largest domain): 0 where the best gang possible fits."`
	Phi       float64   `json:"phi" doc:"Share of the free nodes that gangs of the usual mix cannot use."`
}

// Measure tells of the free nodes of each domain, the largest of which has size nodes.
func Measure(free []int32, size int32, mix []Gang) Measures {
	m := Measures{ByNodes: make([]int32, size), Cliff: make([]float64, size)}
	for _, n := range free {
		m.FreeNodes += n
		m.Largest = max(m.Largest, n)
		for i := range min(n, size) {
			m.ByNodes[i] += n / (i + 1)
		}
	}
	for i := range size {
		m.Cliff[i] = 1
		if ideal := packed(m.FreeNodes, size, i+1); ideal > m.ByNodes[i] {
			m.Cliff[i] = float64(m.ByNodes[i]) / float64(ideal)
		}
	}
	if m.FreeNodes > 0 {
		m.External = 1 - float64(m.Largest)/float64(min(m.FreeNodes, size))
		m.Phi = Phi(free, mix) / float64(m.FreeNodes)
	}
	return m
}

// packed is how many gangs would fit if the free nodes were in full domains of that size.
func packed(free, size, gang int32) int32 { return free/size*(size/gang) + free%size/gang }

package simulate

// Question is what a partition whose policy is advised asks for a job that could start.
type Question struct {
	Cluster, Job, User, Name, Class string
	GPUs, Segment                   int
	// RunSeconds is the time limit and WaitedSeconds how long the job has been in the queue, by the wall clock.
	RunSeconds, WaitedSeconds int64
	// Elsewhere are the nodes of the cluster's other partitions.
	Elsewhere []string
}

// Answer is where the job should go. Without an opinion the job is placed as if nobody had been asked.
type Answer struct {
	Opinion bool
	// Nodes are where it should start now; none = it should wait.
	Nodes []string
}

// choose gives the nodes for a job by its partition's policy, or nil where it must wait.
func (s *sim) choose(p *partition, j *job) []int {
	r := j.request()
	if p.policy != PolicyAdvised {
		return p.pool.choose(p.policy, r)
	}
	if s.ask == nil || j.Probe { // the past is lived at once, with nobody to ask
		return p.pool.choose(PolicyFlat, r)
	}
	if !p.pool.fits(PolicyFlat, r) {
		return nil
	}
	a := s.ask(Question{
		Cluster: s.cluster.Name, Job: id(j.ID), User: j.User, Name: j.Name, Class: adviceClass(j), GPUs: j.GPUs, Segment: j.Segment,
		RunSeconds: max(1, int64(float64(j.Limit)/s.clock.Speed/1000)), WaitedSeconds: max(0, (s.wall()-j.Submit)/1000), Elsewhere: s.elsewhere(p),
	})
	if !a.Opinion {
		return p.pool.choose(PolicyFlat, r)
	}
	return s.take(p, r, a.Nodes)
}

// take turns advised nodes into free ones: those named, and for each that has been taken since another of its rack. nil
// where a rack has not enough left: the job asks again.
func (s *sim) take(p *partition, r request, names []string) []int {
	if len(names) != r.nodes() {
		return nil
	}
	if r.gpus < gpusPerTray {
		node, ok := s.nodeOf(names[0])
		if !ok || !p.pool.holds(node) || lowest(p.pool.free[node-p.pool.first], r.gpus) == 0 {
			return nil
		}
		if got := p.pool.free[node-p.pool.first]; popcount(got) < r.gpus {
			return nil
		}
		return []int{node}
	}
	rest := p.pool.clone()
	wanted := map[int]int{} // by rack of the partition
	for _, name := range names {
		node, ok := s.nodeOf(name)
		if !ok || !p.pool.holds(node) {
			return nil
		}
		wanted[rackOf(node-p.pool.first)]++
	}
	nodes := make([]int, 0, len(names))
	for rack := range rest.whole {
		if n := wanted[rack]; n > 0 {
			before := len(nodes)
			if nodes = rest.take(nodes, rack, n); len(nodes) < before+n {
				return nil
			}
		}
	}
	return nodes
}

func popcount(set uint8) (n int) {
	for ; set != 0; set &= set - 1 {
		n++
	}
	return n
}

// nodeOf finds a node by name.
func (s *sim) nodeOf(name string) (int, bool) {
	if s.byName == nil {
		s.byName = make(map[string]int, len(s.fleet.name))
		for i, n := range s.fleet.name {
			s.byName[n] = i
		}
	}
	i, ok := s.byName[name]
	return i, ok
}

// elsewhere names the nodes of the other partitions.
func (s *sim) elsewhere(p *partition) []string {
	var out []string
	for i, name := range s.fleet.name {
		if !p.pool.holds(i) {
			out = append(out, name)
		}
	}
	return out
}

// adviceClass is the class of the advisor's configuration that a job is of.
func adviceClass(j *job) string {
	switch {
	case j.Class == classInference:
		return "serve"
	case j.Name == "moe-8x22b":
		return "train-moe"
	}
	return "train"
}

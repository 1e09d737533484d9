package advise

import (
	"math"
	"slices"
	"strings"
)

// MakeRoom is a plan by which one domain would get room: who would have to move or end, and at what price. It is a plan
// only: nothing is moved by it.
type MakeRoom struct {
	Opens string `json:"opens"`
	Nodes int32  `json:"nodes"`
	Moves []Move `json:"moves"`
	// CostGPUHours is what all moves lose. CostKnown is false where a job's unsaved work or restart time is assumed: all it
	// has done, and ten minutes.
	CostGPUHours float64 `json:"cost_gpu_hours"`
	CostKnown    bool    `json:"cost_known"`
	// SavedS is how much sooner the job could start; absent where no estimate says. Worthwhile is whether the GPU-hours of
	// waiting that it saves are more than twice the cost.
	SavedS     *int64 `json:"saved_s,omitempty"`
	Worthwhile bool   `json:"worthwhile"`
}

// Move is one job that would leave: To is the domain it would go on in, "" where it would have to end and queue again.
type Move struct {
	Job          string  `json:"job"`
	Nodes        int32   `json:"nodes"`
	From         string  `json:"from"`
	To           string  `json:"to,omitempty"`
	CostGPUHours float64 `json:"cost_gpu_hours"`
}

// assumedRestart is the restart time, in seconds, of a job that does not tell its own.
const assumedRestart = 600

// group is what has to leave a domain together: jobs that share a node. It is the item of the choice.
type group struct {
	holds []*Hold
	nodes int32 // that come free
	cost  float64
	known bool
}

// PlanRoom finds the cheapest way for need whole nodes to come free in one domain for an asker of this priority. Jobs of a
// higher priority stay. A job moves whole into one other domain, so that no move makes a spill; one that has nowhere to go
// ends, if it may be preempted. nil where no domain can be cleared so.
func PlanRoom(s *Snapshot, v *View, need int32, priority int64) *MakeRoom {
	type option struct {
		domain int
		groups []group
		cost   float64
	}
	var options []option
	for d := range v.Free {
		if v.closed != nil && v.closed[d] || s.healthy[d]-v.withheld(d) < need || v.Free[d] >= need {
			continue
		}
		groups := s.groups(int32(d), priority)
		if chosen, cost := cheapest(groups, need-v.Free[d]); chosen != nil {
			options = append(options, option{domain: d, groups: chosen, cost: cost})
		}
	}
	slices.SortStableFunc(options, func(a, b option) int {
		switch {
		case a.cost < b.cost:
			return -1
		case a.cost > b.cost:
			return 1
		}
		return 0
	})
	for _, o := range options {
		if plan := s.rehouse(v, o.domain, o.groups); plan != nil {
			plan.Nodes = need
			return plan
		}
	}
	return nil
}

// groups lists what could leave a domain.
func (s *Snapshot) groups(domain int32, priority int64) []group {
	holds := s.byDom[domain]
	of := map[int32]int{} // node -> group
	parent := []int{}
	root := func(i int) int {
		for parent[i] != i {
			i = parent[i]
		}
		return i
	}
	for i, h := range holds {
		parent = append(parent, i)
		for _, sh := range h.in(domain) {
			if o, taken := of[sh.Node]; taken {
				parent[root(i)] = root(o)
			} else {
				of[sh.Node] = i
			}
		}
	}
	groups := make([]group, len(holds))
	stuck := make([]bool, len(holds))
	for i, h := range holds {
		g := &groups[root(i)]
		if len(g.holds) == 0 {
			g.known = true
		}
		cost, known := h.cost(s.At)
		g.holds, g.cost, g.known = append(g.holds, h), g.cost+cost, g.known && known
		stuck[root(i)] = stuck[root(i)] || !h.Probe && h.Priority > priority
	}
	for n, i := range of {
		if s.up[n] && s.tenant[n] == 0 && s.used[n] > 0 { // a node that only a probe is on is free already
			groups[root(i)].nodes++
		}
	}
	out := groups[:0]
	for i, g := range groups {
		if len(g.holds) > 0 && !stuck[i] && g.nodes > 0 {
			out = append(out, g)
		}
	}
	return out
}

// in is the hold's share of a domain.
func (h *Hold) in(domain int32) []Share {
	for _, p := range h.parts {
		if p.domain == domain {
			return p.shares
		}
	}
	return nil
}

// cost is what moving or ending a job loses, in GPU-hours.
func (h *Hold) cost(now int64) (gpuHours float64, known bool) {
	if h.Probe {
		return 0, true
	}
	unsaved, restart := h.Unsaved, h.Restart
	known = unsaved >= 0 && restart >= 0
	if unsaved < 0 {
		unsaved = max(0, now-h.Start)
	}
	if restart < 0 {
		restart = assumedRestart
	}
	return float64(h.GPUs()) * float64(unsaved+restart) / 3600, known
}

// cheapest chooses groups that free at least need nodes at the least cost: a knapsack over at most one domain's nodes.
func cheapest(groups []group, need int32) ([]group, float64) {
	n := int(need)
	best := make([]float64, n+1)
	for i := 1; i <= n; i++ {
		best[i] = math.Inf(1)
	}
	took := make([][]bool, len(groups))
	for g := range groups {
		took[g] = make([]bool, n+1)
		for i := n; i > 0; i-- {
			if c := best[max(0, i-int(groups[g].nodes))] + groups[g].cost; c < best[i] {
				best[i], took[g][i] = c, true
			}
		}
	}
	if math.IsInf(best[n], 1) {
		return nil, 0
	}
	var chosen []group
	for g, i := len(groups)-1, n; g >= 0 && i > 0; g-- {
		if took[g][i] {
			chosen = append(chosen, groups[g])
			i = max(0, i-int(groups[g].nodes))
		}
	}
	return chosen, best[n]
}

// rehouse finds each job of the groups a place, the largest first, in the tightest other domain that holds all of it.
func (s *Snapshot) rehouse(v *View, domain int, groups []group) *MakeRoom {
	free := slices.Clone(v.Free)
	plan := &MakeRoom{Opens: s.Topology.Domains[domain].ID, CostKnown: true}
	var holds []*Hold
	for _, g := range groups {
		holds = append(holds, g.holds...)
		plan.CostKnown = plan.CostKnown && g.known
	}
	slices.SortFunc(holds, func(a, b *Hold) int {
		if len(a.Nodes) != len(b.Nodes) {
			return len(b.Nodes) - len(a.Nodes)
		}
		return strings.Compare(a.Key, b.Key)
	})
	for _, h := range holds {
		if h.Probe {
			continue
		}
		cost, _ := h.cost(s.At)
		move := Move{Job: h.Job, Nodes: int32(len(h.Nodes)), From: s.Topology.Domains[domain].ID, CostGPUHours: cost}
		to := -1
		for d, n := range free {
			if d != domain && n >= move.Nodes && (to < 0 || n < free[to]) {
				to = d
			}
		}
		switch {
		case to >= 0:
			free[to] -= move.Nodes
			move.To = s.Topology.Domains[to].ID
		case !h.Preemptible:
			return nil
		}
		plan.Moves = append(plan.Moves, move)
		plan.CostGPUHours += cost
	}
	return plan
}

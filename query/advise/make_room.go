package advise

import (
	"math"
	"slices"
	"strings"
	"time"
)

// MakeRoom is a plan by which one domain would get room: who would have to move or end, and at what price. It is a plan
// only: nothing is moved by it.
type MakeRoom struct {
	Opens string `json:"opens"`
	Nodes int32  `json:"nodes"`
	Moves []Move `json:"moves"`
	// NotBefore is from when on all who would have to end may be; absent where they may now.
	NotBefore *time.Time `json:"not_before,omitempty"`
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
	Priority     *int64  `json:"priority,omitempty"` // absent where not known
	CostGPUHours float64 `json:"cost_gpu_hours"`
	// NotBefore is from when on a job that would have to end may be; absent where it may now.
	NotBefore *time.Time `json:"not_before,omitempty"`
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
// higher priority stay, and those of an unknown one; where the asker gives none (nil), no priority keeps one. A job moves
// whole into one other domain, so that no move makes a spill; one that has nowhere to go ends, if it may be preempted.
// Where every such plan would end a job that may not be ended yet, it is the one that can begin first, and of those the
// cheapest as of now. nil where no domain can be cleared so.
func PlanRoom(s *Snapshot, v *View, need int32, priority *int64) *MakeRoom {
	type option struct {
		domain int
		cost   float64
	}
	var options []option
	var room roomScratch
	for d := range v.Free {
		if v.closed != nil && v.closed[d] || s.healthy[d]-v.withheld(d) < need || v.Free[d] >= need {
			continue
		}
		groups := s.groups(int32(d), priority, &room)
		if cost, ok := room.cheapest(groups, need-v.Free[d]); ok {
			options = append(options, option{domain: d, cost: cost})
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
	var soonest *MakeRoom
	from := int64(Never)
	for _, o := range options {
		groups := s.groups(int32(o.domain), priority, &room)
		room.cheapest(groups, need-v.Free[o.domain])
		plan, at := s.rehouse(v, o.domain, room.chosen(groups, need-v.Free[o.domain]), from)
		if plan == nil {
			continue
		}
		plan.Nodes = need
		if soonest, from = plan, at; from <= s.At {
			break
		}
	}
	return soonest
}

// roomScratch is what weighing one domain needs; it is used again for the next.
type roomScratch struct {
	owner  []int32 // per node of the domain: the first hold on it, -1 for none
	parent []int32 // per hold: a forest of those that share nodes
	groups []group
	stuck  []bool
	best   []float64
	took   []bool
}

func (r *roomScratch) root(i int32) int32 {
	for r.parent[i] != i {
		i = r.parent[i]
	}
	return i
}

// groups lists what could leave a domain. The list is valid until the scratch is used again.
func (s *Snapshot) groups(domain int32, priority *int64, r *roomScratch) []group {
	holds := s.byDom[domain]
	d := &s.Topology.Domains[domain]
	r.owner, r.parent, r.stuck = r.owner[:0], r.parent[:0], r.stuck[:0]
	for range d.Count {
		r.owner = append(r.owner, -1)
	}
	for len(r.groups) < len(holds) {
		r.groups = append(r.groups, group{})
	}
	groups := r.groups[:len(holds)]
	for i, h := range holds {
		r.parent, r.stuck = append(r.parent, int32(i)), append(r.stuck, false)
		groups[i] = group{holds: groups[i].holds[:0], known: true}
		for _, sh := range h.in(domain) {
			if o := r.owner[sh.Node-d.First]; o >= 0 {
				r.parent[r.root(int32(i))] = r.root(o)
			} else {
				r.owner[sh.Node-d.First] = int32(i)
			}
		}
	}
	for i, h := range holds {
		g := r.root(int32(i))
		cost, known := h.cost(s.At)
		groups[g].holds = append(groups[g].holds, h)
		groups[g].cost += cost
		groups[g].known = groups[g].known && known
		r.stuck[g] = r.stuck[g] || h.stays(priority)
	}
	for k, i := range r.owner {
		if n := d.First + int32(k); i >= 0 && s.whole(s.Topology, n) && s.tenant[n] == 0 && s.used[n] > 0 { // what only a probe is on is free
			groups[r.root(i)].nodes++
		}
	}
	left := 0
	for i := range groups {
		if groups[i].nodes > 0 && !r.stuck[i] {
			groups[left], groups[i] = groups[i], groups[left]
			left++
		}
	}
	return groups[:left]
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

// stays reports whether a job is not known to be one that an asker of this priority may ask to leave.
func (h *Hold) stays(priority *int64) bool {
	return !h.Probe && priority != nil && (h.Priority == nil || *h.Priority > *priority)
}

// cost is what moving or ending a job loses, in GPU-hours.
func (h *Hold) cost(now int64) (gpuHours float64, known bool) {
	if h.Probe {
		return 0, true
	}
	unsaved, restart := h.Unsaved, h.Restart
	if h.Saved > 0 {
		unsaved = max(0, now-h.Saved)
		if h.SaveEvery > 0 {
			unsaved %= h.SaveEvery
		}
	}
	known = unsaved >= 0 && restart >= 0
	if unsaved < 0 {
		unsaved = max(0, now-h.Start)
	}
	if restart < 0 {
		restart = assumedRestart
	}
	return float64(h.GPUs()) * float64(unsaved+restart) / 3600, known
}

// cheapest finds what it costs at least that groups free need nodes: a knapsack over at most one domain's nodes.
func (r *roomScratch) cheapest(groups []group, need int32) (cost float64, ok bool) {
	n := int(need)
	r.best, r.took = append(r.best[:0], 0), r.took[:0]
	for range n {
		r.best = append(r.best, math.Inf(1))
	}
	for g := range groups {
		for range n + 1 {
			r.took = append(r.took, false)
		}
		took := r.took[g*(n+1):]
		for i := n; i > 0; i-- {
			if c := r.best[max(0, i-int(groups[g].nodes))] + groups[g].cost; c < r.best[i] {
				r.best[i], took[i] = c, true
			}
		}
	}
	return r.best[n], !math.IsInf(r.best[n], 1)
}

// chosen are the groups that the last call of cheapest found.
func (r *roomScratch) chosen(groups []group, need int32) []group {
	var chosen []group
	n := int(need)
	for g, i := len(groups)-1, n; g >= 0 && i > 0; g-- {
		if r.took[g*(n+1)+i] {
			chosen = append(chosen, groups[g])
			i = max(0, i-int(groups[g].nodes))
		}
	}
	return chosen
}

// rehouse finds each job of the groups a place, the largest first, in the tightest other domain of such nodes that holds all
// of it. Only nodes that anybody may take count: what is kept for the asker is not for those that make room for it. at is
// when that may begin; the plan is nil where a job may neither go nor end, or not before the time given.
func (s *Snapshot) rehouse(v *View, domain int, groups []group, before int64) (plan *MakeRoom, at int64) {
	free, from := slices.Clone(s.free), &s.Topology.Domains[domain]
	for _, k := range v.kept {
		if s.tenant[k.Node] == 0 {
			free[s.Topology.Nodes[k.Node].Domain]--
		}
	}
	plan, at = &MakeRoom{Opens: s.Topology.Domains[domain].ID, CostKnown: true}, s.At
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
	holds = slices.DeleteFunc(holds, func(h *Hold) bool { return h.Probe })
	for _, h := range holds {
		move := Move{Job: h.Job, Nodes: int32(len(h.Nodes)), From: s.Topology.Domains[domain].ID, Priority: h.Priority}
		to := -1
		for d, n := range free {
			like := &s.Topology.Domains[d]
			if d != domain && n >= move.Nodes && (to < 0 || n < free[to]) && like.Model == from.Model && like.GPUsPerNode == from.GPUsPerNode {
				to = d
			}
		}
		switch {
		case to >= 0:
			free[to] -= move.Nodes
			move.To = s.Topology.Domains[to].ID
		case !h.Preemptible || h.PreemptibleFrom >= before:
			return nil, 0
		case h.PreemptibleFrom > s.At:
			move.NotBefore, at = clock(h.PreemptibleFrom), max(at, h.PreemptibleFrom)
			plan.NotBefore = clock(at)
		}
		plan.Moves = append(plan.Moves, move)
	}
	for i, h := range holds { // what is lost once it may begin
		cost, _ := h.cost(at)
		plan.Moves[i].CostGPUHours = round(cost, 2)
		plan.CostGPUHours += cost
	}
	plan.CostGPUHours = round(plan.CostGPUHours, 2)
	return plan, at
}

// clock is a Unix time for an answer.
func clock(at int64) *time.Time { return new(time.Unix(at, 0).UTC()) }

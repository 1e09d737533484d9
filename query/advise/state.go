package advise

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
)

// Never is the time at which a node comes free that nobody can say of: it is down, or its holder has no end estimate.
const Never = math.MaxInt64

// OverdueGrace is how long, in seconds, a holder that has outlived its end estimate is expected to go on.
const OverdueGrace = 15 * 60

// Hold is a running attempt: the nodes it holds and what is known of its end. It is immutable once it has been given to a
// State. Times are Unix seconds.
type Hold struct {
	// Key names the attempt within the cluster.
	Key    string
	Job    string
	Tenant string
	Class  string
	Nodes  []Share
	Start  int64
	// End is the estimated end; 0 where there is none.
	End int64
	// Late is the end at the 90th percentile, or the limit, which it cannot pass; 0 where there is no basis.
	Late int64
	// Priority is the scheduler's, a higher one goes first; nil where not known.
	Priority    *int64
	Preemptible bool
	// PreemptibleFrom is when the time that the scheduler lets it run undisturbed is over; 0 where none was told. Only
	// one that is Preemptible may be ended then.
	PreemptibleFrom int64
	// Probe marks a verification job that any real job may evict: its GPUs count as free, and are marked so.
	Probe bool
	// Unsaved is the work since the last checkpoint and Restart the time to start again, both in seconds; negative
	// where not known.
	Unsaved, Restart int64
	// Saved is when its work was last saved, and SaveEvery how often it is, in seconds; 0 where not known. What is unsaved
	// then follows from the time, and Unsaved does not count.
	Saved, SaveEvery int64

	parts []holdPart
}

// Share is what a hold has of one node.
type Share struct {
	Node int32
	GPUs int32
}

// GPUs is how many GPUs the hold has in all.
func (h *Hold) GPUs() int32 {
	n := int32(0)
	for _, s := range h.Nodes {
		n += s.GPUs
	}
	return n
}

// holdPart is the share of a hold in one domain.
type holdPart struct {
	domain int32
	shares []Share
}

// counts are the figures of a state, in slices indexed by node or by domain.
type counts struct {
	usable   []uint8   // per node: healthy GPUs that may be scheduled
	used     []uint8   // per node: GPUs held by real jobs
	probes   []uint8   // per node: GPUs held by probe jobs
	tenant   []int32   // per node: index of the tenant it is reserved for, 0 for none
	order    [][]int64 // per domain: when its nodes are wholly free, ascending: 0 now, Never; replaced, never changed
	healthy  []int32   // per domain: whole nodes, all GPUs usable
	free     []int32   // per domain: nodes wholly free, probe jobs not counting, reserved for nobody
	held     []int32   // per domain: nodes that a real job has GPUs of
	partial  []int32   // per domain x maxGPUs: nodes in use with that many GPUs free
	reserved []int32   // the nodes with a tenant, ascending
}

// usage is how nodes are used.
type usage struct {
	held      int32 // a real job has GPUs of it
	estimated int32 // of those, with an end estimate
	down      int32 // no GPU of it is usable
	busy      int32 // of the others, held
	lame      int32 // of the others, with GPUs that are not usable
	probed    int32 // free but for a probe job
}

// State is the cluster as its writer knows it. It is not safe for concurrent use: one goroutine changes it and publishes
// snapshots, which any number of readers take without a lock.
type State struct {
	Topology *Topology
	counts
	freeAt  []int64 // per node: when it is wholly free
	usage   []usage // per domain
	holds   map[string]*Hold
	byDom   [][]*Hold
	tenants []string // tenants[0] is nobody
	seq     uint64
	current atomic.Pointer[Snapshot]

	// What of the counts has changed since the last snapshot: most changes are of what jobs hold.
	newNodes, newProbes, newPartial bool
}

// Snapshot is the state as it was at one moment. It is immutable.
type Snapshot struct {
	Topology *Topology
	// Seq counts the snapshots of a state; At is the Unix time its writer gave it.
	Seq uint64
	At  int64
	// Held are the nodes that jobs hold, Estimated those of them with an end estimate.
	Held, Estimated int
	counts
	usage   usage // of all nodes
	byDom   [][]*Hold
	tenants []string
}

// NewState is an empty cluster: every node is up and free.
func NewState(t *Topology) *State {
	n, d := len(t.Nodes), len(t.Domains)
	s := &State{
		Topology: t, holds: map[string]*Hold{}, byDom: make([][]*Hold, d), tenants: []string{""},
		counts: counts{
			usable: make([]uint8, n), used: make([]uint8, n), probes: make([]uint8, n), tenant: make([]int32, n),
			order: make([][]int64, d), healthy: make([]int32, d), free: make([]int32, d), held: make([]int32, d),
			partial: make([]int32, d*maxGPUs),
		},
		freeAt: make([]int64, n), usage: make([]usage, d),
	}
	for i, node := range t.Nodes {
		s.usable[i] = uint8(node.GPUs)
	}
	for i := range t.Domains {
		s.refresh(int32(i))
	}
	return s
}

// Hold begins an attempt. One that is known already by its key is replaced, as when its nodes or estimate change.
func (s *State) Hold(h *Hold) error {
	shares := slices.Clone(h.Nodes)
	slices.SortFunc(shares, func(a, b Share) int { return int(a.Node) - int(b.Node) })
	h.parts = h.parts[:0]
	for i, sh := range shares {
		if sh.Node < 0 || int(sh.Node) >= len(s.usable) || sh.GPUs < 1 || sh.GPUs > s.Topology.Nodes[sh.Node].GPUs {
			return fmt.Errorf("holding attempt %q: %d GPUs on node %d: name a node of this generation and no more GPUs than it has",
				h.Key, sh.GPUs, sh.Node)
		}
		d := s.Topology.Nodes[sh.Node].Domain
		if last := len(h.parts) - 1; last < 0 || h.parts[last].domain != d {
			h.parts = append(h.parts, holdPart{domain: d, shares: shares[i:i]})
		}
		p := &h.parts[len(h.parts)-1]
		p.shares = p.shares[:len(p.shares)+1]
	}
	s.Release(h.Key)
	s.holds[h.Key] = h
	s.newProbes = s.newProbes || h.Probe
	for _, p := range h.parts {
		// A new slice: snapshots share the old one.
		s.byDom[p.domain] = append(slices.Clip(s.byDom[p.domain]), h)
		s.refresh(p.domain)
	}
	return nil
}

// Release ends an attempt and reports whether it was known.
func (s *State) Release(key string) bool {
	h, ok := s.holds[key]
	if !ok {
		return false
	}
	delete(s.holds, key)
	s.newProbes = s.newProbes || h.Probe
	for _, p := range h.parts {
		old := s.byDom[p.domain]
		left := make([]*Hold, 0, len(old))
		for _, o := range old {
			if o != h {
				left = append(left, o)
			}
		}
		s.byDom[p.domain] = left
		s.refresh(p.domain)
	}
	return true
}

// SetUsable says how many GPUs of a node are healthy and may be scheduled: 0 where the node is down or drained. What runs
// on it goes on holding it. A node with fewer than its domain's nodes have is no whole node: only jobs smaller than one
// may have what is left of it.
func (s *State) SetUsable(node, gpus int32) {
	s.usable[node] = uint8(min(max(0, gpus), s.Topology.Nodes[node].GPUs))
	s.newNodes = true
	s.refresh(s.Topology.Nodes[node].Domain)
}

// Reserve keeps a node for one tenant; "" gives it back to all.
func (s *State) Reserve(node int32, tenant string) {
	i := slices.Index(s.tenants, tenant)
	if i < 0 {
		i = len(s.tenants)
		s.tenants = append(slices.Clip(s.tenants), tenant)
	}
	s.tenant[node] = int32(i)
	s.newNodes = true
	at, found := slices.BinarySearch(s.reserved, node)
	switch {
	case i > 0 && !found:
		s.reserved = slices.Insert(s.reserved, at, node)
	case i == 0 && found:
		s.reserved = slices.Delete(s.reserved, at, at+1)
	}
	s.refresh(s.Topology.Nodes[node].Domain)
}

// refresh counts one domain anew. A domain is small, so counting it whole is cheap and cannot drift.
func (s *State) refresh(domain int32) {
	d := &s.Topology.Domains[domain]
	first, last := d.First, d.First+d.Count
	clear(s.used[first:last])
	clear(s.probes[first:last])
	clear(s.freeAt[first:last])
	for _, h := range s.byDom[domain] {
		for _, p := range h.parts {
			if p.domain != domain {
				continue
			}
			for _, sh := range p.shares {
				if h.Probe {
					s.probes[sh.Node] = add(s.probes[sh.Node], sh.GPUs)
					continue
				}
				s.used[sh.Node] = add(s.used[sh.Node], sh.GPUs)
				end := h.End
				if end <= 0 {
					end = Never
				}
				s.freeAt[sh.Node] = max(s.freeAt[sh.Node], end)
			}
		}
	}
	healthy, free, u := int32(0), int32(0), usage{}
	var partial [maxGPUs]int32
	for n := first; n < last; n++ {
		held, down := s.used[n] > 0, s.usable[n] == 0
		whole := s.whole(s.Topology, n)
		if whole {
			healthy++
		}
		if !whole || s.tenant[n] != 0 {
			s.freeAt[n] = Never
		}
		if held {
			u.held++
			if s.freeAt[n] != Never {
				u.estimated++
			}
		}
		if down {
			u.down++
		} else if held {
			u.busy++
		} else if !whole {
			u.lame++
		}
		switch {
		case s.tenant[n] != 0:
		case whole && !held:
			free++
			if s.probes[n] > 0 {
				u.probed++
			}
		default:
			if left := s.left(n); left > 0 {
				partial[left]++
			}
		}
	}
	s.healthy[domain], s.free[domain], s.held[domain], s.usage[domain] = healthy, free, u.held, u
	if old := s.partial[int(domain)*maxGPUs : int(domain+1)*maxGPUs]; !slices.Equal(old, partial[:]) {
		copy(old, partial[:])
		s.newPartial = true
	}
	order := slices.Clone(s.freeAt[first:last])
	slices.Sort(order)
	s.order[domain] = order
}

// add counts GPUs, and stops where a node that is told to be held many times over would begin from nothing again.
func add(n uint8, gpus int32) uint8 { return uint8(min(int32(n)+gpus, math.MaxUint8)) }

// whole reports whether all GPUs that nodes of the domain have are usable.
func (c *counts) whole(t *Topology, node int32) bool {
	return int32(c.usable[node]) == t.Domains[t.Nodes[node].Domain].GPUsPerNode
}

// Publish makes the state as it is now the current snapshot. It copies some 5 bytes a node and 70 a domain, and shares
// with the snapshot before what has not changed, so a writer publishes after a batch of changes, not after each.
func (s *State) Publish(at int64) *Snapshot {
	s.seq++
	snap := &Snapshot{Topology: s.Topology, Seq: s.seq, At: at, byDom: slices.Clone(s.byDom), tenants: s.tenants}
	if last := s.current.Load(); last != nil {
		snap.counts = last.counts
	} else {
		s.newNodes, s.newProbes, s.newPartial = true, true, true
	}
	if s.newNodes {
		snap.usable, snap.tenant, snap.reserved, snap.healthy = slices.Clone(s.usable), slices.Clone(s.tenant), slices.Clone(s.reserved), slices.Clone(s.healthy)
	}
	if s.newProbes {
		snap.probes = slices.Clone(s.probes)
	}
	if s.newPartial {
		snap.partial = slices.Clone(s.partial)
	}
	s.newNodes, s.newProbes, s.newPartial = false, false, false
	snap.used, snap.order, snap.free, snap.held = slices.Clone(s.used), slices.Clone(s.order), slices.Clone(s.free), slices.Clone(s.held)
	for _, u := range s.usage {
		snap.usage.held += u.held
		snap.usage.estimated += u.estimated
		snap.usage.down += u.down
		snap.usage.busy += u.busy
		snap.usage.lame += u.lame
	}
	snap.Held, snap.Estimated = int(snap.usage.held), int(snap.usage.estimated)
	s.current.Store(snap)
	return snap
}

// Current is the newest published snapshot; nil before the first. It may be called from any goroutine.
func (s *State) Current() *Snapshot { return s.current.Load() }

// View shows the state itself to a strategy, without a copy. It is valid until the next change.
func (s *State) View() View { return view(s.Topology, &s.counts) }

// Holding gives the attempt with this key; nil where there is none.
func (s *State) Holding(key string) *Hold { return s.holds[key] }

// View shows the snapshot to a strategy, without a copy.
func (s *Snapshot) View() View { return view(s.Topology, &s.counts) }

// Used is how many GPUs of a node real jobs hold.
func (c *counts) Used(node int32) int32 { return int32(c.used[node]) }

// Usable is how many GPUs of a node are healthy and may be scheduled.
func (c *counts) Usable(node int32) int32 { return int32(c.usable[node]) }

// left is how many usable GPUs of a node no real job holds.
func (c *counts) left(node int32) int32 { return int32(c.usable[node]) - int32(c.used[node]) }

// FreeAt is when a node is wholly free by the end estimates: 0 for now, Never where nobody can say.
func (s *State) FreeAt(node int32) int64 { return s.freeAt[node] }

// Holders are the attempts in a domain. The slice is not to be changed.
func (s *Snapshot) Holders(domain int32) []*Hold { return s.byDom[domain] }

// Holders are the attempts in a domain. The slice is not to be changed.
func (s *State) Holders(domain int32) []*Hold { return s.byDom[domain] }

func view(t *Topology, c *counts) View {
	return View{Topology: t, Free: c.free, order: c.order, partial: c.partial}
}

package simulate

import (
	"iter"
	"math"
	"math/rand/v2"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// LoadCluster is the cluster that Attempts and Hardware tell of.
const LoadCluster = "load"

// loadShare is how busy Attempts keeps the GPUs.
const loadShare = 0.6

// Attempts yields the records of n attempts, two each: RUNNING at the start and the end, in the order of observation
// (which is all that a store of the later hops sees), on racks of 72 healthy GPUs from a time on. It is made for volume:
// there is no queue, jobs take free nodes by a simple rule and about a quarter of those of several nodes spill. No GPU is
// held twice at a time. The time covered follows from n: Span tells it. Records share parts: they are to be read only.
func Attempts(seed uint64, racks, n int, from time.Time) iter.Seq[*event.Placement] {
	return func(yield func(*event.Placement) bool) {
		g := newLoad(seed, racks, from)
		for range n {
			z := g.arrive()
			gpus := g.take(z.gpus)
			for gpus == nil { // full: the arrivals wait for the next end
				g.now, _ = g.due.head()
				if !g.drain(g.now, yield) {
					return
				}
				gpus = g.take(z.gpus)
			}
			if !g.drain(g.now, yield) {
				return
			}
			g.start(z, gpus)
		}
		g.drain(math.MaxInt64, yield)
	}
}

// Span is about how long the attempts that Attempts would yield take to arrive.
func Span(racks, n int) time.Duration {
	return time.Duration(float64(n)*meanGap(loadSizes(racks), racks)) * time.Millisecond
}

func loadSizes(racks int) sizeTable { return newSizeTable(mixes["nvl72"], racks*gpusPerRack/2) }

// meanGap is the mean time between arrivals, in milliseconds.
func meanGap(sizes sizeTable, racks int) float64 {
	return sizes.work / (loadShare * float64(racks*gpusPerRack))
}

// load is the state of Attempts: when each GPU is next free.
type load struct {
	rng    *rand.Rand
	fleet  *fleet
	sizes  sizeTable
	gap    float64
	now    int64   // wall milliseconds
	freeAt []int64 // by node*gpusPerTray + gpu, wall milliseconds
	nextID uint64
	due    minHeap[*event.Placement]
}

func newLoad(seed uint64, racks int, from time.Time) *load {
	sizes := loadSizes(racks)
	return &load{
		rng:    rand.New(rand.NewPCG(seed, hash64("load"))),
		fleet:  newFleet(seed, LoadCluster, racks, 0),
		sizes:  sizes,
		gap:    meanGap(sizes, racks),
		now:    from.UnixMilli(),
		freeAt: make([]int64, racks*gpusPerRack),
		nextID: 1,
	}
}

// drain yields what was observed up to a time; every record still to be made is observed later.
func (g *load) drain(to int64, yield func(*event.Placement) bool) bool {
	for {
		at, ok := g.due.head()
		if !ok || at > to {
			return true
		}
		if _, p := g.due.pop(); !yield(p) {
			return false
		}
	}
}

// arrive passes the time to the next arrival and draws its size.
func (g *load) arrive() size {
	g.now += int64(g.rng.ExpFloat64() * g.gap)
	return g.sizes.pick(g.rng.Float64())
}

// start makes both records of an attempt that takes GPUs now.
func (g *load) start(z size, gpus []int) {
	j := draw(g.rng, z, 1)
	end := g.now + j.Run
	for _, i := range gpus {
		g.freeAt[i] = end
	}
	placements := g.placements(gpus)
	running, ended := g.record(j, placements), g.record(j, placements)
	running.State, running.StateRaw = event.State_RUNNING, event.State_RUNNING.String()
	running.ObservedAtMs, running.Revision = g.now, uint64(g.now)*1000
	ended.State, ended.StateRaw = j.Fate, j.Fate.String()
	ended.ObservedAtMs, ended.Revision, ended.EndMs = end, uint64(end)*1000+1, ptr(end)
	g.due.push(g.now, running)
	g.due.push(end, ended)
	g.nextID++
}

// take chooses GPUs that are free now: for most jobs those of one rack if one of a few has them, else the next free nodes
// in name order from anywhere. It gives nil where there are none.
func (g *load) take(n int) []int {
	gpus := make([]int, 0, n)
	if g.rng.Float64() < .6 {
		for range 4 {
			gpus = g.freeFrom(gpus[:0], g.rng.IntN(g.fleet.racks)*traysPerRack, traysPerRack, n)
			if len(gpus) == n {
				return gpus
			}
		}
	}
	nodes := len(g.fleet.name)
	if gpus = g.freeFrom(gpus[:0], g.rng.IntN(nodes), nodes, n); len(gpus) == n {
		return gpus
	}
	return nil
}

// freeFrom appends up to n GPUs that are free now, whole nodes or one shared node, from a run of nodes.
func (g *load) freeFrom(gpus []int, first, count, n int) []int {
	for k := 0; k < count && len(gpus) < n; k++ {
		base := (first + k) % len(g.fleet.name) * gpusPerTray
		before := len(gpus)
		want := min(gpusPerTray, n-before)
		for i := base; i < base+gpusPerTray && len(gpus)-before < want; i++ {
			if g.freeAt[i] <= g.now {
				gpus = append(gpus, i)
			}
		}
		if len(gpus)-before < want {
			gpus = gpus[:before]
		}
	}
	return gpus
}

func (g *load) record(j *job, placements []*event.NodePlacement) *event.Placement {
	own := id(g.nextID)
	return &event.Placement{
		Cluster:        LoadCluster,
		Scheduler:      scheduler,
		JobId:          own,
		RunId:          "s" + own,
		Restart:        ptr(uint32(0)),
		Name:           j.Name,
		User:           j.User,
		Account:        j.Account,
		Queue:          "gpu",
		Qos:            j.QOS,
		ServiceClass:   j.Class,
		SubmitMs:       ptr(g.now),
		EligibleMs:     ptr(g.now),
		StartMs:        ptr(g.now),
		TimeLimitMs:    ptr(j.Limit),
		RequestedGpus:  ptr(uint32(j.GPUs)),
		RequestedNodes: ptr(uint32(j.request().nodes())),
		Gpus:           ptr(uint32(j.GPUs)),
		Placements:     placements,
		Source:         Source,
	}
}

// placements tells GPUs by node. They are in the order of freeFrom: those of one node together.
func (g *load) placements(gpus []int) []*event.NodePlacement {
	placements := make([]*event.NodePlacement, 0, (len(gpus)+gpusPerTray-1)/gpusPerTray)
	for k := 0; k < len(gpus); {
		node, first := gpus[k]/gpusPerTray, k
		for k < len(gpus) && gpus[k]/gpusPerTray == node {
			k++
		}
		n := &event.NodePlacement{Node: g.fleet.name[node], GpuIndex: everyGPU, Gpus: &wholeTray}
		if k-first < gpusPerTray {
			n.GpuIndex, n.Gpus = nil, ptr(uint32(k-first))
			for _, i := range gpus[first:k] {
				n.GpuIndex = append(n.GpuIndex, uint32(i%gpusPerTray))
			}
		}
		placements = append(placements, n)
	}
	return placements
}

// What whole trays share.
var (
	everyGPU  = []uint32{0, 1, 2, 3}
	wholeTray = uint32(gpusPerTray)
)

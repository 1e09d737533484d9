package slurm

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/ingest/collect/slurm/hostlist"
	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
	"github.com/spillway-io/spillway/schemas/event"
)

// maxJobNodes is more nodes than a job of today can have; beyond it a hostlist is a mistake or an attack.
const maxJobNodes = 1 << 16

// expand is hostlist.Expand within maxJobNodes.
func expand(list string) ([]string, error) {
	n, err := hostlist.Count(list)
	if err != nil {
		return nil, err
	}
	if n > maxJobNodes {
		return nil, fmt.Errorf("%d nodes are more than the %d a job can have", n, maxJobNodes)
	}
	return hostlist.Expand(list)
}

// nodes sets the nodes of a run and, where Slurm tells, the GPUs it holds on each. The names of job_resources are in the
// order of gres_detail, and are all of the run's nodes even while it completes; the hostlist then has only those that still
// do. When the counts do not fit, nothing is guessed: the GPUs of the nodes stay unknown.
func (f *folder) nodes(p *event.Placement, j *slurmjson.Job) error {
	names, err := expand(j.Nodes)
	if err != nil {
		return drop("nodes_unreadable", "job %d: nodes: %w", j.JobID, err)
	}
	known := true
	switch own := j.AllocNodeNames; {
	case len(own) == len(names) && len(own) > 0, p.State == event.State_COMPLETING && len(own) > len(names):
		names = own
	case len(own) > 0:
		f.note("nodes_disagree", 1)
		known = false
	}
	if unique := slices.Compact(slices.Sorted(slices.Values(names))); len(unique) != len(names) {
		f.note("nodes_repeated", 1)
		names, known = unique, false
	}

	p.Placements = make([]*event.NodePlacement, len(names))
	backing := make([]event.NodePlacement, len(names))
	for i, name := range names {
		backing[i].Node = name
		p.Placements[i] = &backing[i]
	}
	holding := p.State == event.State_RUNNING || p.State == event.State_SUSPENDED
	switch {
	case len(j.GresDetail) == 0 || !known:
	case len(j.GresDetail) == len(names):
		f.gpusOfNodes(p, j.GresDetail)
	default:
		f.note("gres_nodes_disagree", 1)
	}

	if n, ok := f.tres(j.TresAlloc).GPUs(); ok {
		p.Gpus = f.count(n)
	} else if sum, ok := sumGPUs(p.Placements); ok {
		p.Gpus = new(sum)
	} else if holding && len(j.GresDetail) == 0 && p.RequestedGpus != nil && *p.RequestedGpus == 0 && (j.WholeNodes == nil || !*j.WholeNodes) {
		p.Gpus = new(uint32(0)) // it asked for none, and Slurm lists none
	}
	return nil
}

// gpusOfNodes sets count and indices from one gres_detail element a node. An element that cannot be read leaves its node
// unknown.
func (f *folder) gpusOfNodes(p *event.Placement, detail []string) {
	var last string
	var gpus *uint32
	var index []uint32
	for i, s := range detail {
		if i == 0 || s != last { // most nodes of a job are alike
			last = s
			gpus, index = f.gpusOfNode(s)
		}
		p.Placements[i].Gpus, p.Placements[i].GpuIndex = gpus, index
	}
}

// migType is in the type of a MIG instance: 1g.5gb, a100_3g.20gb, 1c.2g.10gb+me.
var migType = regexp.MustCompile(`(^|[^0-9a-z])[0-9]+g\.[0-9]+gb`)

// gpusOfNode gives count and indices of one gres_detail element. The index of a MIG instance counts instances, so whose GPU it
// is part of is not known.
func (f *folder) gpusOfNode(detail string) (gpus *uint32, index []uint32) {
	entries, err := slurmjson.ParseGres(detail)
	if err != nil {
		f.note("gres_unreadable", 1)
		return nil, nil
	}
	var n uint64
	indexed, instances := true, false
	for _, g := range entries {
		if g.Name != "gpu" || g.Count == 0 {
			continue
		}
		n += g.Count
		indexed = indexed && uint64(len(g.Index)) == g.Count
		instances = instances || migType.MatchString(strings.ToLower(g.Type))
		for _, i := range g.Index {
			index = append(index, uint32(i))
		}
	}
	slices.Sort(index)
	if len(index) > 0 && (!indexed || len(slices.Compact(slices.Clone(index))) != len(index)) {
		f.note("gres_index_disagrees", 1)
		index = nil
	}
	if instances {
		index = nil
	}
	return f.count(n), index
}

func sumGPUs(nodes []*event.NodePlacement) (sum uint32, known bool) {
	for _, n := range nodes {
		if n.Gpus == nil {
			return 0, false
		}
		sum += *n.Gpus
	}
	return sum, len(nodes) > 0
}

// release marks the nodes of a completing run that are through with it: those the hostlist no longer has.
func (f *folder) release(p *event.Placement, j *slurmjson.Job, at *int64) {
	still, err := expand(j.Nodes)
	if err != nil || len(still) >= len(p.Placements) {
		return
	}
	holds := make(map[string]bool, len(still))
	for _, n := range still {
		holds[n] = true
	}
	for _, n := range p.Placements {
		if !holds[n.Node] {
			n.ToMs = at
		}
	}
}

// states that keep new jobs off a node.
var unschedulable = map[string]bool{
	"DOWN": true, "ERROR": true, "FUTURE": true, "DRAIN": true, "FAIL": true, "INVALID": true, "INVALID_REG": true,
	"NOT_RESPONDING": true, "MAINTENANCE": true, "BLOCKED": true, "REBOOT_ISSUED": true,
}

// schedulableBase are base states a node in order can have.
var schedulableBase = map[string]bool{"IDLE": true, "MIXED": true, "ALLOCATED": true}

// node folds one node. Slurm knows what it was configured with and may give out; it does not know the health of a GPU.
func (f *folder) node(n *slurmjson.Node) *event.Node {
	rec := &event.Node{
		Cluster: f.cluster(n.Cluster), Node: n.Name, Source: SourceNodes,
		StateRaw: strings.Join(n.States, ","), Reason: n.Reason, Reservation: n.Reservation,
	}
	if gres, err := slurmjson.ParseGres(n.Gres); err != nil {
		f.note("gres_unreadable", 1)
	} else {
		var gpus uint64
		first := true
		for _, g := range gres {
			if g.Name != "gpu" {
				continue
			}
			gpus += g.Count
			if first {
				rec.GpuModel = g.Type // "" where gres.conf names no type
			} else if g.Type != rec.GpuModel {
				rec.GpuModel = "" // they are not of one model
			}
			first = false
		}
		rec.GpusPresent = f.count(gpus)
		rec.GpusAllocatable = rec.GpusPresent
	}
	usable, known := true, false
	for _, s := range n.States {
		usable = usable && !unschedulable[s]
		known = known || schedulableBase[s] || unschedulable[s]
	}
	if known {
		rec.Schedulable = new(usable)
	}
	return rec
}

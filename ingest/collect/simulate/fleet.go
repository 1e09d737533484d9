package simulate

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// The shape of an NVL72 rack.
const (
	traysPerRack = 18
	gpusPerTray  = 4
	gpusPerRack  = traysPerRack * gpusPerTray
	racksPerLeaf = 2
	// racksPerSpine is how many racks share one spine switch group.
	racksPerSpine = 8
)

// sentinelClique is the CliqueID that fabric managers give racks nobody divided: the same on unrelated racks.
const sentinelClique = 32766

// healthyMask is what a driver says of a fabric without faults: no bandwidth lost, no recovery, no route or access trouble.
const healthyMask = 0xaa

// topologyName is what Slurm calls its topology where topology.conf makes it.
const topologyName = "default"

// fleet is the hardware of one cluster: what the seed decides and no event changes.
type fleet struct {
	seed    uint64
	cluster string
	racks   int
	broken  []bool // by node: a tray that is out for good
	name    []string
}

func newFleet(seed uint64, cluster string, racks, degraded int) *fleet {
	f := &fleet{
		seed:    seed,
		cluster: cluster,
		racks:   racks,
		broken:  make([]bool, racks*traysPerRack),
		name:    make([]string, racks*traysPerRack),
	}
	digits := max(2, len(fmt.Sprint(racks)))
	for n := range f.name {
		f.name[n] = fmt.Sprintf("gb-r%0*d-n%02d", digits, rackOf(n)+1, n%traysPerRack+1)
	}
	rng := rand.New(rand.NewPCG(seed, hash64("degraded", cluster)))
	degraded = min(degraded, racks)
	for i := range degraded {
		rack := i * racks / degraded // spread over the cluster, so over its partitions
		missing := 1 + i%2           // 17 and 16 healthy trays by turns
		for _, tray := range rng.Perm(traysPerRack)[:missing] {
			f.broken[rack*traysPerRack+tray] = true
		}
	}
	return f
}

func rackOf(node int) int { return node / traysPerRack }

func (f *fleet) rackName(rack int) string { return fmt.Sprintf("rack%02d", rack+1) }

// domain is the ClusterUUID of a rack.
func (f *fleet) domain(rack int) string { return uuid(f.seed, f.cluster, fmt.Sprint(rack)) }

// levels above a node as the fabric inventory knows them, outermost first.
func (f *fleet) levels(node int) []*event.Level {
	rack := rackOf(node)
	return []*event.Level{
		{Level: event.LevelSpine, Value: fmt.Sprintf("spine%02d", rack/racksPerSpine+1)},
		{Level: event.LevelLeaf, Value: fmt.Sprintf("leaf%02d", rack/racksPerLeaf+1)},
		{Level: event.LevelRack, Value: f.rackName(rack)},
	}
}

// fabric is what the driver of a node says of its GPUs. A node that has just booted is not registered yet.
func (f *fleet) fabric(node int, registered bool, since, observed int64, revision uint64) *event.Membership {
	m := &event.Membership{
		Cluster:      f.cluster,
		Node:         f.name[node],
		Source:       event.SourceNVML,
		Levels:       f.levels(node),
		ValidFromMs:  &since,
		ObservedAtMs: observed,
		Revision:     revision,
	}
	for g := range gpusPerTray {
		gpu := &event.GpuFabric{
			Index: uint32(g),
			Uuid:  "GPU-" + uuid(f.seed, f.cluster, f.name[node], fmt.Sprint(g)),
			State: event.FabricInProgress,
		}
		if registered {
			gpu.State, gpu.Status = event.FabricCompleted, event.FabricSuccess
			gpu.ClusterUuid = f.domain(rackOf(node))
			gpu.CliqueId = ptr(uint32(sentinelClique))
			gpu.HealthMask = ptr(uint32(healthyMask))
		}
		m.Gpus = append(m.Gpus, gpu)
	}
	return m
}

// block is what the scheduler's topology says of a node: the same racks under the scheduler's names.
func (f *fleet) block(node int, since, observed int64, revision uint64) *event.Membership {
	rack := f.rackName(rackOf(node))
	return &event.Membership{
		Cluster:  f.cluster,
		Node:     f.name[node],
		Source:   event.SourceSlurmTopology,
		Topology: topologyName,
		Levels: []*event.Level{
			{Level: event.LevelBlock, Value: rack},
			{Level: event.LevelDomain, Value: rack},
		},
		ValidFromMs:  &since,
		ObservedAtMs: observed,
		Revision:     revision,
	}
}

// capacity is what a node can take.
func (f *fleet) capacity(node int, down bool, since, observed int64, revision uint64) *event.Node {
	n := &event.Node{
		Cluster:         f.cluster,
		Node:            f.name[node],
		Source:          Source,
		GpuModel:        "GB200",
		GpusPresent:     ptr(uint32(gpusPerTray)),
		GpusHealthy:     ptr(uint32(gpusPerTray)),
		GpusAllocatable: ptr(uint32(gpusPerTray)),
		Schedulable:     ptr(true),
		StateRaw:        "IDLE",
		ValidFromMs:     &since,
		ObservedAtMs:    observed,
		Revision:        revision,
	}
	switch {
	case f.broken[node]:
		n.Schedulable, n.GpusAllocatable = ptr(false), ptr(uint32(0))
		n.StateRaw, n.Reason = "IDLE+DRAIN", "tray out for repair"
	case down:
		n.Schedulable, n.GpusAllocatable, n.GpusHealthy = ptr(false), ptr(uint32(0)), ptr(uint32(0))
		n.StateRaw, n.Reason = "DOWN", "Not responding"
	}
	return n
}

// gone takes a node out of every source that listed it.
func (f *fleet) gone(node int, observed int64, revision uint64) []event.Record {
	at := func(source string) *event.Membership {
		return &event.Membership{
			Cluster: f.cluster, Node: f.name[node], Source: source, Removed: true, ObservedAtMs: observed, Revision: revision,
		}
	}
	block := at(event.SourceSlurmTopology)
	block.Topology = topologyName
	return []event.Record{at(event.SourceNVML), block, &event.Node{
		Cluster: f.cluster, Node: f.name[node], Source: Source, Removed: true, ObservedAtMs: observed, Revision: revision,
	}}
}

// Hardware gives the membership and capacity of a cluster of racks as Attempts places jobs on it, all trays healthy.
func Hardware(seed uint64, racks int, at time.Time) []event.Record {
	f := newFleet(seed, LoadCluster, racks, 0)
	ms, revision := at.UnixMilli(), event.Revision(at)
	records := make([]event.Record, 0, 2*len(f.name))
	for n := range f.name {
		records = append(records, f.fabric(n, true, ms, ms, revision), f.capacity(n, false, ms, ms, revision))
	}
	return records
}

// uuid is a UUID that the seed and the parts decide.
func uuid(seed uint64, parts ...string) string {
	sum := digest(seed, parts...)
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func hash64(parts ...string) uint64 {
	sum := digest(0, parts...)
	return binary.BigEndian.Uint64(sum[:])
}

func digest(seed uint64, parts ...string) [sha256.Size]byte {
	b := binary.BigEndian.AppendUint64(nil, seed)
	for _, p := range parts {
		b = append(append(b, 0), p...)
	}
	return sha256.Sum256(b)
}

func ptr[T any](v T) *T { return &v }

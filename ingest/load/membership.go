package load

import (
	"fmt"
	"math"
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/spillway-io/spillway/schemas/event"
)

// membershipBlock is rows of membership_events.
type membershipBlock struct {
	position
	record                                         event.Membership
	cluster, node, source, topology                lowText
	levels, values, clusterUUIDs, states, statuses lowTexts
	gpuIndex                                       uint16s
	uuids                                          *proto.ColArr[string]
	cliques, healthMasks                           nullUint32s
	removed                                        proto.ColBool
	validFrom                                      nullTime
	observed                                       *proto.ColDateTime64
	revision                                       proto.ColUInt64
}

func newMembershipBlock() block {
	return &membershipBlock{
		cluster: newLowText(), node: newLowText(), source: newLowText(), topology: newLowText(),
		levels: newLowTexts(), values: newLowTexts(), clusterUUIDs: newLowTexts(), states: newLowTexts(),
		statuses: newLowTexts(), gpuIndex: newUint16s(), uuids: new(proto.ColStr).Array(), cliques: newNullUint32s(),
		healthMasks: newNullUint32s(), validFrom: newNullTime(), observed: millis(),
	}
}

func (b *membershipBlock) append(offset int64, value []byte) error {
	m := &b.record
	m.Reset()
	if err := event.DecodeInto(m, value); err != nil {
		return err
	}
	levels, values := levelColumns(m.GetLevels())
	n := len(m.GetGpus())
	index, uuids, clusterUUIDs := make([]uint16, n), make([]string, n), make([]string, n)
	states, statuses := make([]string, n), make([]string, n)
	cliques, masks := make([]proto.Nullable[uint32], n), make([]proto.Nullable[uint32], n)
	for i, g := range m.GetGpus() {
		if g.GetIndex() > math.MaxUint16 {
			return fmt.Errorf("decode %s: %w", event.TopicMembership, narrowAll("gpus.index", []uint32{g.GetIndex()}))
		}
		index[i], uuids[i], clusterUUIDs[i] = uint16(g.GetIndex()), g.GetUuid(), g.GetClusterUuid()
		states[i], statuses[i] = g.GetState(), g.GetStatus()
		cliques[i], masks[i] = null(g.CliqueId), null(g.HealthMask)
	}
	b.offset.Append(offset)
	b.cluster.Append(m.GetCluster())
	b.node.Append(m.GetNode())
	b.source.Append(m.GetSource())
	b.topology.Append(m.GetTopology())
	b.levels.Append(levels)
	b.values.Append(values)
	b.gpuIndex.Append(index)
	b.uuids.Append(uuids)
	b.clusterUUIDs.Append(clusterUUIDs)
	b.cliques.Append(cliques)
	b.states.Append(states)
	b.statuses.Append(statuses)
	b.healthMasks.Append(masks)
	b.removed.Append(m.GetRemoved())
	b.validFrom.Append(nullMillis(m.ValidFromMs))
	b.observed.Append(time.UnixMilli(m.GetObservedAtMs()))
	b.revision.Append(m.GetRevision())
	return nil
}

func (b *membershipBlock) own() proto.Input {
	return proto.Input{
		{Name: "cluster", Data: b.cluster}, {Name: "node", Data: b.node}, {Name: "source", Data: b.source},
		{Name: "topology", Data: b.topology}, {Name: "level", Data: b.levels}, {Name: "level_value", Data: b.values},
		{Name: "gpu_index", Data: b.gpuIndex}, {Name: "gpu_uuid", Data: b.uuids}, {Name: "gpu_cluster_uuid", Data: b.clusterUUIDs},
		{Name: "gpu_clique_id", Data: b.cliques}, {Name: "gpu_state", Data: b.states}, {Name: "gpu_status", Data: b.statuses},
		{Name: "gpu_health_mask", Data: b.healthMasks}, {Name: "removed", Data: &b.removed}, {Name: "valid_from", Data: b.validFrom},
		{Name: "observed_at", Data: b.observed}, {Name: "revision", Data: &b.revision},
	}
}

func (b *membershipBlock) input() proto.Input {
	return append(b.columns(), b.own()...)
}

func (b *membershipBlock) reset() { b.position.reset(b.own()) }

package load

import (
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/spillway-io/spillway/schemas/event"
)

// nodeBlock is rows of node_events.
type nodeBlock struct {
	position
	record                                                event.Node
	cluster, node, source, state, reason, reserved, model lowText
	present, healthy, allocatable                         nullUint16
	schedulable                                           nullBool
	removed                                               proto.ColBool
	validFrom                                             nullTime
	observed                                              *proto.ColDateTime64
	revision                                              proto.ColUInt64
}

func newNodeBlock() block {
	return &nodeBlock{
		cluster: newLowText(), node: newLowText(), source: newLowText(), state: newLowText(),
		reason: newLowText(), reserved: newLowText(), model: newLowText(), present: newNullUint16(), healthy: newNullUint16(),
		allocatable: newNullUint16(), schedulable: newNullBool(), validFrom: newNullTime(), observed: millis(),
	}
}

func (b *nodeBlock) append(offset int64, value []byte) error {
	n := &b.record
	n.Reset()
	if err := event.DecodeInto(n, value); err != nil {
		return err
	}
	b.offset.Append(offset)
	b.cluster.Append(n.GetCluster())
	b.node.Append(n.GetNode())
	b.source.Append(n.GetSource())
	b.present.Append(narrow(n.GpusPresent))
	b.healthy.Append(narrow(n.GpusHealthy))
	b.allocatable.Append(narrow(n.GpusAllocatable))
	b.schedulable.Append(null(n.Schedulable))
	b.state.Append(n.GetStateRaw())
	b.reason.Append(n.GetReason())
	b.reserved.Append(n.GetReservation())
	b.model.Append(n.GetGpuModel())
	b.removed.Append(n.GetRemoved())
	b.validFrom.Append(nullMillis(n.ValidFromMs))
	b.observed.Append(time.UnixMilli(n.GetObservedAtMs()))
	b.revision.Append(n.GetRevision())
	return nil
}

func (b *nodeBlock) own() proto.Input {
	return proto.Input{
		{Name: "cluster", Data: b.cluster}, {Name: "node", Data: b.node}, {Name: "source", Data: b.source},
		{Name: "gpus_present", Data: b.present}, {Name: "gpus_healthy", Data: b.healthy},
		{Name: "gpus_allocatable", Data: b.allocatable}, {Name: "schedulable", Data: b.schedulable},
		{Name: "state_raw", Data: b.state}, {Name: "reason", Data: b.reason}, {Name: "reservation", Data: b.reserved}, {Name: "gpu_model", Data: b.model},
		{Name: "removed", Data: &b.removed}, {Name: "valid_from", Data: b.validFrom}, {Name: "observed_at", Data: b.observed},
		{Name: "revision", Data: &b.revision},
	}
}

func (b *nodeBlock) input() proto.Input {
	return append(b.columns(), b.own()...)
}

func (b *nodeBlock) reset() { b.position.reset(b.own()) }

package load

import (
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/spillway-io/spillway/schemas/event"
)

// placementBlock is rows of placement_events.
type placementBlock struct {
	position
	record                                                    event.Placement
	cluster, scheduler, source, user, account, queue, qos     lowText
	reservation, class, stateRaw, intentLevel, reason         lowText
	jobID, component, runID, arrayJobID, name                 proto.ColStr
	state, intentMode                                         lowText // the server turns the words into its Enum8
	probe, spread, consolidate, exclusive, partial            proto.ColBool
	restart, arrayTask, reqGPUs, reqNodes, gpus, segment, max nullUint32
	limit, wait, priority, checkpointEvery, restartTakes      nullInt64
	preemptible                                               nullBool
	submit, eligible, start, end, endEarliest, plannedStart   nullTime
	checkpoint, preemptibleFrom                               nullTime
	nodes, planned                                            lowTexts
	nodePods                                                  textLists
	nodeGPUs                                                  nullUint16s
	nodeIndex                                                 uint16Lists
	nodeFrom, nodeTo                                          nullTimes
	observed                                                  *proto.ColDateTime64
	revision                                                  proto.ColUInt64
	traces                                                    map[int]string // by row; mostly none
	traceparent                                               proto.ColStr
}

// The table's words are the contract's in lower case.
var (
	stateWords = words[event.State](event.State_name)
	modeWords  = words[event.Intent_Mode](event.Intent_Mode_name)
)

func words[K ~int32](names map[int32]string) map[K]string {
	out := make(map[K]string, len(names))
	for n, name := range names {
		out[K(n)] = strings.ToLower(name)
	}
	return out
}

func newPlacementBlock() block {
	return &placementBlock{
		state: newLowText(), intentMode: newLowText(), cluster: newLowText(), scheduler: newLowText(), source: newLowText(), user: newLowText(),
		account: newLowText(), queue: newLowText(), qos: newLowText(), reservation: newLowText(), class: newLowText(),
		stateRaw: newLowText(), intentLevel: newLowText(), reason: newLowText(), restart: newNullUint32(),
		arrayTask: newNullUint32(), reqGPUs: newNullUint32(), reqNodes: newNullUint32(), gpus: newNullUint32(),
		segment: newNullUint32(), max: newNullUint32(), limit: newNullInt64(), wait: newNullInt64(), submit: newNullTime(),
		eligible: newNullTime(), start: newNullTime(), end: newNullTime(), endEarliest: newNullTime(),
		plannedStart: newNullTime(), nodes: newLowTexts(), planned: newLowTexts(), nodeGPUs: newNullUint16s(),
		nodeIndex: newUint16Lists(), nodeFrom: newNullTimes(), nodeTo: newNullTimes(), priority: newNullInt64(), preemptible: newNullBool(),
		nodePods: newTextLists(), preemptibleFrom: newNullTime(), checkpoint: newNullTime(), checkpointEvery: newNullInt64(), restartTakes: newNullInt64(), observed: millis(),
	}
}

func (b *placementBlock) append(offset int64, value []byte) error {
	p := &b.record
	p.Reset()
	if err := event.DecodeInto(p, value); err != nil {
		return err
	}
	if stateWords[p.GetState()] == "" || modeWords[p.GetIntent().GetMode()] == "" {
		return fmt.Errorf("decode %s: state %d or intent mode %d is of a newer version: upgrade the loader before the collectors",
			event.TopicPlacement, p.GetState(), p.GetIntent().GetMode())
	}
	for _, n := range p.GetPlacements() {
		if err := narrowAll("gpu_index of "+n.GetNode(), n.GetGpuIndex()); err != nil {
			return fmt.Errorf("decode %s: %w", event.TopicPlacement, err)
		}
	}
	b.offset.Append(offset)
	b.cluster.Append(p.GetCluster())
	b.jobID.Append(p.GetJobId())
	b.component.Append(p.GetComponent())
	b.scheduler.Append(p.GetScheduler())
	b.source.Append(p.GetSource())
	b.runID.Append(p.GetRunId())
	b.restart.Append(null(p.Restart))
	b.arrayJobID.Append(p.GetArrayJobId())
	b.arrayTask.Append(null(p.ArrayTask))
	b.name.Append(p.GetName())
	b.user.Append(p.GetUser())
	b.account.Append(p.GetAccount())
	b.queue.Append(p.GetQueue())
	b.qos.Append(p.GetQos())
	b.reservation.Append(p.GetReservation())
	b.class.Append(p.GetServiceClass())
	b.probe.Append(p.GetProbe())
	b.state.Append(stateWords[p.GetState()])
	b.stateRaw.Append(p.GetStateRaw())
	b.submit.Append(nullMillis(p.SubmitMs))
	b.eligible.Append(nullMillis(p.EligibleMs))
	b.start.Append(nullMillis(p.StartMs))
	b.end.Append(nullMillis(p.EndMs))
	b.endEarliest.Append(nullMillis(p.EndEarliestMs))
	b.limit.Append(null(p.TimeLimitMs))
	b.reqGPUs.Append(null(p.RequestedGpus))
	b.reqNodes.Append(null(p.RequestedNodes))
	b.gpus.Append(null(p.Gpus))
	intent := p.GetIntent()
	mode := modeWords[intent.GetMode()]
	if intent == nil {
		mode, intent = "unknown", &event.Intent{}
	}
	b.intentMode.Append(mode)
	b.intentLevel.Append(intent.GetLevel())
	b.segment.Append(null(intent.SegmentNodes))
	b.spread.Append(intent.GetSpreadSegments())
	b.consolidate.Append(intent.GetConsolidateSegments())
	b.exclusive.Append(intent.GetExclusiveDomain())
	b.max.Append(null(intent.MaxSwitches))
	b.wait.Append(null(intent.MaxSwitchWaitMs))
	b.appendNodes(p.GetPlacements())
	b.partial.Append(p.GetPartial())
	b.reason.Append(p.GetPendingReason())
	b.plannedStart.Append(nullMillis(p.PlannedStartMs))
	b.planned.Append(p.GetPlannedNodes())
	b.priority.Append(null(p.Priority))
	b.preemptible.Append(null(p.Preemptible))
	b.preemptibleFrom.Append(nullMillis(p.PreemptibleMs))
	b.checkpoint.Append(nullMillis(p.CheckpointMs))
	b.checkpointEvery.Append(null(p.CheckpointEveryMs))
	b.restartTakes.Append(null(p.RestartMs))
	b.observed.Append(time.UnixMilli(p.GetObservedAtMs()))
	b.revision.Append(p.GetRevision())
	return nil
}

func (b *placementBlock) appendNodes(held []*event.NodePlacement) {
	names := make([]string, len(held))
	gpus := make([]proto.Nullable[uint16], len(held))
	index := make([][]uint16, len(held))
	from := make([]proto.Nullable[time.Time], len(held))
	to := make([]proto.Nullable[time.Time], len(held))
	pods := make([][]string, len(held))
	for i, n := range held {
		names[i] = n.GetNode()
		gpus[i] = narrow(n.Gpus)
		if n.Gpus == nil && len(n.GetGpuIndex()) > 0 {
			gpus[i] = proto.NewNullable(uint16(len(n.GetGpuIndex())))
		}
		index[i] = make([]uint16, len(n.GetGpuIndex()))
		for k, g := range n.GetGpuIndex() {
			index[i][k] = uint16(g)
		}
		from[i] = nullMillis(n.FromMs)
		to[i] = nullMillis(n.ToMs)
		pods[i] = n.GetPods()
	}
	b.nodes.Append(names)
	b.nodeGPUs.Append(gpus)
	b.nodeIndex.Append(index)
	b.nodeFrom.Append(from)
	b.nodeTo.Append(to)
	b.nodePods.Append(pods)
}

func (b *placementBlock) own() proto.Input {
	return proto.Input{
		{Name: "cluster", Data: b.cluster}, {Name: "job_id", Data: &b.jobID}, {Name: "component", Data: &b.component},
		{Name: "scheduler", Data: b.scheduler}, {Name: "source", Data: b.source}, {Name: "run_id", Data: &b.runID},
		{Name: "restart", Data: b.restart}, {Name: "array_job_id", Data: &b.arrayJobID}, {Name: "array_task", Data: b.arrayTask},
		{Name: "name", Data: &b.name}, {Name: "user", Data: b.user}, {Name: "account", Data: b.account},
		{Name: "queue", Data: b.queue}, {Name: "qos", Data: b.qos}, {Name: "reservation", Data: b.reservation},
		{Name: "service_class", Data: b.class}, {Name: "probe", Data: &b.probe}, {Name: "state", Data: b.state},
		{Name: "state_raw", Data: b.stateRaw}, {Name: "submit", Data: b.submit}, {Name: "eligible", Data: b.eligible},
		{Name: "start", Data: b.start}, {Name: "end", Data: b.end}, {Name: "end_earliest", Data: b.endEarliest},
		{Name: "time_limit_ms", Data: b.limit}, {Name: "requested_gpus", Data: b.reqGPUs},
		{Name: "requested_nodes", Data: b.reqNodes}, {Name: "gpus", Data: b.gpus},
		{Name: "intent_mode", Data: b.intentMode}, {Name: "intent_level", Data: b.intentLevel},
		{Name: "segment_nodes", Data: b.segment}, {Name: "spread_segments", Data: &b.spread},
		{Name: "consolidate_segments", Data: &b.consolidate}, {Name: "exclusive_domain", Data: &b.exclusive},
		{Name: "max_switches", Data: b.max}, {Name: "max_switch_wait_ms", Data: b.wait}, {Name: "nodes", Data: b.nodes},
		{Name: "node_gpus", Data: b.nodeGPUs}, {Name: "node_gpu_index", Data: b.nodeIndex}, {Name: "node_from", Data: b.nodeFrom},
		{Name: "node_to", Data: b.nodeTo}, {Name: "node_pods", Data: b.nodePods}, {Name: "partial", Data: &b.partial}, {Name: "pending_reason", Data: b.reason},
		{Name: "planned_start", Data: b.plannedStart}, {Name: "planned_nodes", Data: b.planned},
		{Name: "priority", Data: b.priority}, {Name: "preemptible", Data: b.preemptible},
		{Name: "preemptible_from", Data: b.preemptibleFrom}, {Name: "checkpoint", Data: b.checkpoint},
		{Name: "checkpoint_every_ms", Data: b.checkpointEvery}, {Name: "restart_ms", Data: b.restartTakes},
		{Name: "observed_at", Data: b.observed}, {Name: "revision", Data: &b.revision},
	}
}

func (b *placementBlock) trace(traceparent string) {
	if b.traces == nil {
		b.traces = map[int]string{}
	}
	b.traces[b.rows()-1] = traceparent
}

func (b *placementBlock) input() proto.Input {
	columns := append(b.columns(), b.own()...)
	if len(b.traces) > 0 {
		b.traceparent.Reset()
		for row := range b.rows() {
			b.traceparent.Append(b.traces[row])
		}
		columns = append(columns, proto.InputColumn{Name: "traceparent", Data: &b.traceparent})
	}
	return columns
}

func (b *placementBlock) reset() {
	b.position.reset(b.own())
	clear(b.traces)
}

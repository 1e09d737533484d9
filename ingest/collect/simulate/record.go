package simulate

import (
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// Source is the name of this collector in its records.
const Source = "simulate"

// How often jobs save their work and how long they take to start again, in the fleet's own time.
const (
	checkpointEvery = 30 * time.Minute
	restartTakes    = 5 * time.Minute
)

// scheduler is whose words the jobs are told in.
const scheduler = "slurm"

// runRecords gives all that is known of a run as records of the contract: one, or one a component of a heterogeneous job.
func (s *sim) runRecords(j *job, state event.State, observed int64, revision uint64) []*event.Placement {
	if j.Tail == 0 {
		return []*event.Placement{s.runRecord(j, state, "", j.ID, j.GPUs, j.Grants, observed, revision)}
	}
	// The leader has the first node, the second component the rest.
	var head, tail []grant
	if len(j.Grants) > 0 {
		head, tail = j.Grants[:1], j.Grants[1:]
	}
	return []*event.Placement{
		s.runRecord(j, state, id(j.ID), j.ID, gpusPerTray, head, observed, revision),
		s.runRecord(j, state, id(j.Tail), j.Tail, j.GPUs-gpusPerTray, tail, observed, revision),
	}
}

func (s *sim) runRecord(j *job, state event.State, component string, own uint64, gpus int, grants []grant, observed int64, revision uint64) *event.Placement {
	p := &event.Placement{
		Cluster:        s.fleet.cluster,
		Scheduler:      scheduler,
		JobId:          id(j.ID),
		Component:      component,
		RunId:          runID(s.fleet.seed, s.fleet.cluster, s.origin, id(own), j.Restart),
		Restart:        ptr(j.Restart),
		Name:           j.Name,
		User:           j.User,
		Account:        j.Account,
		Queue:          s.parts[j.Part].name,
		Qos:            j.QOS,
		ServiceClass:   j.Class,
		Probe:          j.Probe,
		State:          state,
		StateRaw:       state.String(),
		SubmitMs:       ptr(j.Submit),
		EligibleMs:     ptr(j.Submit),
		RequestedGpus:  ptr(uint32(gpus)),
		RequestedNodes: ptr(uint32(request{gpus: gpus}.nodes())),
		TimeLimitMs:    ptr(max(1, int64(float64(j.Limit)/s.clock.Speed))),
		Source:         Source,
		ObservedAtMs:   observed,
		Revision:       revision,
	}
	if j.Array != 0 {
		p.ArrayJobId, p.ArrayTask = id(j.Array), ptr(j.Task)
	}
	if j.Start > 0 && !j.Probe {
		ms := func(fleet time.Duration) *int64 {
			return ptr(max(1, int64(float64(fleet.Milliseconds())/s.clock.Speed)))
		}
		p.Priority, p.Preemptible = ptr(int64(j.Priority)), ptr(j.Priority == 0)
		p.CheckpointEveryMs, p.RestartMs = ms(checkpointEvery), ms(restartTakes)
	}
	p.Intent = &event.Intent{}
	if j.Segment > 0 {
		p.Intent.SegmentNodes = ptr(uint32(j.Segment))
	}
	if j.Start == 0 {
		if state == event.State_PENDING {
			p.PendingReason = j.Reason
			if j.PlannedStart > 0 {
				p.PlannedStartMs = ptr(j.PlannedStart)
				for _, n := range j.PlannedNodes {
					p.PlannedNodes = append(p.PlannedNodes, s.fleet.name[n])
				}
			}
		} else {
			p.EndMs = ptr(observed) // cancelled before it started
		}
		return p
	}
	p.StartMs = ptr(j.Start)
	// Planning goes by when the limit strikes on the wall clock, also for a run that began at another speed.
	p.TimeLimitMs = ptr(max(1, s.clock.wall(j.EndsBy)-j.Start))
	p.Gpus = ptr(uint32(gpus))
	if state.Ended() {
		p.EndMs = ptr(observed)
	}
	for _, g := range grants {
		n := &event.NodePlacement{Node: s.fleet.name[g.Node], Gpus: ptr(uint32(bits.OnesCount8(g.GPUs)))}
		for i := range gpusPerTray {
			if g.GPUs&(1<<i) != 0 {
				n.GpuIndex = append(n.GpuIndex, uint32(i))
			}
		}
		if g.From > j.Start {
			n.FromMs = ptr(g.From)
		}
		p.Placements = append(p.Placements, n)
	}
	return p
}

func id(n uint64) string { return strconv.FormatUint(n, 10) }

// runID is a key that no other run has, in the shape of Slurm's SLUID.
func runID(seed uint64, cluster string, origin int64, job string, restart uint32) string {
	sum := digest(seed, cluster, fmt.Sprint(origin), job, fmt.Sprint(restart))
	b := binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(sum[:]))
	return "s" + base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b)
}

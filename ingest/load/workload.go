package load

import (
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/spillway-io/spillway/schemas/event"
)

// workloadBlock is rows of workload_events.
type workloadBlock struct {
	position
	record                 event.Workload
	cluster, key           lowText
	job                    proto.ColStr
	step, samples, goodput nullFloat64
	observed               *proto.ColDateTime64
}

func newWorkloadBlock() block {
	return &workloadBlock{
		cluster: newLowText(), key: newLowText(), step: newNullFloat64(), samples: newNullFloat64(), goodput: newNullFloat64(),
		observed: millis(),
	}
}

func (b *workloadBlock) append(offset int64, value []byte) error {
	w := &b.record
	w.Reset()
	if err := event.DecodeInto(w, value); err != nil {
		return err
	}
	b.offset.Append(offset)
	b.cluster.Append(w.GetCluster())
	b.job.Append(w.GetJobId())
	b.key.Append(w.GetWorkloadKey())
	b.step.Append(null(w.StepSeconds))
	b.samples.Append(null(w.SamplesPerSecond))
	b.goodput.Append(null(w.Goodput))
	b.observed.Append(time.UnixMilli(w.GetObservedAtMs()))
	return nil
}

func (b *workloadBlock) own() proto.Input {
	return proto.Input{
		{Name: "cluster", Data: b.cluster}, {Name: "job_id", Data: &b.job}, {Name: "workload_key", Data: b.key},
		{Name: "step_seconds", Data: b.step}, {Name: "samples_per_second", Data: b.samples}, {Name: "goodput", Data: b.goodput},
		{Name: "observed_at", Data: b.observed},
	}
}

func (b *workloadBlock) input() proto.Input {
	return append(b.columns(), b.own()...)
}

func (b *workloadBlock) reset() { b.position.reset(b.own()) }

package load

import (
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/spillway-io/spillway/schemas/event"
)

// sourceBlock is rows of source_events.
type sourceBlock struct {
	position
	record          event.Source
	cluster, source lowText
	good            nullTime
	problem         proto.ColStr
	interval        nullUint32
	observed        *proto.ColDateTime64
}

func newSourceBlock() block {
	return &sourceBlock{
		cluster: newLowText(), source: newLowText(), good: newNullTime(), interval: newNullUint32(),
		observed: millis(),
	}
}

func (b *sourceBlock) append(offset int64, value []byte) error {
	s := &b.record
	s.Reset()
	if err := event.DecodeInto(s, value); err != nil {
		return err
	}
	b.offset.Append(offset)
	b.cluster.Append(s.GetCluster())
	b.source.Append(s.GetSource())
	b.good.Append(nullMillis(s.GoodAtMs))
	b.problem.Append(s.GetProblem())
	b.interval.Append(null(s.IntervalMs))
	b.observed.Append(time.UnixMilli(s.GetObservedAtMs()))
	return nil
}

func (b *sourceBlock) own() proto.Input {
	return proto.Input{
		{Name: "cluster", Data: b.cluster}, {Name: "source", Data: b.source}, {Name: "good_at", Data: b.good},
		{Name: "problem", Data: &b.problem}, {Name: "interval_ms", Data: b.interval}, {Name: "observed_at", Data: b.observed},
	}
}

func (b *sourceBlock) input() proto.Input {
	return append(b.columns(), b.own()...)
}

func (b *sourceBlock) reset() { b.position.reset(b.own()) }

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
	toldSource      lowTexts
	toldSince       *proto.ColArr[time.Time]
	toldGood        *proto.ColArr[time.Time]
	observed        *proto.ColDateTime64
}

func newSourceBlock() block {
	return &sourceBlock{
		cluster: newLowText(), source: newLowText(), good: newNullTime(), interval: newNullUint32(),
		toldSource: newLowTexts(), toldSince: proto.NewArray[time.Time](millis()), toldGood: proto.NewArray[time.Time](millis()),
		observed: millis(),
	}
}

func (b *sourceBlock) append(offset int64, value []byte) error {
	s := &b.record
	s.Reset()
	if err := event.DecodeInto(s, value); err != nil {
		return err
	}
	sources, since, good := make([]string, len(s.GetTold())), make([]time.Time, len(s.GetTold())), make([]time.Time, len(s.GetTold()))
	for i, t := range s.GetTold() {
		sources[i], since[i], good[i] = t.GetSource(), time.UnixMilli(t.GetSinceMs()), time.UnixMilli(t.GetGoodAtMs())
	}
	b.offset.Append(offset)
	b.cluster.Append(s.GetCluster())
	b.source.Append(s.GetSource())
	b.good.Append(nullMillis(s.GoodAtMs))
	b.problem.Append(s.GetProblem())
	b.interval.Append(null(s.IntervalMs))
	b.toldSource.Append(sources)
	b.toldSince.Append(since)
	b.toldGood.Append(good)
	b.observed.Append(time.UnixMilli(s.GetObservedAtMs()))
	return nil
}

func (b *sourceBlock) own() proto.Input {
	return proto.Input{
		{Name: "cluster", Data: b.cluster}, {Name: "source", Data: b.source}, {Name: "good_at", Data: b.good},
		{Name: "problem", Data: &b.problem}, {Name: "interval_ms", Data: b.interval}, {Name: "told_source", Data: b.toldSource},
		{Name: "told_since", Data: b.toldSince}, {Name: "told_good", Data: b.toldGood}, {Name: "observed_at", Data: b.observed},
	}
}

func (b *sourceBlock) input() proto.Input {
	return append(b.columns(), b.own()...)
}

func (b *sourceBlock) reset() { b.position.reset(b.own()) }

package load

import (
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/spillway-io/spillway/schemas/event"
)

// deadLetterGuard keeps one row of each record that the loader could not use. The loader writes the letter before it
// stores what came after the record, so that a crash loses none; if it crashes in between, it writes the letter again.
const deadLetterGuard = `
    AND (stage != 'load' OR (topic, topic_partition, topic_offset) NOT IN
        (SELECT topic, topic_partition, topic_offset FROM dead_letters WHERE stage = 'load'))
LIMIT 1 BY topic, topic_partition, topic_offset, if(stage = 'load', 0, kafka_offset)`

// deadLetterBlock is rows of dead_letters.
type deadLetterBlock struct {
	position
	record             event.DeadLetter
	topic, stage       lowText
	origin             proto.ColInt32
	originOffset       proto.ColInt64
	reason, key, value proto.ColStr
	observed           *proto.ColDateTime64
}

func newDeadLetterBlock() block {
	return &deadLetterBlock{topic: newLowText(), stage: newLowText(), observed: millis()}
}

func (b *deadLetterBlock) append(offset int64, value []byte) error {
	d := &b.record
	d.Reset()
	if err := event.DecodeInto(d, value); err != nil {
		return err
	}
	b.offset.Append(offset)
	b.topic.Append(d.GetTopic())
	b.origin.Append(d.GetPartition())
	b.originOffset.Append(d.GetOffset())
	b.stage.Append(d.GetStage())
	b.reason.Append(d.GetReason())
	b.key.AppendBytes(d.GetKey())
	b.value.AppendBytes(d.GetValue())
	b.observed.Append(time.UnixMilli(d.GetObservedAtMs()))
	return nil
}

func (b *deadLetterBlock) own() proto.Input {
	return proto.Input{
		{Name: "topic", Data: b.topic}, {Name: "topic_partition", Data: &b.origin}, {Name: "topic_offset", Data: &b.originOffset},
		{Name: "stage", Data: b.stage}, {Name: "reason", Data: &b.reason}, {Name: "key", Data: &b.key},
		{Name: "value", Data: &b.value}, {Name: "observed_at", Data: b.observed},
	}
}

func (b *deadLetterBlock) input() proto.Input {
	return append(b.columns(), b.own()...)
}

func (b *deadLetterBlock) reset() { b.position.reset(b.own()) }

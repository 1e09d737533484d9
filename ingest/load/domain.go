package load

import (
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/spillway-io/spillway/schemas/event"
)

// domainBlock is rows of domain_events.
type domainBlock struct {
	position
	record                  event.Domain
	cluster, domain, source lowText
	phase, owner            lowText
	levels, values, nodes   lowTexts
	observed                *proto.ColDateTime64
	revision                proto.ColUInt64
}

func newDomainBlock() block {
	return &domainBlock{
		cluster: newLowText(), domain: newLowText(), source: newLowText(), phase: newLowText(), owner: newLowText(),
		levels: newLowTexts(), values: newLowTexts(), nodes: newLowTexts(), observed: millis(),
	}
}

func (b *domainBlock) append(offset int64, value []byte) error {
	d := &b.record
	d.Reset()
	if err := event.DecodeInto(d, value); err != nil {
		return err
	}
	levels, values := levelColumns(d.GetLevels())
	b.offset.Append(offset)
	b.cluster.Append(d.GetCluster())
	b.domain.Append(d.GetDomain())
	b.source.Append(d.GetSource())
	b.phase.Append(d.GetPhase())
	b.levels.Append(levels)
	b.values.Append(values)
	b.nodes.Append(d.GetNodes())
	b.owner.Append(d.GetOwner())
	b.observed.Append(time.UnixMilli(d.GetObservedAtMs()))
	b.revision.Append(d.GetRevision())
	return nil
}

func (b *domainBlock) own() proto.Input {
	return proto.Input{
		{Name: "cluster", Data: b.cluster}, {Name: "domain", Data: b.domain}, {Name: "source", Data: b.source},
		{Name: "phase", Data: b.phase}, {Name: "level", Data: b.levels}, {Name: "level_value", Data: b.values},
		{Name: "nodes", Data: b.nodes}, {Name: "owner", Data: b.owner}, {Name: "observed_at", Data: b.observed},
		{Name: "revision", Data: &b.revision},
	}
}

func (b *domainBlock) input() proto.Input {
	return append(b.columns(), b.own()...)
}

func (b *domainBlock) reset() { b.position.reset(b.own()) }

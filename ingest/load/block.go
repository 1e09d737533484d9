package load

import (
	"fmt"
	"math"
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

// table is how the records of one topic become rows of one raw table: one file each.
type table struct {
	topic string
	name  string
	block func() block
	guard string // narrows further what an insert stores, see insertQuery; may be empty
}

// tables is the one list of what is loaded.
func tables() []table {
	return []table{
		{event.TopicPlacement, clickhouse.TablePlacementEvents, newPlacementBlock, ""},
		{event.TopicMembership, clickhouse.TableMembershipEvents, newMembershipBlock, ""},
		{event.TopicNode, clickhouse.TableNodeEvents, newNodeBlock, ""},
		{event.TopicCounters, clickhouse.TableCounters, newCountersBlock, ""},
		{event.TopicDomain, clickhouse.TableDomainEvents, newDomainBlock, ""},
		{event.TopicWorkload, clickhouse.TableWorkloadEvents, newWorkloadBlock, ""},
		{event.TopicSource, clickhouse.TableSourceEvents, newSourceBlock, ""},
		{event.TopicBenchmark, clickhouse.TableBenchmarkEvents, newBenchmarkBlock, ""},
		{event.TopicDeadLetter, clickhouse.TableDeadLetters, newDeadLetterBlock, deadLetterGuard},
	}
}

// block gathers rows column by column in ClickHouse's own layout, so that an insert copies bytes and no rows.
type block interface {
	// append decodes one record and adds its row; on an error nothing is added.
	append(offset int64, value []byte) error
	// input is the block as an insert sends it, except for the partition and the load time, which are the same in all
	// rows and part of the query.
	input() proto.Input
	rows() int
	// span is the lowest and the highest offset of the block; it must have rows.
	span() (first, last int64)
	reset()
}

// renewed is an empty block in new memory; what was learned from records is kept.
func renewed(t table, old block) block {
	b := t.block()
	if was, ok := old.(*countersBlock); ok {
		b.(*countersBlock).learned(was)
	}
	return b
}

// tracedBlock is a block whose table keeps the traces of records for later hops.
type tracedBlock interface {
	// trace notes the W3C traceparent of the record added last.
	trace(traceparent string)
}

// position holds the column that says where in the partition a row came from.
type position struct{ offset proto.ColInt64 }

func (p *position) rows() int { return len(p.offset) }

// span relies on Kafka's order: offsets only grow.
func (p *position) span() (first, last int64) { return p.offset[0], p.offset[len(p.offset)-1] }

func (p *position) columns() proto.Input {
	return proto.Input{{Name: "kafka_offset", Data: &p.offset}}
}

// reset empties the columns of a block and keeps their memory.
func (p *position) reset(columns proto.Input) {
	p.offset.Reset()
	for _, c := range columns {
		c.Data.(proto.Resettable).Reset()
	}
}

// Short names for the column types of the raw tables.
type (
	lowText     = *proto.ColLowCardinality[string]
	nullTime    = *proto.ColNullable[time.Time]
	nullUint32  = *proto.ColNullable[uint32]
	nullInt64   = *proto.ColNullable[int64]
	nullUint16  = *proto.ColNullable[uint16]
	nullFloat64 = *proto.ColNullable[float64]
	nullBool    = *proto.ColNullable[bool]
	lowTexts    = *proto.ColArr[string]
	nullUint16s = *proto.ColArr[proto.Nullable[uint16]]
	nullUint32s = *proto.ColArr[proto.Nullable[uint32]]
	nullTimes   = *proto.ColArr[proto.Nullable[time.Time]]
	uint16s     = *proto.ColArr[uint16]
	uint16Lists = *proto.ColArr[[]uint16]
	textLists   = *proto.ColArr[[]string]
)

func millis() *proto.ColDateTime64 {
	return new(proto.ColDateTime64).WithPrecision(proto.PrecisionMilli).WithLocation(time.UTC)
}

func newLowText() lowText         { return new(proto.ColStr).LowCardinality() }
func newNullTime() nullTime       { return proto.NewColNullable[time.Time](millis()) }
func newNullUint32() nullUint32   { return new(proto.ColUInt32).Nullable() }
func newNullInt64() nullInt64     { return new(proto.ColInt64).Nullable() }
func newNullUint16() nullUint16   { return new(proto.ColUInt16).Nullable() }
func newNullFloat64() nullFloat64 { return new(proto.ColFloat64).Nullable() }
func newNullBool() nullBool       { return new(proto.ColBool).Nullable() }
func newLowTexts() lowTexts       { return proto.NewArray[string](newLowText()) }
func newNullTimes() nullTimes     { return proto.NewArray[proto.Nullable[time.Time]](newNullTime()) }
func newNullUint16s() nullUint16s { return proto.NewArray[proto.Nullable[uint16]](newNullUint16()) }
func newNullUint32s() nullUint32s { return proto.NewArray[proto.Nullable[uint32]](newNullUint32()) }
func newUint16s() uint16s         { return proto.NewArray[uint16](new(proto.ColUInt16)) }
func newUint16Lists() uint16Lists { return proto.NewArray[[]uint16](newUint16s()) }
func newTextLists() textLists {
	return proto.NewArray[[]string](proto.NewArray[string](new(proto.ColStr)))
}

// null turns the contract's unset into the table's NULL.
func null[T any](v *T) proto.Nullable[T] {
	if v == nil {
		return proto.Null[T]()
	}
	return proto.NewNullable(*v)
}

func nullMillis(ms *int64) proto.Nullable[time.Time] {
	if ms == nil {
		return proto.Null[time.Time]()
	}
	return proto.NewNullable(time.UnixMilli(*ms))
}

// levelColumns splits levels into the columns level and level_value.
func levelColumns(levels []*event.Level) (names, values []string) {
	names, values = make([]string, len(levels)), make([]string, len(levels))
	for i, l := range levels {
		names[i], values[i] = l.GetLevel(), l.GetValue()
	}
	return names, values
}

// narrow fits a count into the table's smaller type; a number that does not fit is a broken source and becomes unknown.
func narrow(v *uint32) proto.Nullable[uint16] {
	if v == nil || *v > math.MaxUint16 {
		return proto.Null[uint16]()
	}
	return proto.NewNullable(uint16(*v))
}

// narrowAll refuses indices that do not fit: cut off they would name another GPU.
func narrowAll(field string, values []uint32) error {
	for _, v := range values {
		if v > math.MaxUint16 {
			return fmt.Errorf("%w: %s is %d: no node has so many", event.ErrInvalid, field, v)
		}
	}
	return nil
}

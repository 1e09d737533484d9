package load

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ClickHouse/ch-go/proto"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-io/spillway/schemas/event"
)

// countersBlock is rows of counters: one for each GPU, MIG instance, NVLink and NIC port of a record. Counters are most of
// all records by far, and a node's records differ from each other in little but their numbers. So what they have in
// common is read once, as a layout, and compared from then on; numbers go from the record's bytes to the columns of the
// insert without a copy in between; and a column that no row of a block knows is not sent at all.
type countersBlock struct {
	position
	scan    countersScan
	record  event.Counters             // only for what scan leaves to the contract's own reader
	layouts map[string]*countersLayout // by the names that begin a record
	known   int                        // rows of all layouts
	last    *countersLayout            // of the record before
	number  uint64                     // of the block, among those of this memory

	records []countersRecord
	total   int // rows
	order   countersOrder
	spare   numberColumn
	sent    proto.Input // once it was sent: nothing is added then, since rows are in another order

	// Filled from records when the block is sent.
	entity   proto.ColInt8
	gpu      proto.ColUInt16
	part     proto.ColUInt32
	state    proto.ColInt8
	missing  proto.ColUInt8
	reset_   proto.ColUInt8
	observed *proto.ColDateTime64
	since    numberColumn
	texts    [textColumns]dictionary

	numbers []*numberColumn // filled as records come
}

// countersRecord is a record of the block.
type countersRecord struct {
	layout   *countersLayout
	offset   int64
	observed int64 // Unix ms
	row      int   // its first, as they came
}

// Entities, as the table numbers them.
const (
	entityGPU = iota + 1
	entityMIG
	entityLink
	entityNIC
)

// precision is how much of a number is kept. No source measures more, and the rest would be most of what is stored.
type precision int

const (
	exact     precision = iota
	mebibytes           // cumulative bytes: down to a multiple of 1 MiB, so that differences never drift
	relative            // rates: to 10 significant bits, 0.1 %
	absolute            // ratios of time: to 1/1024
	single              // as a single-precision number
)

// countersColumns says where the numbers of a record go: the table's columns, each with the fields it is filled from, by
// entity. The numbers are those of the contract's message Counters.
var countersColumns = []struct {
	name   string
	keep   precision
	fields [entityNIC + 1]protowire.Number
}{
	{"tx_bytes", mebibytes, [5]protowire.Number{entityGPU: 7, entityLink: 53, entityNIC: 13}},
	{"rx_bytes", mebibytes, [5]protowire.Number{entityGPU: 8, entityLink: 54, entityNIC: 14}},
	{"bytes_per_second", relative, [5]protowire.Number{entityGPU: 20, entityLink: 55}},
	{"tx_bytes_per_second", relative, [5]protowire.Number{entityGPU: 21, entityLink: 56}},
	{"rx_bytes_per_second", relative, [5]protowire.Number{entityGPU: 22, entityLink: 57}},
	{"errors", exact, [5]protowire.Number{entityGPU: 9, entityLink: 58}},
	{"discards", exact, [5]protowire.Number{entityGPU: 23}},
	{"replays", exact, [5]protowire.Number{entityGPU: 24, entityLink: 59}},
	{"recoveries", exact, [5]protowire.Number{entityGPU: 25, entityLink: 60, entityNIC: 78}},
	{"recovery_failures", exact, [5]protowire.Number{entityGPU: 26}},
	{"downs", exact, [5]protowire.Number{entityLink: 61, entityNIC: 79}},
	{"symbol_errors", exact, [5]protowire.Number{entityGPU: 27}},
	{"effective_errors", exact, [5]protowire.Number{entityGPU: 28}},
	{"effective_ber", single, [5]protowire.Number{entityGPU: 29}},
	{"tx_wait", exact, [5]protowire.Number{entityNIC: 77}},
	{"speed_bytes_per_second", single, [5]protowire.Number{entityNIC: 76}},
	{"graphics_active", absolute, [5]protowire.Number{entityGPU: 30, entityMIG: 43}},
	{"sm_active", absolute, [5]protowire.Number{entityGPU: 10, entityMIG: 44}},
	{"tensor_active", absolute, [5]protowire.Number{entityGPU: 11, entityMIG: 45}},
	{"pcie_tx_bytes_per_second", relative, [5]protowire.Number{entityGPU: 31}},
	{"pcie_rx_bytes_per_second", relative, [5]protowire.Number{entityGPU: 32}},
	{"c2c_tx_bytes_per_second", relative, [5]protowire.Number{entityGPU: 33}},
	{"c2c_rx_bytes_per_second", relative, [5]protowire.Number{entityGPU: 34}},
}

// The other fields of the message.
const (
	fieldCluster, fieldNode, fieldSource, fieldObserved      protowire.Number = 1, 2, 3, 4
	fieldGPUIndex, fieldGPUUUID, fieldDriver                 protowire.Number = 5, 6, 15
	fieldGPUModel, fieldGPUMissing, fieldGPUReset            protowire.Number = 16, 17, 19
	fieldMIGGPU, fieldMIGID, fieldMIGProfile                 protowire.Number = 40, 41, 42
	fieldLinkGPU, fieldLink, fieldLinkState                  protowire.Number = 50, 51, 52
	fieldNIC, fieldNICPort, fieldNICGID                      protowire.Number = 12, 70, 71
	fieldNICLayer, fieldNICState, fieldNICReset              protowire.Number = 72, 73, 75
	fieldGPUSince, fieldNICSince                             protowire.Number = 18, 74
	fieldJobGPU, fieldJobMIG, fieldJobID, fieldJobNamespace  protowire.Number = 90, 91, 92, 93
	fieldJobPod, fieldJobContainer, fieldJobPodUID, fieldEnd protowire.Number = 94, 95, 96, 97
)

// The columns of texts.
const (
	textCluster = iota
	textNode
	textSource
	textDriver
	recordTexts // the columns before are the same in all rows of a record
)

const (
	textName = recordTexts + iota
	textUUID
	textModel
	textJobs
	textColumns
)

// columnSet has a bit for each column that may be empty: those of texts in their order, and these.
type columnSet uint16

const (
	hasPart columnSet = 1 << (textColumns + iota)
	hasState
	hasMissing
	hasReset
)

var textNames = [textColumns]string{"cluster", "node", "source", "driver_version", "name", "uuid", "model", "jobs"}

func newCountersBlock() block {
	b := &countersBlock{observed: millis(), layouts: map[string]*countersLayout{}, number: 1, last: &countersLayout{},
		since: numberColumn{times: millis()}}
	for i := range b.texts {
		b.texts[i].init()
	}
	for _, c := range countersColumns {
		b.numbers = append(b.numbers, &numberColumn{keep: c.keep})
	}
	return b
}

func (b *countersBlock) append(offset int64, value []byte) error {
	layout := b.last.next
	observed, ok := layout.fits(value)
	if !ok {
		names := countersNames(value)
		layout = b.layouts[string(names)]
		if observed, ok = layout.fits(value); !ok {
			var err error
			if layout, value, err = b.learn(names, value, layout != nil); err != nil {
				return err
			}
			observed = b.scan.observed
		}
		b.last.next = layout
	}
	b.last = layout
	if len(layout.rows) == 0 {
		return nil
	}
	for _, n := range layout.numbers {
		b.numbers[n.column].add(b.total+n.row, value[n.at:n.end])
	}
	b.records = append(b.records, countersRecord{layout, offset, observed, b.total})
	b.total += len(layout.rows)
	return nil
}

// maxKnown bounds the memory of layouts, in rows, and one more each.
const maxKnown = 1 << 17

// learn reads a record as a whole: the first one of a node, one with another job, one in another encoding, or one that
// breaks a rule. It gives the bytes too, as our encoder writes them. Where names are known, the contract's own reader has
// looked at them before; else, and where scan does not take a record, that reader has the last word.
func (b *countersBlock) learn(names, value []byte, known bool) (*countersLayout, []byte, error) {
	s := &b.scan
	taken := s.read(value)
	if !taken || !known {
		b.record.Reset()
		if err := event.DecodeInto(&b.record, value); err != nil {
			return nil, nil, err
		}
	}
	if !taken {
		value = event.Raw(&b.record)
		if !s.read(value) {
			return nil, nil, fmt.Errorf("decode %s: %w: a GPU has an index that no node has", event.TopicCounters, event.ErrInvalid)
		}
		return newCountersLayout(s, value), value, nil
	}
	layout := newCountersLayout(s, value)
	if names != nil {
		if was := b.layouts[string(names)]; was != nil {
			b.known -= len(was.rows) + 1
		}
		if b.known += len(layout.rows) + 1; b.known > maxKnown {
			clear(b.layouts)
			b.known, b.last = len(layout.rows)+1, &countersLayout{} // which holds the others
		}
		b.layouts[string(names)] = layout
	}
	return layout, value, nil
}

// learned takes over what another block knows; that one is of no more use.
func (b *countersBlock) learned(was *countersBlock) {
	b.layouts, b.known, b.number, b.order.number = was.layouts, was.known, was.number+1, was.order.number
}

func (b *countersBlock) rows() int { return b.total }

func (b *countersBlock) span() (first, last int64) {
	return b.records[0].offset, b.records[len(b.records)-1].offset
}

// fill makes the columns that are the same in many records, and tells which of those that may be empty are not.
func (b *countersBlock) fill() (has columnSet) {
	wide := false
	for _, r := range b.records {
		if r.layout.number != b.number {
			r.layout.look(&b.texts)
			r.layout.number = b.number
		}
		has |= r.layout.has
	}
	b.order.find(b.records, resize(&b.offset, b.total), resize(&b.observed.Data, b.total))
	for i := range b.texts {
		wide = wide || b.texts[i].values.Rows() > math.MaxUint16+1
	}
	if wide {
		fillRows(b, func(d *dictionary) []uint32 {
			d.Key = proto.KeyUInt32
			return resize(&d.Keys32, b.total)
		})
	} else {
		fillRows(b, func(d *dictionary) []uint16 {
			d.Key = proto.KeyUInt16
			return resize(&d.Keys16, b.total)
		})
	}
	return has
}

// fillRows fills the columns in the order of the table's key.
func fillRows[K uint16 | uint32](b *countersBlock, keysOf func(*dictionary) []K) {
	n := b.total
	entity, gpu, part := resize(&b.entity, n), resize(&b.gpu, n), resize(&b.part, n)
	state, missing, reset := resize(&b.state, n), resize(&b.missing, n), resize(&b.reset_, n)
	since, unknown := resize(&b.since.times.Data, n), resize(&b.since.nulls, n)
	var keys [textColumns][]K
	for i := range keys {
		keys[i] = keysOf(&b.texts[i])
	}
	b.since.known = n
	at := 0
	for _, run := range b.order.runs {
		end, row := at+run.rows, run.row
		fill(entity[at:end], row.entity)
		fill(gpu[at:end], row.gpu)
		fill(part[at:end], row.part)
		fill(state[at:end], row.state)
		fill(missing[at:end], row.missing)
		fill(reset[at:end], row.reset)
		fill(since[at:end], proto.DateTime64(row.since))
		fill(unknown[at:end], 0)
		if row.since == 0 {
			fill(unknown[at:end], 1)
			b.since.known -= run.rows
		}
		for k, key := range run.layout.keys {
			fill(keys[k][at:end], K(key))
		}
		for k, key := range row.keys {
			fill(keys[recordTexts+k][at:end], K(key))
		}
		at = end
	}
}

func fill[T any](s []T, v T) {
	for i := range s {
		s[i] = v
	}
}

// resize makes a column so long, whatever it holds.
func resize[S ~[]T, T any](s *S, n int) []T {
	*s = slices.Grow((*s)[:0], n)[:n]
	return *s
}

func (b *countersBlock) input() proto.Input {
	if b.sent != nil {
		return b.sent
	}
	has := b.fill()
	in := append(b.columns(), proto.InputColumn{Name: "observed_at", Data: b.observed},
		proto.InputColumn{Name: "entity", Data: &b.entity}, proto.InputColumn{Name: "gpu", Data: &b.gpu})
	for i := range b.texts {
		if has&(1<<i) != 0 {
			in = append(in, proto.InputColumn{Name: textNames[i], Data: &b.texts[i]})
		}
	}
	for _, c := range []struct {
		has  columnSet
		name string
		data proto.ColInput
	}{{hasPart, "part", &b.part}, {hasState, "state", &b.state}, {hasMissing, "missing", &b.missing}, {hasReset, "reset", &b.reset_}} {
		if has&c.has != 0 {
			in = append(in, proto.InputColumn{Name: c.name, Data: c.data})
		}
	}
	if b.since.known > 0 {
		in = append(in, proto.InputColumn{Name: "since", Data: nullable[time.Time](b.since.known == b.total, b.since.times, b.since.nulls)})
	}
	for i, c := range b.numbers {
		if data := c.data(&b.order, &b.spare, b.total); data != nil {
			in = append(in, proto.InputColumn{Name: countersColumns[i].name, Data: data})
		}
	}
	b.sent = in
	return in
}

func (b *countersBlock) reset() {
	// A dictionary serves the next block too, unless most of it would be sent in vain.
	if slices.ContainsFunc(b.texts[:], func(d dictionary) bool { return d.values.Rows() > b.total/2 }) {
		b.number++
		for i := range b.texts {
			b.texts[i].clear()
		}
	}
	clear(b.records) // layouts that are no longer known may go
	b.order.reset()
	b.records, b.total, b.sent = b.records[:0], 0, nil
	for _, c := range b.numbers {
		c.clear()
	}
}

// dictionary is a LowCardinality(String) column whose distinct values are found as they come, not at every insert.
type dictionary struct {
	proto.ColLowCardinalityRaw
	values proto.ColStr
	keys   map[string]uint32
}

func (d *dictionary) init() { d.Index, d.keys = &d.values, map[string]uint32{} }

// key finds or makes the key of a value.
func (d *dictionary) key(value string) uint32 {
	key, ok := d.keys[value]
	if !ok {
		key = uint32(d.values.Rows())
		d.keys[value] = key
		d.values.Append(value)
	}
	return key
}

func (d *dictionary) clear() {
	d.values.Reset()
	clear(d.keys)
}

// numberColumn is a column of numbers of which some may be absent.
type numberColumn struct {
	keep   precision
	rows   int
	known  int            // numbers that are not absent
	nulls  proto.ColUInt8 // as far as the last absent one
	ints   proto.ColUInt64
	floats proto.ColFloat32
	times  *proto.ColDateTime64 // of since, the only one
}

// pad makes the rows before one absent, as far as they were not told of.
func (c *numberColumn) pad(rows int) {
	n := rows - c.rows
	if n <= 0 {
		return
	}
	c.marks(c.rows)
	nulls := extend(&c.nulls, n)
	for i := range nulls {
		nulls[i] = 1
	}
	switch c.keep {
	case exact, mebibytes:
		clear(extend(&c.ints, n))
	default:
		clear(extend(&c.floats, n))
	}
	c.rows = rows
}

// marks completes the null marks of the rows before one.
func (c *numberColumn) marks(rows int) {
	clear(extend(&c.nulls, rows-len(c.nulls)))
}

// maxCount is where a counter is no count any more; beyond it a float64 does not fit the column.
const maxCount = 1 << 63

// add takes the doubles of a packed field for the rows from one on.
func (c *numberColumn) add(at int, packed []byte) {
	n := len(packed) / 8
	c.pad(at)
	c.rows += n
	c.known += n
	switch c.keep {
	case exact, mebibytes:
		mask := ^uint64(0)
		if c.keep == mebibytes {
			mask <<= 20
		}
		out := extend(&c.ints, n)
		for i := range out {
			if v := double(packed, i); v < maxCount {
				out[i] = uint64(int64(v)) & mask
			} else {
				out[i] = 0
				c.absent(at + i)
			}
		}
	default:
		out := extend(&c.floats, n)
		for i := range out {
			v := double(packed, i)
			switch {
			case !(v < maxCount):
				out[i] = 0
				c.absent(at + i)
			case c.keep == relative:
				out[i] = significant(float32(v))
			case c.keep == absolute:
				out[i] = float32(math.RoundToEven(v*1024) / 1024)
			default:
				out[i] = float32(v)
			}
		}
	}
}

func (c *numberColumn) absent(row int) {
	c.marks(row)
	c.nulls = append(c.nulls, 1)
	c.known--
}

// double is the i-th of a packed field.
func double(packed []byte, i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(packed[8*i : 8*i+8]))
}

// extend makes room for more entries at the end and gives it. It grows by doubling: append's own steps would copy a
// column of a large block several times.
func extend[S ~[]T, T any](s *S, n int) []T {
	l := len(*s)
	if cap(*s)-l < n {
		*s = slices.Grow(*s, max(n, l))
	}
	*s = (*s)[:l+n]
	return (*s)[l:]
}

// significant rounds to 10 significant bits.
func significant(v float32) float32 {
	const dropped = 14 // of 23 that follow the leading one
	bits := math.Float32bits(v)
	return math.Float32frombits((bits + 1<<(dropped-1)) &^ (1<<dropped - 1))
}

// data is what is sent: nothing when no row knows the number, and no null marks when all do. It is put in order by way of
// a spare column, whose memory then changes hands.
func (c *numberColumn) data(order *countersOrder, spare *numberColumn, rows int) proto.ColInput {
	if c.known == 0 {
		return nil
	}
	c.pad(rows)
	whole := c.known == rows
	if !whole {
		c.marks(rows)
		inOrder(order, &c.nulls, &spare.nulls)
	}
	switch {
	case c.keep == exact || c.keep == mebibytes:
		inOrder(order, &c.ints, &spare.ints)
		return nullable[uint64](whole, &c.ints, c.nulls)
	default:
		inOrder(order, &c.floats, &spare.floats)
		return nullable[float32](whole, &c.floats, c.nulls)
	}
}

func inOrder[S ~[]T, T any](order *countersOrder, column, spare *S) {
	if order.same {
		return
	}
	in, out := *column, resize(spare, len(order.from))
	for i, from := range order.from {
		out[i] = in[from]
	}
	*column, *spare = out, in
}

func nullable[T any](whole bool, values proto.ColumnOf[T], nulls proto.ColUInt8) proto.ColInput {
	if whole {
		return values
	}
	return &proto.ColNullable[T]{Nulls: nulls, Values: values}
}

func (c *numberColumn) clear() {
	c.rows, c.known = 0, 0
	c.nulls.Reset()
	c.ints.Reset()
	c.floats.Reset()
}

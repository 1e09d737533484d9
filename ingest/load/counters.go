package load

import (
	"bytes"
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
// all records by far, so they go from the record's bytes to the columns of the insert without a copy in between, and a
// column that no row of a block knows is not sent at all.
type countersBlock struct {
	position
	scan     countersScan
	record   event.Counters  // only for what scan leaves to the contract's own reader
	trusted  map[string]bool // names that it has taken
	cluster  dictionary
	node     dictionary
	source   dictionary
	driver   dictionary
	name     dictionary
	uuid     dictionary
	model    dictionary
	jobs     dictionary
	entity   proto.ColInt8
	gpu      proto.ColUInt16
	part     proto.ColUInt32
	state    proto.ColInt8
	missing  proto.ColUInt8
	reset_   proto.ColUInt8
	observed *proto.ColDateTime64
	numbers  []*numberColumn
	job      []byte // scratch
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
	instant             // milliseconds
)

// countersColumns says where the numbers of a record go: the table's columns, each with the fields it is filled from, by
// entity. The numbers are those of the contract's message Counters.
var countersColumns = []struct {
	name   string
	keep   precision
	fields [entityNIC + 1]protowire.Number
}{
	{"since", instant, [5]protowire.Number{entityGPU: 18, entityNIC: 74}},
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
	fieldJobGPU, fieldJobMIG, fieldJobID, fieldJobNamespace  protowire.Number = 90, 91, 92, 93
	fieldJobPod, fieldJobContainer, fieldJobPodUID, fieldEnd protowire.Number = 94, 95, 96, 97
)

func newCountersBlock() block {
	b := &countersBlock{position: newPosition(), observed: millis(), trusted: map[string]bool{}}
	for _, d := range b.dictionaries() {
		d.data.init()
	}
	for _, c := range countersColumns {
		b.numbers = append(b.numbers, &numberColumn{keep: c.keep, times: millis()})
	}
	return b
}

func (b *countersBlock) append(offset int64, value []byte) error {
	s := &b.scan
	if !s.read(value) || !b.known(s) {
		// Rare: the first record of a node, one in another encoding, or one that breaks a rule. The contract's own
		// reader has the last word.
		b.record.Reset()
		if err := event.DecodeInto(&b.record, value); err != nil {
			return err
		}
		if !s.read(event.Raw(&b.record)) {
			return fmt.Errorf("decode %s: %w: a GPU has an index that no node has", event.TopicCounters, event.ErrInvalid)
		}
		b.trust(s)
	}
	before := b.rows()
	for i, index := range s.lists[fieldGPUIndex] {
		b.row(entityGPU, uint16(index), 0, nil, s.text(fieldGPUUUID, i), s.text(fieldGPUModel, i))
		b.missing = append(b.missing, uint8(min(1, s.number(fieldGPUMissing, i))))
		b.reset_ = append(b.reset_, uint8(min(1, s.number(fieldGPUReset, i))))
		b.state = append(b.state, 0)
	}
	for i, gpu := range s.lists[fieldMIGGPU] {
		b.row(entityMIG, uint16(s.lists[fieldGPUIndex][gpu]), uint32(s.number(fieldMIGID, i)), nil, nil, s.text(fieldMIGProfile, i))
		b.missing, b.reset_, b.state = append(b.missing, 0), append(b.reset_, 0), append(b.state, 0)
	}
	for i, gpu := range s.lists[fieldLinkGPU] {
		b.row(entityLink, uint16(s.lists[fieldGPUIndex][gpu]), uint32(s.number(fieldLink, i)), nil, nil, nil)
		b.missing, b.reset_ = append(b.missing, 0), append(b.reset_, 0)
		b.state = append(b.state, linkState(s.number(fieldLinkState, i)))
	}
	for i, name := range s.texts[fieldNIC] {
		b.row(entityNIC, 0, uint32(s.number(fieldNICPort, i)), name, s.text(fieldNICGID, i), s.text(fieldNICLayer, i))
		b.missing = append(b.missing, 0)
		b.reset_ = append(b.reset_, uint8(min(1, s.number(fieldNICReset, i))))
		b.state = append(b.state, linkState(s.number(fieldNICState, i)))
	}
	added := b.rows() - before
	b.cluster.add(s.one[fieldCluster], added)
	b.node.add(s.one[fieldNode], added)
	b.source.add(s.one[fieldSource], added)
	b.driver.add(s.one[fieldDriver], added)
	for range added {
		b.offset = append(b.offset, offset)
		b.observed.AppendRaw(proto.DateTime64(s.observed))
	}
	b.appendJobs(s, before)
	at := before
	for entity := entityGPU; entity <= entityNIC; entity++ {
		n := s.entities(entity)
		if n == 0 {
			continue
		}
		for i, c := range countersColumns {
			if field := c.fields[entity]; field != 0 {
				if c.keep == instant {
					b.numbers[i].addTimes(at, s.lists[field])
				} else {
					b.numbers[i].add(at, s.packed[field])
				}
			}
		}
		at += n
	}
	return nil
}

// linkState is a state as the table numbers it; one of a newer version is not known.
func linkState(v uint64) int8 {
	if v > uint64(event.LinkState_MISSING) {
		return 0
	}
	return int8(v)
}

// The names that make the key of a record.
var countersKey = []protowire.Number{fieldCluster, fieldNode, fieldSource}

// known says whether the contract's reader has looked at the names of a record before.
func (b *countersBlock) known(s *countersScan) bool {
	for _, f := range countersKey {
		if !b.trusted[string(s.one[f])] {
			return false
		}
	}
	return !bytes.ContainsRune(s.one[fieldCluster], '/') // which a node may have, and a cluster may not
}

// maxTrusted bounds the memory of known.
const maxTrusted = 1 << 17

func (b *countersBlock) trust(s *countersScan) {
	if len(b.trusted) > maxTrusted {
		clear(b.trusted)
	}
	for _, f := range countersKey {
		b.trusted[string(s.one[f])] = true
	}
}

// rows counts by a column that append fills row by row.
func (b *countersBlock) rows() int { return len(b.entity) }

func (b *countersBlock) row(entity int8, gpu uint16, part uint32, name, uuid, model []byte) {
	b.entity = append(b.entity, entity)
	b.gpu = append(b.gpu, gpu)
	b.part = append(b.part, part)
	b.name.add(name, 1)
	b.uuid.add(uuid, 1)
	b.model.add(model, 1)
}

// appendJobs writes who used each GPU: ids of batch jobs, or namespace/pod, with commas between.
func (b *countersBlock) appendJobs(s *countersScan, before int) {
	gpus := s.lists[fieldJobGPU]
	if len(gpus) == 0 {
		b.jobs.add(nil, b.rows()-before)
		return
	}
	for i := range s.lists[fieldGPUIndex] {
		b.job = b.job[:0]
		for k, gpu := range gpus {
			if int(gpu) != i {
				continue
			}
			if len(b.job) > 0 {
				b.job = append(b.job, ',')
			}
			if id := s.text(fieldJobID, k); len(id) > 0 {
				b.job = append(b.job, id...)
			} else {
				b.job = append(append(append(b.job, s.text(fieldJobNamespace, k)...), '/'), s.text(fieldJobPod, k)...)
			}
		}
		b.jobs.add(b.job, 1)
	}
	b.jobs.add(nil, b.rows()-before-len(s.lists[fieldGPUIndex]))
}

type namedDictionary struct {
	name string
	data *dictionary
}

func (b *countersBlock) dictionaries() []namedDictionary {
	return []namedDictionary{
		{"cluster", &b.cluster}, {"node", &b.node}, {"source", &b.source}, {"driver_version", &b.driver},
		{"name", &b.name}, {"uuid", &b.uuid}, {"model", &b.model}, {"jobs", &b.jobs},
	}
}

func (b *countersBlock) input(partition int32, loadedAt time.Time) proto.Input {
	in := append(b.columns(partition, loadedAt),
		proto.InputColumn{Name: "observed_at", Data: b.observed}, proto.InputColumn{Name: "entity", Data: &b.entity},
		proto.InputColumn{Name: "gpu", Data: &b.gpu})
	for _, d := range b.dictionaries() {
		if !d.data.blank() {
			in = append(in, proto.InputColumn{Name: d.name, Data: d.data.encode()})
		}
	}
	for _, c := range []struct {
		name string
		any  bool
		data proto.ColInput
	}{
		{"part", some(b.part), &b.part}, {"state", some(b.state), &b.state},
		{"missing", some(b.missing), &b.missing}, {"reset", some(b.reset_), &b.reset_},
	} {
		if c.any {
			in = append(in, proto.InputColumn{Name: c.name, Data: c.data})
		}
	}
	for i, c := range b.numbers {
		if data := c.data(b.rows()); data != nil {
			in = append(in, proto.InputColumn{Name: countersColumns[i].name, Data: data})
		}
	}
	return in
}

func some[T int8 | uint8 | uint32](values []T) bool {
	for _, v := range values {
		if v != 0 {
			return true
		}
	}
	return false
}

func (b *countersBlock) reset() {
	b.position.reset(proto.Input{
		{Data: &b.entity}, {Data: &b.gpu}, {Data: &b.part}, {Data: &b.state}, {Data: &b.missing}, {Data: &b.reset_}, {Data: b.observed},
	})
	for _, d := range b.dictionaries() {
		d.data.clear()
	}
	for _, c := range b.numbers {
		c.clear()
	}
}

// dictionary is a LowCardinality(String) column whose distinct values are found as they come, not at every insert.
type dictionary struct {
	proto.ColLowCardinalityRaw
	values proto.ColStr
	keys   map[string]uint32
	rows   []uint32 // key of each row
	// next guesses a row's key from that of the row before: records come round in the same order, and to compare one
	// value is a fraction of a look-up. It has an entry for each key, and a last one for the first row of a block.
	next []uint32
	last uint32
}

func (d *dictionary) init() {
	d.Index, d.keys = &d.values, map[string]uint32{}
	d.clear()
}

func (d *dictionary) add(value []byte, times int) {
	if times == 0 {
		return
	}
	key := d.next[d.last]
	if int(key) >= d.values.Rows() || string(d.values.RowBytes(int(key))) != string(value) {
		var ok bool
		if key, ok = d.keys[string(value)]; !ok {
			key = uint32(d.values.Rows())
			d.keys[string(value)] = key
			d.values.AppendBytes(value)
			d.next = append(d.next, key)
		}
		d.next[d.last] = key
	}
	d.last = key
	for range times {
		d.rows = append(d.rows, key)
	}
	if times > 1 {
		d.next[key] = key
	}
}

// encode prepares the keys in the narrowest type that holds them all.
func (d *dictionary) encode() proto.ColInput {
	switch n := d.values.Rows(); {
	case n <= math.MaxUint8:
		d.Key, d.Keys8 = proto.KeyUInt8, narrowed(d.Keys8, d.rows)
	case n <= math.MaxUint16:
		d.Key, d.Keys16 = proto.KeyUInt16, narrowed(d.Keys16, d.rows)
	default:
		d.Key, d.Keys32 = proto.KeyUInt32, narrowed(d.Keys32, d.rows)
	}
	return d
}

func narrowed[S ~[]T, T uint8 | uint16 | uint32](out S, keys []uint32) S {
	out = slices.Grow(out[:0], len(keys))[:len(keys)]
	for i, k := range keys {
		out[i] = T(k)
	}
	return out
}

// blank says that every row has the empty text, which is the column's default.
func (d *dictionary) blank() bool {
	return d.values.Rows() == 1 && len(d.values.RowBytes(0)) == 0
}

func (d *dictionary) clear() {
	d.values.Reset()
	clear(d.keys)
	d.rows, d.next, d.last = d.rows[:0], append(d.next[:0], 0), 0
}

// numberColumn is a column of numbers of which some may be absent.
type numberColumn struct {
	keep   precision
	known  int // numbers that are not absent
	nulls  proto.ColUInt8
	ints   proto.ColUInt64
	floats proto.ColFloat32
	times  *proto.ColDateTime64
}

// pad makes the rows before one absent, as far as they were not told of.
func (c *numberColumn) pad(rows int) {
	for len(c.nulls) < rows {
		c.null()
	}
}

func (c *numberColumn) null() {
	c.nulls = append(c.nulls, 1)
	switch c.keep {
	case exact, mebibytes:
		c.ints = append(c.ints, 0)
	case instant:
		c.times.Data = append(c.times.Data, 0)
	default:
		c.floats = append(c.floats, 0)
	}
}

// maxCount is where a counter is no count any more; beyond it a float64 does not fit the column.
const maxCount = 1 << 63

// add takes the doubles of a packed field for the rows from one on.
func (c *numberColumn) add(at int, packed []byte) {
	n := len(packed) / 8
	if n == 0 {
		return
	}
	c.pad(at)
	nulls := extend(&c.nulls, n)
	known := n
	clear(nulls)
	absent := func(i int, v float64) bool {
		if v < maxCount { // not NaN either
			return false
		}
		nulls[i] = 1
		known--
		return true
	}
	value := func(i int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(packed[8*i:])) }
	switch c.keep {
	case exact, mebibytes:
		mask := ^uint64(0)
		if c.keep == mebibytes {
			mask <<= 20
		}
		for i, out := 0, extend(&c.ints, n); i < n; i++ {
			if v := value(i); !absent(i, v) {
				out[i] = uint64(v) & mask
			} else {
				out[i] = 0
			}
		}
	default:
		for i, out := 0, extend(&c.floats, n); i < n; i++ {
			v := value(i)
			switch {
			case absent(i, v):
				out[i] = 0
			case c.keep == relative:
				out[i] = significant(float32(v))
			case c.keep == absolute:
				out[i] = float32(math.RoundToEven(v*1024) / 1024)
			default:
				out[i] = float32(v)
			}
		}
	}
	c.known += known
}

// extend makes room for more entries at the end and gives it.
func extend[S ~[]T, T any](s *S, n int) []T {
	l := len(*s)
	*s = slices.Grow(*s, n)[:l+n]
	return (*s)[l:]
}

// significant rounds to 10 significant bits.
func significant(v float32) float32 {
	const dropped = 14 // of 23 that follow the leading one
	bits := math.Float32bits(v)
	return math.Float32frombits((bits + 1<<(dropped-1)) &^ (1<<dropped - 1))
}

// addTimes takes milliseconds; what is no time is not known.
func (c *numberColumn) addTimes(at int, ms []uint64) {
	if len(ms) == 0 {
		return
	}
	c.pad(at)
	for _, v := range ms {
		if v < minObserved || v > maxObserved {
			c.null()
			continue
		}
		c.known++
		c.nulls = append(c.nulls, 0)
		c.times.AppendRaw(proto.DateTime64(v))
	}
}

// data is what is sent: nothing when no row knows the number, and no null marks when all do.
func (c *numberColumn) data(rows int) proto.ColInput {
	if c.known == 0 {
		return nil
	}
	c.pad(rows)
	switch whole := c.known == rows; {
	case c.keep == exact || c.keep == mebibytes:
		return nullable[uint64](whole, &c.ints, c.nulls)
	case c.keep == instant:
		return nullable[time.Time](whole, c.times, c.nulls)
	default:
		return nullable[float32](whole, &c.floats, c.nulls)
	}
}

func nullable[T any](whole bool, values proto.ColumnOf[T], nulls proto.ColUInt8) proto.ColInput {
	if whole {
		return values
	}
	return &proto.ColNullable[T]{Nulls: nulls, Values: values}
}

func (c *numberColumn) clear() {
	c.known = 0
	c.nulls.Reset()
	c.ints.Reset()
	c.floats.Reset()
	c.times.Reset()
}

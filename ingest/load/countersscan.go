package load

import (
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/spillway-io/spillway/schemas/event"
)

// countersScan is a record of counters as it lies in its bytes: doubles and texts are not copied. It takes what the
// contract's encoder writes and keeps every rule of it; whatever it does not take may still be right, and is for the
// contract's own reader to judge.
type countersScan struct {
	observed int64
	one      [fieldEnd][]byte
	packed   [fieldEnd][]byte
	texts    [fieldEnd][][]byte
	lists    [fieldEnd][]uint64
	seen     []protowire.Number
	spans    []countersSpan // where the doubles and the time lie, in order
}

// countersSpan is where a field lies in a record.
type countersSpan struct {
	field   protowire.Number
	at, end int
}

// shape is how a field is encoded.
type shape uint8

const (
	shapeNone shape = iota
	shapeText
	shapeNumber
	shapeDoubles
	shapeNumbers
	shapeZigzags
	shapeTexts
)

var countersShapes = countersShape()

func countersShape() (out [fieldEnd]shape) {
	fields := (&event.Counters{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		s := shapeNumber
		switch {
		case f.Kind() == protoreflect.StringKind && f.IsList():
			s = shapeTexts
		case f.Kind() == protoreflect.StringKind:
			s = shapeText
		case f.Kind() == protoreflect.DoubleKind:
			s = shapeDoubles
		case f.Kind() == protoreflect.Sint32Kind:
			s = shapeZigzags
		case f.IsList():
			s = shapeNumbers
		}
		out[f.Number()] = s
	}
	return out
}

// countersGroups are the fields of each entity: those that have a number for each, and how many there are.
var countersGroups = []struct {
	count     func(*countersScan) int
	positions protowire.Number
	fields    []protowire.Number
}{
	{func(s *countersScan) int { return s.entities(entityGPU) }, 0, []protowire.Number{
		fieldGPUUUID, fieldGPUModel, fieldGPUMissing, fieldGPUReset, 18, 7, 8, 20, 21, 22, 9, 23, 24, 25, 26, 27, 28, 29, 30, 10, 11, 31, 32, 33, 34}},
	{func(s *countersScan) int { return s.entities(entityMIG) }, fieldMIGGPU, []protowire.Number{fieldMIGID, fieldMIGProfile, 43, 44, 45}},
	{func(s *countersScan) int { return s.entities(entityLink) }, fieldLinkGPU, []protowire.Number{
		fieldLink, fieldLinkState, 53, 54, 55, 56, 57, 58, 59, 60, 61}},
	{func(s *countersScan) int { return s.entities(entityNIC) }, 0, []protowire.Number{
		fieldNICPort, fieldNICGID, fieldNICLayer, fieldNICState, fieldNICReset, 74, 76, 13, 14, 77, 78, 79}},
	{func(s *countersScan) int { return len(s.lists[fieldJobGPU]) }, fieldJobGPU, []protowire.Number{
		fieldJobMIG, fieldJobID, fieldJobNamespace, fieldJobPod, fieldJobContainer, fieldJobPodUID}},
}

func (s *countersScan) entities(entity int) int {
	switch entity {
	case entityGPU:
		return len(s.lists[fieldGPUIndex])
	case entityMIG:
		return len(s.lists[fieldMIGGPU])
	case entityLink:
		return len(s.lists[fieldLinkGPU])
	default:
		return len(s.texts[fieldNIC])
	}
}

// text is one entry of a field of texts; one that is not told is empty.
func (s *countersScan) text(field protowire.Number, i int) []byte {
	if i < len(s.texts[field]) {
		return s.texts[field][i]
	}
	return nil
}

// number is one entry of a field of numbers; one that is not told is 0.
func (s *countersScan) number(field protowire.Number, i int) uint64 {
	if i < len(s.lists[field]) {
		return s.lists[field][i]
	}
	return 0
}

// jobs says who used each GPU: ids of batch jobs, or namespace/pod, with commas between. Who used a MIG instance of it has
// the instance's number behind a #, and so is not taken for one that had the GPU.
func (s *countersScan) jobs() [][]byte {
	out := make([][]byte, len(s.lists[fieldGPUIndex]))
	for k, gpu := range s.lists[fieldJobGPU] {
		job := &out[gpu]
		if len(*job) > 0 {
			*job = append(*job, ',')
		}
		if id := s.text(fieldJobID, k); len(id) > 0 {
			*job = append(*job, id...)
		} else {
			*job = append(append(append(*job, s.text(fieldJobNamespace, k)...), '/'), s.text(fieldJobPod, k)...)
		}
		if k < len(s.lists[fieldJobMIG]) {
			if mig := protowire.DecodeZigZag(s.lists[fieldJobMIG][k]); mig != event.JobMigNone {
				*job = strconv.AppendInt(append(*job, '#'), mig, 10)
			}
		}
	}
	return out
}

// read takes a record apart; false says that it is not taken.
func (s *countersScan) read(b []byte) bool {
	for _, f := range s.seen {
		s.one[f], s.packed[f], s.texts[f], s.lists[f] = nil, nil, s.texts[f][:0], s.lists[f][:0]
	}
	s.seen, s.spans, s.observed = s.seen[:0], s.spans[:0], 0
	size := len(b)
	for len(b) > 0 {
		field, wire, n := protowire.ConsumeTag(b)
		if n < 0 || field > protowire.MaxValidNumber {
			return false
		}
		b = b[n:]
		how := shapeNone
		if field < fieldEnd {
			how = countersShapes[field]
		}
		switch {
		case how == shapeNone: // of a newer version
			if n = protowire.ConsumeFieldValue(field, wire, b); n < 0 {
				return false
			}
		case how == shapeNumber:
			v, m := protowire.ConsumeVarint(b)
			if n = m; wire != protowire.VarintType || n < 0 {
				return false
			}
			s.observed = int64(v) // the only one
			s.spans = append(s.spans, countersSpan{field, size - len(b), size - len(b) + n})
		case wire != protowire.BytesType:
			return false
		default:
			v, m := protowire.ConsumeBytes(b)
			if n = m; n < 0 || !s.take(field, how, v) {
				return false
			}
			if how == shapeDoubles {
				s.spans = append(s.spans, countersSpan{field, size - len(b) + n - len(v), size - len(b) + n})
			}
		}
		b = b[n:]
	}
	return s.valid()
}

func (s *countersScan) take(field protowire.Number, how shape, v []byte) bool {
	s.seen = append(s.seen, field) // also when it is not taken: the next record begins without it
	again := s.one[field] != nil || s.packed[field] != nil || len(s.lists[field]) > 0
	switch how {
	case shapeText:
		s.one[field] = v
		if again || !utf8.Valid(v) {
			return false
		}
	case shapeTexts:
		if !utf8.Valid(v) {
			return false
		}
		s.texts[field] = append(s.texts[field], v)
	case shapeDoubles:
		if s.packed[field] = v; again || len(v)%8 != 0 {
			return false
		}
	default:
		if again {
			return false
		}
		for len(v) > 0 {
			x, n := protowire.ConsumeVarint(v)
			if n < 0 {
				return false
			}
			s.lists[field] = append(s.lists[field], x)
			v = v[n:]
		}
	}
	return true
}

// Times outside of these are no times of a GPU cluster, by the contract.
const minObserved, maxObserved = 946684800000, 4102444800000

// valid holds only for a record that keeps the rules of the contract and fits the table.
func (s *countersScan) valid() bool {
	if s.observed < minObserved || s.observed > maxObserved {
		return false
	}
	gpus := uint64(len(s.lists[fieldGPUIndex]))
	for _, index := range s.lists[fieldGPUIndex] {
		if index > math.MaxUint16 {
			return false
		}
	}
	for _, field := range []protowire.Number{fieldMIGID, fieldLink, fieldNICPort} {
		for _, n := range s.lists[field] {
			if n > math.MaxUint32 {
				return false
			}
		}
	}
	for _, g := range countersGroups {
		n := g.count(s)
		if g.positions != 0 {
			for _, p := range s.lists[g.positions] {
				if p >= gpus {
					return false
				}
			}
		}
		for _, f := range g.fields {
			if have := len(s.packed[f])/8 + len(s.texts[f]) + len(s.lists[f]); have != 0 && have != n {
				return false
			}
			if !validNumbers(s.packed[f]) {
				return false
			}
		}
	}
	return true
}

const (
	infinity     = 0x7FF0000000000000
	negativeZero = 1 << 63
)

// validNumbers says that no double is below zero or infinite; NaN is one that is absent.
func validNumbers(packed []byte) bool {
	for ; len(packed) >= 8; packed = packed[8:] {
		if bits := binary.LittleEndian.Uint64(packed); bits >= infinity && bits != negativeZero && bits<<1 <= infinity<<1 {
			return false
		}
	}
	return true
}

package load

import (
	"bytes"
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-io/spillway/schemas/event"
)

// countersLayout is what the records of a node have in common for as long as only its numbers and the time change: which
// bytes, where its numbers lie, and the rows without them.
type countersLayout struct {
	size    int // of a record
	same    []sameBytes
	time    int // where the time of the scrape lies
	timeLen int
	numbers []layoutNumbers
	texts   [recordTexts]string
	rows    []layoutRow
	has     columnSet // columns that are not empty in all rows

	// Keys of the texts, once they were looked up in the dictionaries of this number.
	number uint64
	keys   [recordTexts]uint32

	order []int32         // of the rows, by the table's key
	next  *countersLayout // of the record that came after the last of this one: nodes are scraped in turn

	// For countersOrder: the place of the record last seen, and which rows are left of that place.
	ordered uint64
	hour    int64
	group   int
	left    []int32
	at      int
}

// sameBytes is bytes that do not change. Most of them are a field's number and length, so what fits into a word is compared
// as one.
type sameBytes struct {
	at    int
	bytes []byte
	word  uint64
	mask  uint64 // 0: too long for a word, or too close to the end
}

func newSameBytes(value []byte, at, end int) sameBytes {
	s := sameBytes{at: at, bytes: value[at:end]}
	if n := end - at; n <= 8 && at+8 <= len(value) {
		s.mask = 1<<(8*n) - 1 // all of it for 8
		s.word = binary.LittleEndian.Uint64(value[at:]) & s.mask
	}
	return s
}

func (s *sameBytes) in(value []byte) bool {
	if s.mask != 0 {
		return binary.LittleEndian.Uint64(value[s.at:])&s.mask == s.word
	}
	return bytes.Equal(value[s.at:s.at+len(s.bytes)], s.bytes)
}

// layoutNumbers says where the numbers of one column lie, and from which row of the record on they are.
type layoutNumbers struct{ column, row, at, end int }

// layoutRow is one GPU, MIG instance, NVLink or NIC port.
type layoutRow struct {
	entity         int8
	state          int8
	missing, reset uint8
	gpu            uint16
	part           uint32
	since          int64 // Unix ms; 0 is not known
	texts          [textColumns - recordTexts]string
	keys           [textColumns - recordTexts]uint32
}

// countersNames is the part of a record that holds the names of its cluster, node and source, which our encoder writes
// first; nil where they are not.
func countersNames(b []byte) []byte {
	at := 0
	for _, field := range []protowire.Number{fieldCluster, fieldNode, fieldSource} {
		number, wire, n := protowire.ConsumeTag(b[at:])
		if n < 0 || number != field || wire != protowire.BytesType {
			return nil
		}
		_, m := protowire.ConsumeBytes(b[at+n:])
		if m < 0 {
			return nil
		}
		at += n + m
	}
	return b[:at]
}

// newCountersLayout takes the layout of a record that was scanned. Nothing of the record's own memory is kept.
func newCountersLayout(s *countersScan, value []byte) *countersLayout {
	layout := &countersLayout{size: len(value)}
	value = bytes.Clone(value)
	s.read(value)
	first := [entityNIC + 2]int{}
	for entity := entityGPU; entity <= entityNIC; entity++ {
		first[entity+1] = first[entity] + s.entities(entity)
	}
	at := 0
	for _, span := range s.spans {
		if span.at > at {
			layout.same = append(layout.same, newSameBytes(value, at, span.at))
		}
		at = span.end
		if span.field == fieldObserved {
			layout.time, layout.timeLen = span.at, span.end-span.at
			continue
		}
		if place := countersPlaces[span.field]; span.end > span.at {
			layout.numbers = append(layout.numbers, layoutNumbers{place.column, first[place.entity], span.at, span.end})
		}
	}
	layout.same = append(layout.same, newSameBytes(value, at, len(value)))
	slices.SortFunc(layout.numbers, func(a, b layoutNumbers) int { return a.row - b.row }) // columns are filled downwards
	layout.texts = [recordTexts]string{string(s.one[fieldCluster]), string(s.one[fieldNode]), string(s.one[fieldSource]), string(s.one[fieldDriver])}
	layout.fillRows(s)
	for i := range layout.rows {
		layout.order = append(layout.order, int32(i))
	}
	slices.SortStableFunc(layout.order, func(a, b int32) int { return layout.rows[a].compare(&layout.rows[b]) })
	layout.has = layout.columns()
	return layout
}

// countersPlaces says for each field of numbers which column and entity it is of.
var countersPlaces = func() (out [fieldEnd]struct{ column, entity int }) {
	for i, c := range countersColumns {
		for entity, field := range c.fields {
			if field != 0 {
				out[field] = struct{ column, entity int }{i, entity}
			}
		}
	}
	return out
}()

func (layout *countersLayout) fillRows(s *countersScan) {
	flag := func(field protowire.Number, i int) uint8 { return uint8(min(1, s.number(field, i))) }
	jobs := s.jobs()
	for i, index := range s.lists[fieldGPUIndex] {
		layout.rows = append(layout.rows, layoutRow{
			entity: entityGPU, gpu: uint16(index), missing: flag(fieldGPUMissing, i), reset: flag(fieldGPUReset, i),
			since: sinceTime(s.number(fieldGPUSince, i)),
			texts: layoutTexts(nil, s.text(fieldGPUUUID, i), s.text(fieldGPUModel, i), jobs[i]),
		})
	}
	for i, gpu := range s.lists[fieldMIGGPU] {
		layout.rows = append(layout.rows, layoutRow{
			entity: entityMIG, gpu: uint16(s.lists[fieldGPUIndex][gpu]), part: uint32(s.number(fieldMIGID, i)),
			texts: layoutTexts(nil, nil, s.text(fieldMIGProfile, i), nil),
		})
	}
	for i, gpu := range s.lists[fieldLinkGPU] {
		layout.rows = append(layout.rows, layoutRow{
			entity: entityLink, gpu: uint16(s.lists[fieldGPUIndex][gpu]), part: uint32(s.number(fieldLink, i)),
			state: linkState(s.number(fieldLinkState, i)),
		})
	}
	for i, name := range s.texts[fieldNIC] {
		layout.rows = append(layout.rows, layoutRow{
			entity: entityNIC, part: uint32(s.number(fieldNICPort, i)), state: linkState(s.number(fieldNICState, i)),
			reset: flag(fieldNICReset, i), since: sinceTime(s.number(fieldNICSince, i)),
			texts: layoutTexts(name, s.text(fieldNICGID, i), s.text(fieldNICLayer, i), nil),
		})
	}
}

func (layout *countersLayout) columns() (has columnSet) {
	note := func(any bool, column columnSet) {
		if any {
			has |= column
		}
	}
	for i, text := range layout.texts {
		note(text != "", 1<<i)
	}
	for _, row := range layout.rows {
		for k, text := range row.texts {
			note(text != "", 1<<(recordTexts+k))
		}
		note(row.part != 0, hasPart)
		note(row.state != 0, hasState)
		note(row.missing != 0, hasMissing)
		note(row.reset != 0, hasReset)
	}
	return has
}

func layoutTexts(name, uuid, model, jobs []byte) (out [textColumns - recordTexts]string) {
	out[textName-recordTexts], out[textUUID-recordTexts] = string(name), string(uuid)
	out[textModel-recordTexts], out[textJobs-recordTexts] = string(model), string(jobs)
	return out
}

// sinceTime is 0 for what is no time.
func sinceTime(ms uint64) int64 {
	if ms < minObserved || ms > maxObserved {
		return 0
	}
	return int64(ms)
}

// linkState is a state as the table numbers it; one of a newer version is not known.
func linkState(v uint64) int8 {
	if v > uint64(event.LinkState_MISSING) {
		return 0
	}
	return int8(v)
}

// fits says whether a record has this layout and keeps the contract's rules, and gives its time.
func (layout *countersLayout) fits(value []byte) (observed int64, ok bool) {
	if layout == nil || len(value) != layout.size {
		return 0, false
	}
	for i := range layout.same {
		if !layout.same[i].in(value) {
			return 0, false
		}
	}
	ms, n := binary.Uvarint(value[layout.time:])
	if n != layout.timeLen || ms < minObserved || ms > maxObserved {
		return 0, false
	}
	for _, n := range layout.numbers {
		if !validNumbers(value[n.at:n.end]) {
			return 0, false
		}
	}
	return int64(ms), true
}

// look finds the keys of the texts.
func (layout *countersLayout) look(texts *[textColumns]dictionary) {
	for i, text := range layout.texts {
		layout.keys[i] = texts[i].key(text)
	}
	for i := range layout.rows {
		row, before := &layout.rows[i], &layout.rows[max(0, i-1)]
		for k, text := range row.texts {
			if i > 0 && text == before.texts[k] {
				row.keys[k] = before.keys[k]
			} else {
				row.keys[k] = texts[recordTexts+k].key(text)
			}
		}
	}
}

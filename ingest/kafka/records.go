package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"github.com/pierrec/lz4/v4"
	"github.com/segmentio/kafka-go/compress"
)

// Record is one record of a partition. Its bytes are those of the answer it came in: they hold until the next call of
// the stream's Next.
type Record struct {
	Offset     int64
	Time       time.Time // when it was made, or stored, as the topic is configured
	Key, Value []byte
	headers    []byte // as they are encoded
	count      int64  // of headers
}

// Header gives the value of the first header of a name, or nil.
func (r *Record) Header(name string) []byte {
	b := cursor{rest: r.headers}
	for range r.count {
		if key, value := b.bytes(), b.bytes(); string(key) == name {
			return value
		}
	}
	return nil
}

// batch is a record batch that is read record by record: format 2 of the Kafka protocol, the only one since Kafka 0.11
// and the only one at all since Kafka 4.
type batch struct {
	base     int64 // offset of its first record, when it was written
	end      int64 // one above the offset of its last record, even if that is gone
	baseTime int64 // Unix ms
	logTime  int64 // Unix ms, when the broker stored it; 0: records have their own
	records  cursor
	left     int // records that were not read yet

	producer               int64
	transactional, control bool // control: it marks the end of a transaction
}

// ErrBroken says that a record batch cannot be read. Reading it again is of no use unless the broker mends it.
var ErrBroken = errors.New("the record batch is broken")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The layout of a batch's header.
const (
	batchPrefix = 12 // base offset and length
	batchHeader = 61
)

// openBatch takes the first batch off an answer and unpacks it with the help of scratch, whose memory is used again. An
// answer may end within a batch, which is then not there.
func openBatch(answer, scratch []byte) (b batch, rest, unpacked []byte, ok bool, err error) {
	if len(answer) < batchPrefix {
		return b, nil, scratch, false, nil
	}
	size := int(int32(binary.BigEndian.Uint32(answer[8:])))
	if size < batchHeader-batchPrefix {
		return b, nil, scratch, false, fmt.Errorf("%w: it is %d bytes long", ErrBroken, size)
	}
	if len(answer)-batchPrefix < size {
		return b, nil, scratch, false, nil
	}
	raw, rest := answer[:batchPrefix+size], answer[batchPrefix+size:]
	if magic := raw[16]; magic != 2 {
		return b, nil, scratch, false, fmt.Errorf("%w: its format is %d; format 2 is read, which brokers write since Kafka 0.11: "+
			"unset log.message.format.version of the broker", ErrBroken, magic)
	}
	if crc32.Checksum(raw[21:], castagnoli) != binary.BigEndian.Uint32(raw[17:]) {
		return b, nil, scratch, false, fmt.Errorf("%w: its checksum does not fit", ErrBroken)
	}
	attributes := binary.BigEndian.Uint16(raw[21:])
	b.base = int64(binary.BigEndian.Uint64(raw))
	b.end = b.base + int64(int32(binary.BigEndian.Uint32(raw[23:]))) + 1
	b.baseTime = int64(binary.BigEndian.Uint64(raw[27:]))
	if attributes&0x8 != 0 {
		b.logTime = int64(binary.BigEndian.Uint64(raw[35:]))
	}
	b.producer = int64(binary.BigEndian.Uint64(raw[43:]))
	b.transactional, b.control = attributes&0x10 != 0, attributes&0x20 != 0
	if b.control {
		return b, rest, scratch, true, nil
	}
	b.left = int(int32(binary.BigEndian.Uint32(raw[57:])))
	b.records.rest = raw[batchHeader:]
	if codec := compress.Compression(attributes & 0x7); codec != compress.None {
		if scratch, err = unpack(codec, scratch[:0], raw[batchHeader:]); err != nil {
			return b, nil, scratch, false, fmt.Errorf("%w: unpack %s: %w", ErrBroken, codec, err)
		}
		b.records.rest = scratch
	}
	return b, rest, scratch, true, nil
}

// behindBroken gives the first offset after a broken batch, which an answer begins with: that of the next batch, or by the
// broken one's own word; 0 = not known.
func behindBroken(answer []byte) int64 {
	if size := int64(int32(binary.BigEndian.Uint32(answer[8:]))); size >= batchHeader-batchPrefix && int64(len(answer)) >= batchPrefix+size+8 {
		return int64(binary.BigEndian.Uint64(answer[batchPrefix+size:]))
	}
	if len(answer) < batchHeader {
		return 0
	}
	return int64(binary.BigEndian.Uint64(answer)) + int64(int32(binary.BigEndian.Uint32(answer[23:]))) + 1
}

// next reads a record; the caller makes sure that one is left.
func (b *batch) next() (r Record, err error) {
	c := cursor{rest: b.records.bytes()}
	c.take(1) // attributes, of which there are none
	ms := b.baseTime + c.varint()
	if b.logTime != 0 {
		ms = b.logTime
	}
	r.Time = time.UnixMilli(ms)
	r.Offset = b.base + c.varint()
	r.Key, r.Value = c.bytes(), c.bytes()
	r.count = c.varint()
	r.headers = c.rest
	if b.records.bad || c.bad || r.count < 0 || r.Offset < b.base || r.Offset >= b.end {
		return r, fmt.Errorf("%w: a record of it cannot be read", ErrBroken)
	}
	b.left--
	return r, nil
}

// cursor reads what records are made of. Once something is not there it is bad and gives zeros.
type cursor struct {
	rest []byte
	bad  bool
}

func (c *cursor) varint() int64 {
	if len(c.rest) > 0 && c.rest[0] < 0x80 { // most are of one byte
		v := c.rest[0]
		c.rest = c.rest[1:]
		return int64(v>>1) ^ -int64(v&1)
	}
	return c.long()
}

func (c *cursor) long() int64 {
	v, n := binary.Varint(c.rest)
	if n <= 0 {
		c.bad, c.rest = true, nil
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

func (c *cursor) take(n int64) []byte {
	if n < 0 || n > int64(len(c.rest)) {
		c.bad, c.rest = true, nil
		return nil
	}
	out := c.rest[:n:n]
	c.rest = c.rest[n:]
	return out
}

// bytes has its length before it; -1 is nil.
func (c *cursor) bytes() []byte {
	n := c.varint()
	if n == -1 {
		return nil
	}
	return c.take(n)
}

// maxUnpacked bounds a batch whatever it claims to hold; producers make batches of a megabyte.
const maxUnpacked = 64 << 20

var errLarge = fmt.Errorf("it unpacks to more than %d MB: have its producer make smaller batches", maxUnpacked>>20)

// unpack appends what is packed.
func unpack(codec compress.Compression, out, packed []byte) ([]byte, error) {
	if codec == compress.Lz4 {
		if out, ok := unpackLZ4(out, packed); ok && len(out) <= maxUnpacked {
			return out, nil
		}
	}
	c := codec.Codec()
	if c == nil {
		return out, fmt.Errorf("codec %d is not known", int(codec))
	}
	r := c.NewReader(bytes.NewReader(packed))
	defer r.Close()
	buf := bytes.NewBuffer(out)
	_, err := io.Copy(buf, io.LimitReader(r, maxUnpacked+1))
	if err == nil && buf.Len() > maxUnpacked {
		err = errLarge
	}
	return buf.Bytes(), err
}

// unpackLZ4 unpacks a frame block by block into its place, without the frame's own checksum, which is slower than all
// else: the batch has one. False says that it is no frame as Kafka's clients write it.
func unpackLZ4(out, frame []byte) ([]byte, bool) {
	const magic, version, independent, blockSums, contentSize, dictionary = 0x184D2204, 0x40, 0x20, 0x10, 0x08, 0x01
	if len(frame) < 7 || binary.LittleEndian.Uint32(frame) != magic {
		return out, false
	}
	flags, largest := frame[4], frame[5]>>4&7
	if flags&0xC0 != version || flags&dictionary != 0 || largest < 4 {
		return out, false
	}
	limit := 1 << (8 + 2*largest) // 64 KiB to 4 MiB
	frame = frame[6:]
	if flags&contentSize != 0 {
		frame = frame[min(8, len(frame)):]
	}
	frame = frame[min(1, len(frame)):] // the header's checksum
	for len(frame) >= 4 && len(out) <= maxUnpacked {
		size := binary.LittleEndian.Uint32(frame)
		frame = frame[4:]
		if size == 0 {
			return out, true
		}
		plain, n := size>>31 == 1, int(size&^(1<<31))
		if n > len(frame) {
			return out, false
		}
		block := frame[:n]
		frame = frame[n:]
		if flags&blockSums != 0 {
			frame = frame[min(4, len(frame)):]
		}
		if plain {
			out = append(out, block...)
			continue
		}
		var before []byte
		if flags&independent == 0 {
			before = out[max(0, len(out)-64<<10):]
		}
		for room := min(4*n, limit); ; room = min(2*room, limit) {
			out = slices.Grow(out, room)
			m, err := lz4.UncompressBlockWithDict(block, out[len(out):cap(out)], before)
			if err == nil {
				out = out[:len(out)+m]
				break
			}
			if room >= limit {
				return out, false
			}
		}
	}
	return out, false
}

package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pierrec/lz4/v4"
	"github.com/segmentio/kafka-go/compress"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// pack makes a record batch; its offsets begin at 7.
func pack(t testing.TB, codec compress.Compression, attributes int16, frame func([]byte) []byte, values ...string) []byte {
	t.Helper()
	var records []byte
	for i, v := range values {
		r := kmsg.Record{TimestampDelta64: int64(i), OffsetDelta: int32(i), Key: []byte("k"), Value: []byte(v),
			Headers: []kmsg.Header{{Key: "h", Value: []byte("1")}, {Key: "empty"}}}
		body := r.AppendTo(nil)[1:] // without the length, which is 0
		records = append(binary.AppendVarint(records, int64(len(body))), body...)
	}
	if codec != compress.None {
		if frame == nil {
			frame = func(b []byte) []byte {
				var out bytes.Buffer
				w := codec.Codec().NewWriter(&out)
				if _, err := w.Write(b); err != nil {
					t.Fatal(err)
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				return out.Bytes()
			}
		}
		records = frame(records)
	}
	b := kmsg.RecordBatch{FirstOffset: 7, Magic: 2, Attributes: int16(codec) | attributes, LastOffsetDelta: int32(max(len(values), 1)) - 1,
		FirstTimestamp: noon, MaxTimestamp: noon + 9, NumRecords: int32(len(values)), Records: records}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-batchPrefix))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli))
	return raw
}

// unpackAll reads all records of all batches of an answer.
func unpackAll(answer []byte) (values []string, err error) {
	var scratch []byte
	for {
		b, rest, memory, ok, err := openBatch(answer, scratch)
		if err != nil || !ok {
			return values, err
		}
		for b.left > 0 {
			r, err := b.next()
			if err != nil {
				return values, err
			}
			r.Header("empty")
			values = append(values, string(r.Value))
		}
		answer, scratch = rest, memory
	}
}

// lz4Frame packs with options of the format that Kafka's clients differ in.
func lz4Frame(t testing.TB, o ...lz4.Option) func([]byte) []byte {
	return func(b []byte) []byte {
		var out bytes.Buffer
		w := lz4.NewWriter(&out)
		if err := w.Apply(o...); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
}

func TestBatchesOfEveryKind(t *testing.T) {
	long := string(bytes.Repeat([]byte("spillway "), 50_000)) // several blocks of 64 KiB, and packed to next to nothing
	values := []string{"a", long, "", "b"}
	for name, frame := range map[string]func([]byte) []byte{
		"as is":              nil,
		"small blocks":       lz4Frame(t, lz4.BlockSizeOption(lz4.Block64Kb)),
		"sums":               lz4Frame(t, lz4.BlockChecksumOption(true), lz4.ChecksumOption(true)),
		"size in the header": func(b []byte) []byte { return lz4Frame(t, lz4.SizeOption(uint64(len(b))))(b) },
	} {
		t.Run("lz4, "+name, func(t *testing.T) {
			got, err := unpackAll(pack(t, compress.Lz4, 0, frame, values...))
			if err != nil || cmp.Diff(values, got) != "" {
				t.Error(err, cmp.Diff(values, got))
			}
		})
	}
	for _, codec := range []compress.Compression{compress.None, compress.Gzip, compress.Snappy, compress.Zstd} {
		t.Run(codec.String(), func(t *testing.T) {
			got, err := unpackAll(append(pack(t, codec, 0, nil, values...), pack(t, codec, 0, nil, "c")...))
			if want := append(values[:4:4], "c"); err != nil || cmp.Diff(want, got) != "" {
				t.Error(err, cmp.Diff(want, got))
			}
		})
	}
	t.Run("blocks that refer to the one before", func(t *testing.T) {
		// The block of a frame whose blocks are linked: copy 100 bytes from 100 back, which lie in the block before.
		first := bytes.Repeat([]byte("0123456789"), 10)
		frame := []byte{0x04, 0x22, 0x4D, 0x18, 0x40, 0x40, 0}
		frame = append(binary.LittleEndian.AppendUint32(frame, uint32(len(first))|1<<31), first...)
		second := []byte{0x0F, 100, 0, 100 - 19, 0x50, 'a', 'b', 'c', 'd', 'e'}
		frame = append(binary.LittleEndian.AppendUint32(frame, uint32(len(second))), second...)
		frame = binary.LittleEndian.AppendUint32(frame, 0)
		out, ok := unpackLZ4(nil, frame)
		if want := string(first) + string(first) + "abcde"; !ok || string(out) != want {
			t.Errorf("%v, %q, want %q", ok, out, want)
		}
	})
	t.Run("the end of a transaction holds no record", func(t *testing.T) {
		got, err := unpackAll(pack(t, compress.None, 0x20, nil, "marker"))
		if err != nil || len(got) != 0 {
			t.Error(got, err)
		}
	})
	t.Run("the time is the broker's", func(t *testing.T) {
		b, _, _, _, err := openBatch(pack(t, compress.None, 0x8, nil, "a"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := b.next(); err != nil || r.Time.UnixMilli() != noon+9 || r.Offset != 7 {
			t.Error(r, err)
		}
	})
	t.Run("a bit that fell over", func(t *testing.T) {
		raw := pack(t, compress.None, 0, nil, "a")
		raw[len(raw)-1] ^= 1
		if got, err := unpackAll(raw); err == nil {
			t.Errorf("taken as %q", got)
		}
	})
}

func TestTransactionsThatWereGivenUpAreNotRead(t *testing.T) {
	const transactional, control = 0x10, 0x20
	at := func(offset, producer int64, attributes int16, value string) []byte {
		raw := pack(t, compress.None, attributes, nil, value)
		binary.BigEndian.PutUint64(raw, uint64(offset))
		binary.BigEndian.PutUint64(raw[43:], uint64(producer))
		binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli))
		return raw
	}
	var answer []byte
	for _, b := range [][]byte{
		at(1, 5, transactional, "lost"), at(2, 6, transactional, "kept"), at(3, -1, 0, "of no transaction"), at(4, 5, transactional, "lost too"),
		at(5, 5, control, "abort"), at(6, 5, transactional, "kept: the next transaction of the same producer"), at(7, 6, control, "commit"),
	} {
		answer = append(answer, b...)
	}
	s := &Stream{answer: answer, aborted: map[int64]bool{}, aborts: []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 5, FirstOffset: 1}}}
	var got []string
	for {
		r, ok, err := s.Next(0)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		got = append(got, string(r.Value))
	}
	want := []string{"kept", "of no transaction", "kept: the next transaction of the same producer"}
	if diff := cmp.Diff(want, got); diff != "" || s.next != 8 {
		t.Errorf("reads on at %d: %s", s.next, diff)
	}
}

func TestABatchThatUnpacksToTooMuchIsRefused(t *testing.T) {
	for _, codec := range []compress.Compression{compress.Lz4, compress.Zstd, compress.Gzip} {
		raw := pack(t, codec, 0, nil, string(make([]byte, maxUnpacked)))
		if _, err := unpackAll(raw); !errors.Is(err, errLarge) {
			t.Errorf("%s: %d bytes were taken: %v", codec, len(raw), err)
		}
	}
}

func TestBatchesOfEveryPrefix(t *testing.T) {
	raw := append(pack(t, compress.Lz4, 0, nil, "a", "b"), pack(t, compress.None, 0, nil, "c")...)
	for i := range len(raw) {
		if got, err := unpackAll(raw[:i:i]); err != nil || len(got) > 2 {
			t.Fatalf("of %d bytes: %q, %v", i, got, err)
		}
	}
}

func FuzzBatch(f *testing.F) {
	f.Add(pack(f, compress.Lz4, 0, nil, "a", "b"))
	f.Add(pack(f, compress.None, 0, nil, "c"))
	f.Add(pack(f, compress.Zstd, 0x8, nil, "c"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) >= batchHeader { // what is looked at is behind the checksum
			binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:min(len(raw), batchPrefix+max(9, int(int32(binary.BigEndian.Uint32(raw[8:])))))], castagnoli))
		}
		unpackAll(raw)
		unpackLZ4(nil, raw)
	})
}

// TestABrokenBatchSaysWhereItEnds: records before it come first, and what is given up is the batch and no more, as far as
// that can be told.
func TestABrokenBatchSaysWhereItEnds(t *testing.T) {
	at := func(offset int64, change func(raw []byte), values ...string) []byte {
		raw := pack(t, compress.None, 0, nil, values...)
		binary.BigEndian.PutUint64(raw, uint64(offset))
		if change != nil {
			change(raw)
		}
		return raw
	}
	before, after := at(5, nil, "before"), at(20, nil, "after")
	resum := func(raw []byte) { binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli)) }
	for name, c := range map[string]struct {
		answer [][]byte
		next   int64 // after the broken batch
		says   string
	}{
		"a bit fell over":                     {[][]byte{before, at(6, func(raw []byte) { raw[len(raw)-1] ^= 1 }, "a", "b"), after}, 20, "its checksum does not fit"},
		"a bit fell over in the last one":     {[][]byte{before, at(6, func(raw []byte) { raw[len(raw)-1] ^= 1 }, "a", "b")}, 8, "its checksum does not fit"},
		"its offsets are broken too":          {[][]byte{before, at(6, func(raw []byte) { raw[23] ^= 1 }, "a", "b")}, 99, "its checksum does not fit"},
		"an old format":                       {[][]byte{before, at(6, func(raw []byte) { raw[16] = 1 }, "a", "b"), after}, 20, "unset log.message.format.version"},
		"a codec that nobody knows":           {[][]byte{before, at(6, func(raw []byte) { raw[22] |= 7; resum(raw) }, "a", "b"), after}, 20, "codec 7 is not known"},
		"a length that cannot be":             {[][]byte{before, at(6, func(raw []byte) { binary.BigEndian.PutUint32(raw[8:], 3) }, "a", "b")}, 8, "it is 3 bytes long"},
		"a record that ends beyond its batch": {[][]byte{before, at(6, func(raw []byte) { raw[batchHeader] = 0x7e; resum(raw) }, "a", "b"), after}, 8, "a record of it cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Stream{topic: "a.topic", partition: 3, next: 5, End: 99, answer: bytes.Join(c.answer, nil)}
			if r, ok, err := s.Next(0); !ok || err != nil || string(r.Value) != "before" {
				t.Fatalf("first came %q, %v, %v", r.Value, ok, err)
			}
			_, _, err := s.Next(0)
			if !errors.Is(err, ErrBroken) {
				t.Fatalf("got %v", err)
			}
			for _, want := range []string{"read a.topic/3 from offset 6: ", c.says,
				fmt.Sprintf("its offsets end before %d; ", c.next), fmt.Sprintf("kafka-delete-records.sh: topic a.topic, partition 3, offset %d; ", c.next)} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("it does not say %q: %v", want, err)
				}
			}
		})
	}
}

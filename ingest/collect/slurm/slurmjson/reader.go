package slurmjson

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// reader walks a document token by token. Most bytes of a squeue document are the per-core arrays of job_resources, so
// what counts is how fast a value is passed over. Measured on a 100 MB squeue document, one core: jsontext's ReadValue
// 527 MB/s, its SkipValue 286 MB/s (168 MB/s with its checks of duplicate names and UTF-8), encoding/json.Valid 225 MB/s.
// So values are passed over with ReadValue, one node's cores at a time, which keeps its buffer at a few KB. A document of
// 1 GB (5,000 jobs of 36 nodes) then decodes at 450 MB/s with 4 MB of heap, and no skipper of our own is needed.
//
// The first error sticks: later reads return zero values, and loops end. Decoders check err once a record.
type reader struct {
	dec *jsontext.Decoder
	err error
	at  int64 // the byte err is about
	// path is the path of the value being read, ".jobs.time_limit.number".
	path   []byte
	unread map[string]int
	// known shares the strings that repeat: user and node names, states, GRES entries.
	known map[string]string
	buf   []byte
}

// maxKnown bounds the shared strings of one document.
const maxKnown = 1 << 16

// readAhead is how much is read from the source at a time.
const readAhead = 256 << 10

func newReader(src io.Reader) *reader {
	return &reader{
		// Slurm prints what users typed, so invalid UTF-8 must not cost the document. It becomes U+FFFD.
		dec:    jsontext.NewDecoder(src, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)),
		known:  map[string]string{},
		unread: map[string]int{},
	}
}

// newDocument also looks at the first bytes, to tell an error page from JSON.
func newDocument(src io.Reader) *reader {
	in := bufio.NewReaderSize(src, readAhead)
	r := newReader(in)
	if _, err := in.Peek(1); errors.Is(err, io.EOF) {
		r.err = fmt.Errorf("the document is empty: %w", io.ErrUnexpectedEOF)
	}
	head, _ := in.Peek(in.Buffered())
	if head = bytes.TrimLeft(head, " \t\r\n"); len(head) > 0 && head[0] != '{' {
		r.err = fmt.Errorf("not a JSON object, it begins with %q", head[:min(80, len(head))])
	}
	return r
}

func (r *reader) fail(err error) {
	if r.err == nil && err != nil {
		r.at = r.dec.InputOffset()
		if s := (*jsontext.SyntacticError)(nil); errors.As(err, &s) {
			r.at, err = s.ByteOffset, s.Err
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		r.err = err
	}
}

// kind returns the kind of the next value, 0 after an error.
func (r *reader) kind() jsontext.Kind {
	if r.err != nil {
		return 0
	}
	return r.dec.PeekKind()
}

func (r *reader) token() {
	if r.err == nil {
		_, err := r.dec.ReadToken()
		r.fail(err)
	}
}

// raw returns the bytes of the next value, valid until the next read.
func (r *reader) raw() []byte {
	if r.err != nil {
		return nil
	}
	v, err := r.dec.ReadValue()
	r.fail(err)
	return v
}

func (r *reader) skip() { r.raw() }

// odd passes over a value of a shape this decoder does not know, and counts it.
func (r *reader) odd() {
	r.skip()
	r.note()
}

func (r *reader) note() {
	if r.err == nil {
		r.unread[string(r.path)]++
	}
}

// object reads an object. member must read exactly one value; key is valid during the call. null is an object without
// members.
func (r *reader) object(member func(key string)) {
	switch r.kind() {
	case '{':
	case 'n':
		r.skip()
		return
	default:
		r.odd()
		return
	}
	r.token()
	base := len(r.path)
	for r.err == nil && r.kind() != '}' {
		name := r.raw()
		if len(name) < 2 {
			break
		}
		r.path = append(append(r.path, '.'), name[1:len(name)-1]...)
		member(r.share(name[1 : len(name)-1]))
		r.path = r.path[:base]
	}
	r.token()
}

// array reads an array. element must read exactly one value. null is an array without elements.
func (r *reader) array(element func()) {
	switch r.kind() {
	case '[':
	case 'n':
		r.skip()
		return
	default:
		r.odd()
		return
	}
	r.token()
	for r.err == nil && r.kind() != ']' {
		element()
	}
	r.token()
}

// share returns b as a string, the same one for the same bytes.
func (r *reader) share(b []byte) string {
	if s, ok := r.known[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(r.known) < maxKnown {
		r.known[s] = s
	}
	return s
}

// text returns the unquoted bytes of the next value if it is a string, valid until the next read.
func (r *reader) text() (b []byte, ok bool) {
	switch r.kind() {
	case '"':
		v := r.raw()
		if r.err != nil {
			return nil, false
		}
		if bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v) {
			return v[1 : len(v)-1], true
		}
		r.buf, _ = jsontext.AppendUnquote(r.buf[:0], v) // it can only fail on invalid UTF-8, which it replaces
		return r.buf, true
	case 'n':
		r.skip()
	default:
		r.odd()
	}
	return nil, false
}

// str reads a string that is its own in each record. null is "".
func (r *reader) str() string {
	b, _ := r.text()
	return string(b)
}

// word reads a string that repeats between records.
func (r *reader) word() string {
	b, _ := r.text()
	return r.share(b)
}

// words reads a list of strings, which some versions print as one string. Empty entries are left out.
func (r *reader) words() []string {
	if k := r.kind(); k != '[' {
		if w := r.word(); w != "" {
			return []string{w}
		}
		return nil
	}
	var out []string
	r.array(func() {
		if w := r.word(); w != "" {
			out = append(out, w)
		}
	})
	return out
}

// A number is what Slurm's number shapes can say.
type number struct {
	set, infinite bool
	n             uint64
}

// What Slurm's C code stores for "no value" and "infinite", in 32 and 64 bits.
const (
	noVal      = 0xfffffffe
	infinite   = 0xffffffff
	noVal64    = 0xfffffffffffffffe
	infinite64 = 0xffffffffffffffff
)

func toNumber(n uint64) number {
	switch n {
	case noVal, noVal64:
		return number{}
	case infinite, infinite64:
		return number{infinite: true}
	}
	return number{set: true, n: n}
}

// number reads a plain number, a number in a string, or {"set":…,"infinite":…,"number":…}.
func (r *reader) number() number {
	switch r.kind() {
	case '{':
		set, inf := true, false
		var n number
		r.object(func(key string) {
			switch key {
			case "set":
				set = r.boolean()
			case "infinite":
				inf = r.boolean()
			case "number":
				n = r.number()
			default:
				r.skip()
			}
		})
		switch {
		case inf:
			return number{infinite: true}
		case !set:
			return number{}
		}
		return n
	case '0', '"':
		quoted := r.kind() == '"'
		b := r.raw()
		if quoted && len(b) >= 2 {
			b = b[1 : len(b)-1]
		}
		if r.err != nil || len(b) == 0 {
			return number{}
		}
		n, ok := parseNumber(string(b))
		if !ok {
			r.note()
		}
		return n
	case 'n':
		r.skip()
	default:
		r.odd()
	}
	return number{}
}

func parseNumber(s string) (n number, ok bool) {
	if u, err := strconv.ParseUint(s, 10, 64); err == nil {
		return toNumber(u), true
	}
	switch strings.ToUpper(s) {
	case "INFINITE", "UNLIMITED":
		return number{infinite: true}, true
	case "-2": // "no value" and "infinite" read as signed
		return number{}, true
	case "-1":
		return number{infinite: true}, true
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && f >= 0 && f < math.MaxInt64 {
		return toNumber(uint64(f)), true
	}
	return number{}, false
}

func (r *reader) boolean() bool {
	switch r.kind() {
	case 't':
		r.skip()
		return true
	case 'f', 'n':
		r.skip()
	default:
		r.odd()
	}
	return false
}

// u32 reads a number into a pointer: nil when there is none, or it does not fit.
func (r *reader) u32() *uint32 {
	n := r.number()
	if n.n > math.MaxUint32 {
		r.note()
		return nil
	}
	if !n.set {
		return nil
	}
	return new(uint32(n.n))
}

// id reads a job id, where 0 means none.
func (r *reader) id() uint32 {
	if p := r.u32(); p != nil {
		return *p
	}
	return 0
}

// maxTime is the year 9999: seconds beyond it are no time.
const maxTime = 253402300799

// time reads UNIX seconds. 0 means none, as do "no value" and "infinite".
func (r *reader) time() time.Time {
	n := r.number()
	if n.n > maxTime {
		r.note()
		return time.Time{}
	}
	if !n.set || n.n == 0 {
		return time.Time{}
	}
	return time.Unix(int64(n.n), 0).UTC()
}

// limit reads a time limit in the given unit.
func (r *reader) limit(unit time.Duration) Limit {
	n := r.number()
	switch {
	case n.infinite:
		return Limit{Set: true, Infinite: true}
	case !n.set:
		return Limit{}
	case n.n > uint64(math.MaxInt64/unit):
		r.note()
		return Limit{}
	}
	return Limit{Set: true, Duration: time.Duration(n.n) * unit}
}

// end expects the end of the input.
func (r *reader) end() {
	if r.err != nil {
		return
	}
	switch _, err := r.dec.ReadToken(); {
	case errors.Is(err, io.EOF):
	case err == nil:
		r.fail(errors.New("more data follows the document"))
	default:
		r.fail(err)
	}
}

// Package event is the contract between Spillway's stages: the records that cross Kafka, their topics, their
// keys and the rules each must keep. It decides nothing and talks to nobody.
package event

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
)

//go:generate protoc -I . --go_out=../.. --go_opt=module=github.com/spillway-io/spillway spillway.proto

// Topics, one a record. The version is part of the name: a change that an old reader could not skip gets a new topic.
const (
	TopicPlacement  = "spillway.placement.v1"
	TopicMembership = "spillway.membership.v1"
	TopicNode       = "spillway.node.v1"
	TopicCounters   = "spillway.counters.v1"
	TopicDomain     = "spillway.domain.v1"
	TopicWorkload   = "spillway.workload.v1"
	TopicSource     = "spillway.source.v1"
	TopicBenchmark  = "spillway.benchmark.v1"
	TopicSpill      = "spillway.spill.v1"
	TopicDeadLetter = "spillway.deadletter.v1"
)

// ErrInvalid marks a record that breaks a rule of the contract; the message says which and what to do.
var ErrInvalid = errors.New("record breaks the contract")

// Record is one fact. Every message of the contract implements it.
type Record interface {
	proto.Message
	// RecordTopic is where the record goes.
	RecordTopic() string
	// RecordKey keeps all records of one entity in order; it starts with the cluster.
	RecordKey() string
	// Validate returns an error wrapping ErrInvalid, naming the field and the remedy.
	Validate() error
}

// New gives an empty record of a topic, or an error for a topic that is not of the contract.
func New(topic string) (Record, error) {
	switch topic {
	case TopicPlacement:
		return &Placement{}, nil
	case TopicMembership:
		return &Membership{}, nil
	case TopicNode:
		return &Node{}, nil
	case TopicCounters:
		return &Counters{}, nil
	case TopicDomain:
		return &Domain{}, nil
	case TopicWorkload:
		return &Workload{}, nil
	case TopicSource:
		return &Source{}, nil
	case TopicBenchmark:
		return &Benchmark{}, nil
	case TopicSpill:
		return &Spill{}, nil
	case TopicDeadLetter:
		return &DeadLetter{}, nil
	}
	return nil, fmt.Errorf("topic %q is not of the contract: expected one of %s", topic, strings.Join(Topics(), ", "))
}

// Topics lists every topic of the contract in the order of the flow.
func Topics() []string {
	return []string{
		TopicPlacement, TopicMembership, TopicNode, TopicCounters, TopicDomain, TopicWorkload,
		TopicSource, TopicBenchmark, TopicSpill, TopicDeadLetter,
	}
}

// Encode validates a record and gives its Kafka key and value.
func Encode(r Record) (key, value []byte, err error) {
	if err := r.Validate(); err != nil {
		return nil, nil, fmt.Errorf("encode %s: %w", r.RecordTopic(), err)
	}
	value, err = proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return nil, nil, fmt.Errorf("encode %s: %w: %w", r.RecordTopic(), ErrInvalid, err)
	}
	if len(value) > MaxBytes {
		return nil, nil, fmt.Errorf("encode %s: %w: it has %d bytes, at most %d are taken: the source lists more than one entity can have",
			r.RecordTopic(), ErrInvalid, len(value), MaxBytes)
	}
	return []byte(r.RecordKey()), value, nil
}

// Decode reads the value of one Kafka record of a topic and checks its rules. Fields of newer versions are skipped.
func Decode(topic string, value []byte) (Record, error) {
	r, err := New(topic)
	if err != nil {
		return nil, err
	}
	if err := DecodeInto(r, value); err != nil {
		return nil, err
	}
	return r, nil
}

// DecodeInto is Decode into a record the caller reuses.
func DecodeInto(r Record, value []byte) error {
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(value, r); err != nil {
		return fmt.Errorf("decode %s: %w", r.RecordTopic(), err)
	}
	if err := r.Validate(); err != nil {
		return fmt.Errorf("decode %s: %w", r.RecordTopic(), err)
	}
	return nil
}

// Millis is a time in the contract's unit; the zero time gives nil, for unknown.
func Millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}

// Time is the opposite of Millis: nil gives the zero time.
func Time(ms *int64) time.Time {
	if ms == nil {
		return time.Time{}
	}
	return time.UnixMilli(*ms).UTC()
}

// Revision orders the records of one source: the observation in Unix microseconds.
func Revision(observed time.Time) uint64 { return uint64(observed.UnixMicro()) }

// MaxBytes is the longest value of a record. Brokers take a little over a million bytes by default; the rest is for the
// key and the headers. A placement of 10,000 nodes has a fifth of it.
const MaxBytes = 900_000

// The longest name the contract takes; longer is a broken source, not a name.
const maxName = 1024

// Times outside [minMillis, maxMillis] are a unit mistake (seconds, microseconds), not a time of a GPU cluster.
const (
	minMillis = 946684800000  // 2000-01-01
	maxMillis = 4102444800000 // 2100-01-01
)

// checker collects the first broken rule of a record.
type checker struct{ err error }

func (c *checker) failf(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
}

// name checks a name that is part of a key. Control characters would make keys and logs ambiguous.
func (c *checker) name(field, v string) {
	switch {
	case v == "":
		c.failf("%s is empty: the collector must set it", field)
	case len(v) > maxName:
		c.failf("%s has %d bytes, at most %d are taken", field, len(v), maxName)
	case strings.ContainsFunc(v, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		c.failf("%s %q holds a control character", field, v)
	}
}

// part is name for a key part that others follow: a slash in it would let two keys collide.
func (c *checker) part(field, v string) {
	c.name(field, v)
	if strings.Contains(v, "/") {
		c.failf("%s %q holds a slash, which separates the parts of a key", field, v)
	}
}

func (c *checker) observed(ms int64) {
	if ms == 0 {
		c.failf("observed_at_ms is not set: a fact without a time cannot be ordered")
	}
	c.millis("observed_at_ms", &ms)
}

func (c *checker) millis(field string, ms *int64) {
	if ms != nil && (*ms < minMillis || *ms > maxMillis) {
		c.failf("%s %d is not between the years 2000 and 2100: the unit is milliseconds since 1970 UTC", field, *ms)
	}
}

func (c *checker) ordered(a string, from *int64, b string, to *int64) {
	if from != nil && to != nil && *to < *from {
		c.failf("%s %d is before %s %d", b, *to, a, *from)
	}
}

// Raw encodes a record without checking its rules, to keep one that breaks them.
func Raw(r Record) []byte {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return nil // not even UTF-8: the reason in the dead letter has to do
	}
	return value
}

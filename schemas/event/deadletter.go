package event

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a dead letter, so that it can always be written: a reason is for people, and the value of a record that is
// longer than the contract allows is cut.
const (
	maxReason      = 1000
	maxLetterValue = MaxBytes - 10_000
)

// NewDeadLetter keeps a record that could not be used, with the reason. partition and offset are -1 where the record
// never reached Kafka.
func NewDeadLetter(topic string, partition int32, offset int64, stage string, why error, key, value []byte, at time.Time) *DeadLetter {
	reason := why.Error()
	if len(value) > maxLetterValue {
		reason = "value cut to its first " + strconv.Itoa(maxLetterValue) + " of " + strconv.Itoa(len(value)) + " bytes: " + reason
		value = value[:maxLetterValue]
	}
	return &DeadLetter{
		Topic: topic, Partition: partition, Offset: offset, Stage: stage, Reason: oneLine(reason),
		Key: key[:min(len(key), 2*maxName+1)], Value: value, ObservedAtMs: at.UnixMilli(),
	}
}

// oneLine makes any text a valid reason.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
	for len(s) > maxReason {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	if s == "" {
		return "no reason was given"
	}
	return s
}

// RecordTopic implements Record.
func (*DeadLetter) RecordTopic() string { return TopicDeadLetter }

// RecordKey implements Record: the stream the record came from, topic/partition. It is the one record whose key has
// no cluster: nothing in a record that cannot be read can be trusted to name one.
func (d *DeadLetter) RecordKey() string {
	return d.GetTopic() + "/" + strconv.Itoa(int(d.GetPartition()))
}

// Validate implements Record.
func (d *DeadLetter) Validate() error {
	var c checker
	c.part("topic", d.GetTopic())
	c.name("stage", d.GetStage())
	c.name("reason", d.GetReason())
	c.observed(d.GetObservedAtMs())
	return c.err
}

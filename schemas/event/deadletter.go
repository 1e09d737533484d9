package event

import "strconv"

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

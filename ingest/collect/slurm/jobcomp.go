package slurm

import (
	"context"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
	"github.com/spillway-io/spillway/schemas/event"
)

// Message is one message of a topic of the jobcomp/kafka plugin.
type Message struct {
	Topic     string
	Partition int
	Offset    int64
	// Time is when the broker got it.
	Time  time.Time
	Value []byte
}

// MessageSource hands over the messages of the topics in Config.JobComp. The collector knows no Kafka client: whoever builds
// it brings one.
type MessageSource interface {
	// Next blocks for the next message. After an error it is called again, a little later, until ctx ends.
	Next(ctx context.Context) (Message, error)
	// Done says that all messages of the partition up to this one need not come again.
	Done(ctx context.Context, m Message) error
}

// jobcomp emits a record for each message. A message is done once its record is stored; one that cannot be read is counted
// and done, too.
func (c *Collector) jobcomp(ctx context.Context, out collect.Emitter) {
	wait := backoff{first: time.Second}
	for ctx.Err() == nil {
		m, err := c.deps.Messages.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.metrics.Failed("jobcomp")
				c.log.Error("read the topics of jobcomp", "error", err)
				sleep(ctx, wait.next())
			}
			continue
		}
		wait.reset()
		records := c.message(m)
		if !c.emitted(ctx, out, "jobcomp", records) {
			return
		}
		if err := c.deps.Messages.Done(ctx, m); err != nil && ctx.Err() == nil {
			c.log.Warn("a message of jobcomp may come again", "error", err)
		}
	}
}

// message turns one message into at most one record.
func (c *Collector) message(m Message) []event.Record {
	done, err := slurmjson.DecodeCompletion(m.Value, m.Topic == c.cfg.JobComp.StartTopic)
	if err == nil {
		observed := m.Time
		if observed.IsZero() {
			observed = c.deps.Now()
		}
		var rec event.Record
		if rec, err = c.poller.completion(done, observed); err == nil {
			return []event.Record{rec}
		}
	}
	c.poller.dropped(drop("jobcomp", "topic %s, partition %d, offset %d: %w", m.Topic, m.Partition, m.Offset, err))
	return nil
}

// completion turns one message of the jobcomp plugin into a record.
func (p *Poller) completion(c *slurmjson.Completion, observed time.Time) (event.Record, error) {
	r, err := p.fold.completion(c)
	if err != nil {
		return nil, err
	}
	return r.rec, stamp(r.rec, p.Cluster(), observed)
}

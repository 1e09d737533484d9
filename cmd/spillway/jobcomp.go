package main

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/spillway-io/spillway/ingest/collect/slurm"
	"github.com/spillway-io/spillway/internal/engine"
)

// jobcompMessages hands Slurm's jobcomp/kafka topics to the collector. kafka-go's group reader may hand a message over
// twice after a rebalance; that is harmless here, since each becomes the same record again.
type jobcompMessages struct {
	open   func() *kafka.Reader
	reader *kafka.Reader
}

// newJobcompMessages joins the group at the first Next: building a collector reaches for nothing.
func newJobcompMessages(k engine.Kafka, group string, topics ...string) *jobcompMessages {
	return &jobcompMessages{open: func() *kafka.Reader {
		return kafka.NewReader(kafka.ReaderConfig{
			Brokers: k.Brokers, Dialer: k.Dialer(), GroupID: group, GroupTopics: topics, StartOffset: kafka.FirstOffset,
			MinBytes: 1, MaxBytes: 4 << 20, MaxWait: time.Second,
		})
	}}
}

// Next implements slurm.MessageSource.
func (j *jobcompMessages) Next(ctx context.Context) (slurm.Message, error) {
	if j.reader == nil {
		j.reader = j.open()
	}
	m, err := j.reader.FetchMessage(ctx)
	if err != nil {
		return slurm.Message{}, fmt.Errorf("read the jobcomp topics: %w", err)
	}
	return slurm.Message{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Value: m.Value, Time: m.Time}, nil
}

// Done implements slurm.MessageSource.
func (j *jobcompMessages) Done(ctx context.Context, m slurm.Message) error {
	err := j.reader.CommitMessages(ctx, kafka.Message{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset})
	if err != nil {
		return fmt.Errorf("commit the jobcomp topics: %w", err)
	}
	return nil
}

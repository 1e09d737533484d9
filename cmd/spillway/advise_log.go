package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/ingest/kafka"
	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/query/live"
)

// topicLog reads the contract's topics for the advisor: all partitions, without a group.
type topicLog struct{ kafka engine.Kafka }

// How long the broker waits for a record before it says that there is none: soon at first, when somebody waits for the
// picture, and then so seldom that a fleet at rest costs little.
const (
	firstWait = 250 * time.Millisecond
	idleWait  = time.Second
)

// Partitions implements live.Log.
func (l topicLog) Partitions(ctx context.Context, topic string) ([]int, error) {
	partitions, err := kafka.Partitions(ctx, l.kafka, topic)
	ids := make([]int, len(partitions))
	for i, p := range partitions {
		ids[i] = p.ID
	}
	return ids, err
}

// Follow implements live.Log.
func (l topicLog) Follow(ctx context.Context, topic string, id int, from int64, record func(int64, []byte), ended func()) (int64, error) {
	partitions, err := kafka.Partitions(ctx, l.kafka, topic)
	if err != nil {
		return 0, err
	}
	if id >= len(partitions) {
		return 0, fmt.Errorf("partition %d of %s: the topic has only %d", id, topic, len(partitions))
	}
	s, err := partitions[id].Open(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	switch {
	case from < s.First && from > 0:
		return s.First, fmt.Errorf("%s/%d from offset %d: %w: it begins at %d", topic, id, from, live.ErrGap, s.First)
	case from > s.End: // the topic was made anew
		return s.First, fmt.Errorf("%s/%d from offset %d: %w: it ends at %d", topic, id, from, live.ErrGap, s.End)
	}
	s.StartAt(max(from, s.First))
	for wait := firstWait; ctx.Err() == nil; {
		m, ok, err := s.Next(wait)
		switch {
		case err != nil:
			return 0, err
		case ok:
			record(m.Offset, m.Value)
			if !s.Behind() { // a busy partition is never silent for idleWait, but it is read to its end again and again
				ended()
			}
		default:
			ended()
			wait = idleWait
		}
	}
	return 0, nil
}

package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/spillway-io/spillway/internal/engine"
)

// ConsumerConfig says as which group to read.
type ConsumerConfig struct {
	Group          string
	SessionTimeout time.Duration // a member silent for so long loses its partitions
	Backoff        time.Duration // between tries to join
}

// heartbeat is how often a member says that it lives, and so how soon it learns of a rebalance.
const heartbeat = time.Second

// Consume shares the partitions of topics with the other members of the group and runs own for each partition that
// falls to this one, in a goroutine of its own. own must return soon after its ctx ends, which happens when the
// partitions are shared anew; it must not return earlier, since that gives all partitions back. others is how many
// partitions this member owns in all, at least 1. Consume returns nil when ctx has ended and every own has returned.
//
// It is built on the group's generations and not on kafka-go's group Reader, which hands out records of partitions it
// no longer owns and commits offsets for them.
func Consume(ctx context.Context, k engine.Kafka, c ConsumerConfig, topics []string, log *slog.Logger,
	own func(ctx context.Context, p *Partition, others int)) error {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: c.Group, Brokers: k.Brokers, Dialer: k.Dialer(), Topics: topics, StartOffset: kafka.FirstOffset,
		SessionTimeout: c.SessionTimeout, RebalanceTimeout: c.SessionTimeout,
		HeartbeatInterval: min(heartbeat, c.SessionTimeout/3), JoinGroupBackoff: c.Backoff,
		WatchPartitionChanges: true, PartitionWatchInterval: 30 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("join consumer group %s: %w", c.Group, err)
	}
	defer group.Close()
	for {
		generation, err := group.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil: // the group backs off by itself and tries again
			if !errors.Is(err, kafka.RebalanceInProgress) {
				log.Warn("joining the consumer group failed, trying again", "group", c.Group, "error", err)
			}
			continue
		}
		owned := 0
		for _, assigned := range generation.Assignments {
			owned += len(assigned)
		}
		log.Debug("partitions shared anew", "group", c.Group, "generation", generation.ID, "owned", owned)
		for topic, assigned := range generation.Assignments {
			for _, a := range assigned {
				p := &Partition{Topic: topic, ID: a.ID, kafka: k, generation: generation}
				generation.Start(func(ctx context.Context) { own(ctx, p, owned) })
			}
		}
	}
}

// Partition is one partition of a topic, owned by this process for one generation of the group.
type Partition struct {
	Topic string
	ID    int

	kafka      engine.Kafka
	generation *kafka.Generation
}

// Commit notes the next offset to read in Kafka. It is refused when the partition has a new owner.
func (p *Partition) Commit(next int64) error {
	if err := p.generation.CommitOffsets(map[string]map[int]int64{p.Topic: {p.ID: next}}); err != nil {
		return fmt.Errorf("commit offset %d of %s/%d: %w", next, p.Topic, p.ID, err)
	}
	return nil
}

// Stream reads one partition in order. It holds at most one record batch of Kafka in memory, whatever the backlog.
type Stream struct {
	First int64 // lowest offset the broker still has, as of Open
	End   int64 // one above the highest offset, as of the last answer of the broker

	conn  *kafka.Conn
	fetch *kafka.Batch // what is left of the last answer
	next  int64
	stop  func() bool // disarms the closing of conn by ctx
}

const (
	fetchBytes   = 4 << 20          // of one answer, compressed
	networkLimit = 10 * time.Second // for the broker to answer, beyond what it was asked to wait
)

// Open dials the leader of the partition and asks where its records begin and end. Records are read from First, or StartAt, on. The
// stream ends with ctx; close it in any case.
func (p *Partition) Open(ctx context.Context) (*Stream, error) {
	dialing, cancel := context.WithTimeout(ctx, networkLimit) // a topic that is not there is looked for without end
	defer cancel()
	var last error
	for _, broker := range p.kafka.Brokers {
		conn, err := p.kafka.Dialer().DialLeader(dialing, "tcp", broker, p.Topic, p.ID)
		if err != nil {
			last = err
			continue
		}
		s := &Stream{conn: conn, stop: context.AfterFunc(ctx, func() { conn.Close() })}
		conn.SetDeadline(time.Now().Add(networkLimit))
		if s.First, s.End, err = conn.ReadOffsets(); err != nil {
			s.Close()
			return nil, fmt.Errorf("read the offsets of %s/%d: %w", p.Topic, p.ID, err)
		}
		s.next = s.First
		return s, nil
	}
	return nil, fmt.Errorf("reach the leader of %s/%d through %v: %w", p.Topic, p.ID, p.kafka.Brokers, last)
}

// StartAt makes an offset the next one to read.
func (s *Stream) StartAt(offset int64) { s.next = offset }

// Next gives the next record, or false when there is none within wait; a wait of 0 asks only for what the last answer
// of the broker has left. After an error the stream is of no more use.
func (s *Stream) Next(wait time.Duration) (kafka.Message, bool, error) {
	if s.fetch != nil {
		s.conn.SetReadDeadline(time.Now().Add(networkLimit)) // the caller may have been away for long
	} else {
		if wait <= 0 {
			return kafka.Message{}, false, nil
		}
		s.conn.SetDeadline(time.Now().Add(wait + networkLimit))
		if _, err := s.conn.Seek(s.next, kafka.SeekAbsolute|kafka.SeekDontCheck); err != nil {
			return kafka.Message{}, false, fmt.Errorf("go to offset %d: %w", s.next, err)
		}
		s.fetch = s.conn.ReadBatchWith(kafka.ReadBatchConfig{
			MinBytes: 1, MaxBytes: fetchBytes, MaxWait: max(wait, time.Millisecond), IsolationLevel: kafka.ReadCommitted,
		})
		s.End = max(s.End, s.fetch.HighWaterMark())
	}
	m, err := s.fetch.ReadMessage()
	switch {
	case err == nil:
		s.next = m.Offset + 1
		return m, true, nil
	case errors.Is(err, io.EOF), errors.Is(err, kafka.RequestTimedOut):
		// The answer is used up. Where it ended in offsets that hold no record, reading goes on after them.
		s.next = max(s.next, s.fetch.Offset())
		err = s.fetch.Close()
		s.fetch = nil
		if err == nil || errors.Is(err, kafka.RequestTimedOut) {
			return kafka.Message{}, false, nil
		}
	}
	return kafka.Message{}, false, fmt.Errorf("read from offset %d: %w", s.next, err)
}

// Buffered tells whether the last answer of the broker may have records left.
func (s *Stream) Buffered() bool { return s.fetch != nil }

// Close ends the stream.
func (s *Stream) Close() {
	s.stop()
	s.conn.Close() // first, so that closing the answer does not read the rest of it
	if s.fetch != nil {
		s.fetch.Close()
	}
}

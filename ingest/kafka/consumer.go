package kafka

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

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
		ID: c.Group, Brokers: k.Brokers, Dialer: boundedDialer(k, min(networkLimit, c.SessionTimeout), nil), Topics: topics, StartOffset: kafka.FirstOffset,
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
				log.Warn("joining the consumer group failed, trying again", "group", c.Group, "error", explained(k, err))
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

// Stream reads one partition in order. It holds one answer of the broker and one record batch in memory, whatever the
// backlog.
type Stream struct {
	First int64 // lowest offset the broker still has, as of Open
	End   int64 // one above the highest offset, as of the last answer of the broker

	topic     string
	partition int32
	conn      net.Conn
	stop      func() bool // disarms the closing of conn by ctx
	next      int64
	requests  int32
	memory    []byte // of answers
	answer    []byte // batches that were not opened yet
	batch     batch
	unpacked  []byte                                               // memory of batches
	stable    int64                                                // one above the last offset that may be read, at the last answer
	aborts    []kmsg.FetchResponseTopicPartitionAbortedTransaction // of the answer, not come to yet
	aborted   map[int64]bool                                       // producers within a transaction that was given up
}

const fetchBytes = 1 << 20 // of one answer, compressed; a single batch may be larger

// Open dials the leader of the partition and asks where its records begin and end. Records are read from First, or StartAt, on. The
// stream ends with ctx; close it in any case.
//
// kafka-go finds the leader, logs in and asks for the offsets. What is fetched then over the same connection is read here:
// kafka-go copies each record several times, which took as long as all that is done with it.
func (p *Partition) Open(ctx context.Context) (*Stream, error) {
	dialing, cancel := context.WithTimeout(ctx, networkLimit) // a topic that is not there is looked for without end
	defer cancel()
	d := newDialer(dialing, p.kafka)
	var last error
	for _, broker := range p.kafka.Brokers {
		leader, err := d.DialLeader(dialing, "tcp", broker, p.Topic, p.ID)
		if err != nil {
			last = err
			continue
		}
		d.release()
		s := &Stream{topic: p.Topic, partition: int32(p.ID), conn: d.last} // the last one is to the leader
		s.stop = context.AfterFunc(ctx, func() { s.conn.Close() })
		leader.SetDeadline(time.Now().Add(networkLimit))
		if s.First, s.End, err = leader.ReadOffsets(); err != nil {
			s.Close()
			return nil, fmt.Errorf("read the offsets of %s/%d: %w", p.Topic, p.ID, explained(p.kafka, err))
		}
		s.next = s.First
		return s, nil
	}
	if dialing.Err() != nil && ctx.Err() == nil {
		last = fmt.Errorf("no answer within %s: %w", networkLimit, last)
	}
	return nil, fmt.Errorf("reach the leader of %s/%d through %v: %w", p.Topic, p.ID, p.kafka.Brokers, explained(p.kafka, last))
}

// StartAt makes an offset the next one to read.
func (s *Stream) StartAt(offset int64) { s.next, s.answer, s.batch = offset, nil, batch{} }

// keptBytes is how much memory of an answer, or of a batch, is kept for the next one.
const keptBytes = 4 << 20

// Next gives the next record, or false when there is none within wait; a wait of 0 asks only for what the last answer
// of the broker has left. After an error the stream is of no more use. An error that wraps ErrBroken comes after all
// records before the broken batch, and tells how to give that up.
func (s *Stream) Next(wait time.Duration) (Record, bool, error) {
	r, ok, err := s.buffered()
	if !ok && err == nil && wait > 0 {
		if err = s.fetch(wait); err == nil {
			r, ok, err = s.buffered()
		}
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("read %s/%d from offset %d: %w", s.topic, s.partition, s.next, err)
	}
	return r, ok, nil
}

// buffered gives the next record of the last answer.
func (s *Stream) buffered() (r Record, ok bool, err error) {
	for {
		for s.batch.left > 0 {
			if r, err = s.batch.next(); err != nil {
				return r, false, s.wayOut(err, s.batch.end)
			}
			if r.Offset >= s.next { // an answer may begin before the offset that was asked for
				s.next = r.Offset + 1
				return r, true, nil
			}
		}
		// Where a batch ends in offsets that hold no record, reading goes on after them.
		s.next = max(s.next, s.batch.end)
		if cap(s.unpacked) > keptBytes {
			s.unpacked = nil
		}
		answer := s.answer
		if s.batch, s.answer, s.unpacked, ok, err = openBatch(answer, s.unpacked); !ok || err != nil {
			s.batch = batch{}
			if err != nil {
				err = s.wayOut(err, behindBroken(answer))
			}
			return r, false, err
		}
		if s.givenUp(&s.batch) {
			s.batch.left = 0
		}
	}
}

// wayOut adds to the error of a broken batch what to do about it. Next is the first offset after it, if that is known.
func (s *Stream) wayOut(err error, next int64) error {
	if next <= s.next || next > s.End {
		next = s.End
	}
	return fmt.Errorf("%w; its offsets end before %d; if that stays so and no replica has it whole, give it up with kafka-delete-records.sh: "+
		"topic %s, partition %d, offset %d; reading goes on from there", err, next, s.topic, s.partition, next)
}

// givenUp says that a batch belongs to a transaction that was aborted: the broker sends those too, and says whose they are.
func (s *Stream) givenUp(b *batch) bool {
	for len(s.aborts) > 0 && s.aborts[0].FirstOffset < b.end {
		s.aborted[s.aborts[0].ProducerID] = true
		s.aborts = s.aborts[1:]
	}
	if b.control { // the transaction ends here
		delete(s.aborted, b.producer)
		return true
	}
	return b.transactional && s.aborted[b.producer]
}

// fetchVersion of the protocol is spoken by every broker since Kafka 2.1; before it, a broker does not give out zstd.
const fetchVersion = 10

// fetch asks the broker for more and waits for the answer.
func (s *Stream) fetch(wait time.Duration) error {
	const readCommitted = 1
	q := kmsg.NewFetchRequest()
	q.Version, q.ReplicaID, q.MinBytes, q.MaxBytes, q.IsolationLevel = fetchVersion, -1, 1, fetchBytes, readCommitted
	q.MaxWaitMillis = int32(max(1, wait.Milliseconds()))
	partition := kmsg.NewFetchRequestTopicPartition()
	partition.Partition, partition.FetchOffset, partition.PartitionMaxBytes = s.partition, s.next, fetchBytes
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.Partitions = s.topic, []kmsg.FetchRequestTopicPartition{partition}
	q.Topics = []kmsg.FetchRequestTopic{topic}
	s.requests++
	s.conn.SetDeadline(time.Now().Add(wait + networkLimit))
	if _, err := s.conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("spillway")).AppendRequest(nil, &q, s.requests)); err != nil {
		return err
	}
	body, err := s.receive()
	if err != nil {
		return err
	}
	answer := kmsg.FetchResponse{Version: fetchVersion}
	if err := answer.ReadFrom(body); err != nil {
		return fmt.Errorf("understand the broker: %w", err)
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return fmt.Errorf("the broker did not answer for the partition")
	}
	got := answer.Topics[0].Partitions[0]
	if code := cmp.Or(answer.ErrorCode, got.ErrorCode); code != 0 {
		return kafka.Error(code)
	}
	s.End, s.answer = max(s.End, got.HighWatermark), got.RecordBatches
	if s.stable = got.LastStableOffset; s.stable < 0 {
		s.stable = got.HighWatermark
	}
	s.aborts, s.aborted = got.AbortedTransactions, map[int64]bool{}
	slices.SortFunc(s.aborts, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	return nil
}

// maxAnswer bounds the memory of an answer whatever the broker says.
const maxAnswer = 256 << 20

// receive reads the answer to the last request.
func (s *Stream) receive() ([]byte, error) {
	var head [8]byte // length and number of the request
	if _, err := io.ReadFull(s.conn, head[:]); err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(head[:]))) - 4
	if number := int32(binary.BigEndian.Uint32(head[4:])); size < 0 || size > maxAnswer || number != s.requests {
		return nil, fmt.Errorf("the broker answers request %d with %d bytes, want the answer to request %d", number, size, s.requests)
	}
	if cap(s.memory) > keptBytes && size <= keptBytes {
		s.memory = nil
	}
	s.memory = slices.Grow(s.memory[:0], size)[:size]
	_, err := io.ReadFull(s.conn, s.memory)
	return s.memory, err
}

// Buffered tells whether the last answer of the broker may have records left.
func (s *Stream) Buffered() bool { return s.batch.left > 0 || len(s.answer) > 0 }

// Behind tells whether the broker had more to read at its last answer than was read.
func (s *Stream) Behind() bool { return s.next < s.stable }

// Close ends the stream.
func (s *Stream) Close() {
	s.stop()
	s.conn.Close()
}

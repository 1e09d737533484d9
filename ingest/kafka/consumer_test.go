package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

// fill writes records with the values 0, 1, 2... to one partition, in batches of a size, and gives the partition.
func fill(t testing.TB, k engine.Kafka, total, batch int, c kafka.Compression) *Partition {
	t.Helper()
	transport := k.Transport()
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{
		Addr: kafka.TCP(k.Brokers...), Topic: event.TopicSource, Transport: transport, RequiredAcks: kafka.RequireAll, BatchSize: batch,
		BatchTimeout: time.Millisecond, Compression: c,
		Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int { return 2 }),
	}
	defer w.Close()
	var messages []kafka.Message
	for i := range total {
		messages = append(messages, kafka.Message{Key: []byte("k"), Value: fmt.Append(nil, i), Headers: []kafka.Header{{Key: "h", Value: []byte("v")}}})
	}
	if err := w.WriteMessages(t.Context(), messages...); err != nil {
		t.Fatal(err)
	}
	return &Partition{Topic: event.TopicSource, ID: 2, kafka: k}
}

// TestAStreamReadsEveryRecordFromAnyOffset: answers of the broker are whole batches, and may begin before the offset
// that was asked for and end within one.
func TestAStreamReadsEveryRecordFromAnyOffset(t *testing.T) {
	for name, c := range map[string]struct {
		batch       int
		compression kafka.Compression
	}{
		"plain":                 {7, 0},
		"lz4":                   {50, kafka.Lz4},
		"zstd, one large batch": {1000, kafka.Zstd},
		"snappy, single":        {1, kafka.Snappy},
		"gzip":                  {50, kafka.Gzip},
	} {
		t.Run(name, func(t *testing.T) {
			_, k := brokers(t)
			const total = 300
			p := fill(t, k, total, c.batch, c.compression)
			for _, from := range []int64{0, 1, 149, total - 1, total} {
				s, err := p.Open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if s.First != 0 || s.End != total {
					t.Fatalf("the partition reaches from %d to %d", s.First, s.End)
				}
				s.StartAt(from)
				for want := from; want < total; {
					m, ok, err := s.Next(time.Second)
					if err != nil {
						t.Fatal(err)
					}
					if !ok {
						continue
					}
					if m.Offset != want || string(m.Value) != fmt.Sprint(want) || string(m.Key) != "k" || string(m.Header("h")) != "v" || m.Time.IsZero() {
						t.Fatalf("offset %d holds %q, want offset %d", m.Offset, m.Value, want)
					}
					want++
				}
				for s.Buffered() {
					if m, ok, err := s.Next(0); ok || err != nil {
						t.Fatalf("after the end came %v, %v", m, err)
					}
				}
				if m, ok, err := s.Next(time.Millisecond); ok || err != nil {
					t.Fatalf("after the end came %v, %v", m, err)
				}
				s.Close()
			}
		})
	}
}

func TestAStreamWaitsForWhatComes(t *testing.T) {
	_, k := brokers(t)
	p := fill(t, k, 1, 1, 0)
	s, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.StartAt(1)
	got := make(chan error, 1)
	go func() {
		for {
			m, ok, err := s.Next(10 * time.Second)
			if ok && m.Offset != 1 {
				err = fmt.Errorf("offset %d came, want 1", m.Offset)
			}
			if ok || err != nil {
				got <- err
				return
			}
		}
	}()
	begun := time.Now()
	fill(t, k, 1, 1, 0)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it came after %s: the wait was sat out", took)
	}
	if s.End != 2 {
		t.Errorf("the stream believes that the partition ends at %d", s.End)
	}
}

func TestAStreamEndsWithItsContext(t *testing.T) {
	_, k := brokers(t)
	p := fill(t, k, 10, 10, kafka.Lz4)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := p.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Next(time.Second); !ok || err != nil { // an answer is left open
		t.Fatal(ok, err)
	}
	s.StartAt(10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, _, err := s.Next(time.Minute); err != nil {
				return
			}
		}
	}()
	cancel()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("reading goes on although the context has ended")
	}
	s.Close()
}

func TestAnOffsetThatIsNotThereIsAnError(t *testing.T) {
	_, k := brokers(t)
	p := fill(t, k, 3, 3, 0)
	s, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.StartAt(99)
	if _, _, err := s.Next(time.Second); !errors.Is(err, kafka.OffsetOutOfRange) {
		t.Errorf("got %v; want that the offset is out of range, and never a jump", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := (&Partition{Topic: "not there", ID: 0, kafka: k}).Open(ctx); err == nil {
		t.Error("a topic that is not there was opened")
	}
}

// TestPartitionsAreSharedAndNeverOwnedTwice follows a group from one member to two and back.
func TestPartitionsAreSharedAndNeverOwnedTwice(t *testing.T) {
	_, k := brokers(t)
	var mu sync.Mutex
	owned := map[string]map[int]int{} // partitions by member
	owners := map[int]int{}
	member := func(name string) (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			cfg := ConsumerConfig{Group: "g", SessionTimeout: 6 * time.Second, Backoff: 50 * time.Millisecond}
			done <- Consume(ctx, k, cfg, []string{event.TopicNode, event.TopicPlacement}, quiet, func(ctx context.Context, p *Partition, all int) {
				id := p.ID
				if p.Topic == event.TopicPlacement {
					id += 100
				}
				mu.Lock()
				if owned[name] == nil {
					owned[name] = map[int]int{}
				}
				owned[name][id] = all
				if owners[id]++; owners[id] > 1 {
					t.Errorf("partition %d has %d owners", id, owners[id])
				}
				mu.Unlock()
				<-ctx.Done()
				mu.Lock()
				owners[id]--
				delete(owned[name], id)
				mu.Unlock()
			})
		}()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	shares := func(want map[string]int) {
		t.Helper()
		testenv.Eventually(t, 40*time.Second, func() error {
			mu.Lock()
			defer mu.Unlock()
			for name, n := range want {
				if len(owned[name]) != n {
					return fmt.Errorf("%s owns %d partitions, want %d", name, len(owned[name]), n)
				}
				for id, all := range owned[name] {
					if all != n {
						return fmt.Errorf("%s was told of %d partitions with %d, owns %d", name, all, id, n)
					}
				}
			}
			return nil
		})
	}
	stopA := member("a")
	shares(map[string]int{"a": 8})
	stopB := member("b")
	shares(map[string]int{"a": 4, "b": 4})
	stopA()
	shares(map[string]int{"a": 0, "b": 8})
	stopB()
}

func TestACommitIsWhatTheGroupGoesOnWith(t *testing.T) {
	_, k := brokers(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := Consume(ctx, k, ConsumerConfig{Group: "g", SessionTimeout: 6 * time.Second, Backoff: time.Second}, []string{event.TopicNode}, quiet,
		func(ctx context.Context, p *Partition, _ int) {
			if p.ID == 1 {
				if err := p.Commit(42); err != nil {
					t.Error(err)
				}
				cancel()
			}
			<-ctx.Done()
		})
	if err != nil {
		t.Fatal(err)
	}
	transport := k.Transport()
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(k.Brokers...), Transport: transport, Timeout: 10 * time.Second}
	got, err := client.OffsetFetch(t.Context(), &kafka.OffsetFetchRequest{GroupID: "g", Topics: map[string][]int{event.TopicNode: {1}}})
	if err != nil || got.Topics[event.TopicNode][0].CommittedOffset != 42 {
		t.Errorf("the group's offset is %v, %v; want 42", got, err)
	}
}

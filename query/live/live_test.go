package live

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

// empty is a log without records, which may be out of reach.
type empty struct{ away bool }

func (e *empty) Partitions(context.Context, string) ([]int, error) {
	if e.away {
		return nil, errors.New("no broker answers")
	}
	return []int{0}, nil
}

func (e *empty) Follow(ctx context.Context, _ string, _ int, _ int64, _ func(int64, []byte), ended func()) (int64, error) {
	for ctx.Err() == nil {
		ended()
		pause(ctx, 10*time.Millisecond)
	}
	return 0, nil
}

func TestAReadingThatFailsLeavesWhatTheOldPictureWasTold(t *testing.T) {
	db := testenv.ClickHouse(t)
	if err := clickhouse.Migrate(t.Context(), db.Conn, clickhouse.Options{Database: db.Database}); err != nil {
		t.Fatal(err)
	}
	log := &empty{}
	f, err := New(DefaultConfig(), Deps{Conn: db.Conn, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	old, err := f.open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer old.stop()
	offset := int64(0)
	tell := func(s *session, domain string) bool {
		t.Helper()
		_, value, err := event.Encode(&event.Membership{Cluster: "c1", Node: "n", Source: "s", ObservedAtMs: 1_700_000_000_000,
			Levels: []*event.Level{{Level: event.LevelDomain, Value: domain}}})
		if err != nil {
			t.Fatal(err)
		}
		offset++
		s.record(partition{event.TopicMembership, 0}, offset, value)
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.moved[0] == offset
	}
	if !tell(old, "a") {
		t.Fatal("the first word of a node that no topology has is news")
	}
	log.away = true
	if _, err := f.open(t.Context(), old); err == nil {
		t.Fatal("a picture was read without its topics")
	}
	if !tell(old, "b") {
		t.Error("after a reading that failed, a move went unseen")
	}
	log.away = false
	next, err := f.open(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	defer next.stop()
	if tell(next, "b") || !tell(next, "c") {
		t.Error("the picture that took over must know the old word from a new one")
	}
}

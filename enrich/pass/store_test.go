package pass

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

// store is a database with all tables and passes that work on it.
type store struct {
	*testenv.Server
	*Passes
	t       testing.TB
	offsets map[string]int64
}

func newStore(t testing.TB) *store {
	t.Helper()
	srv := testenv.ClickHouse(t)
	if err := clickhouse.Migrate(context.Background(), srv.Conn, clickhouse.Options{}); err != nil {
		t.Fatal(err)
	}
	p, err := New(DefaultConfig(), Deps{Conn: srv.Conn})
	if err != nil {
		t.Fatal(err)
	}
	return &store{Server: srv, Passes: p, t: t, offsets: map[string]int64{}}
}

// insert adds rows to a raw table as one Kafka partition and gives the batch they make. Each row lacks its first three
// columns.
func (s *store) insert(table string, rows [][]any) batch {
	s.t.Helper()
	b, err := s.Conn.PrepareBatch(context.Background(), "INSERT INTO "+table)
	if err != nil {
		s.t.Fatal(err)
	}
	defer b.Close()
	from := s.offsets[table]
	loaded := time.Now()
	for _, row := range rows {
		if err := b.Append(append([]any{int32(0), s.offsets[table], loaded}, row...)...); err != nil {
			s.t.Fatal(err)
		}
		s.offsets[table]++
	}
	if err := b.Send(); err != nil {
		s.t.Fatal(err)
	}
	s.version++
	return batch{{Table: table, Partition: 0, From: from, To: s.offsets[table]}}
}

// count is the one number a statement gives.
func (s *store) count(query string, args ...any) uint64 {
	s.t.Helper()
	var n uint64
	if err := s.Conn.QueryRow(context.Background(), query, args...).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

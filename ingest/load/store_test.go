package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

func tableOf(topic string) table {
	for _, t := range tables() {
		if t.topic == topic {
			return t
		}
	}
	panic(topic)
}

// nodes is a block of node records with the offsets [from, to).
func nodes(t testing.TB, from, to int64) block {
	t.Helper()
	b := newNodeBlock()
	value := encode(t, &event.Node{Cluster: "alpha", Node: "n", Source: "s", ObservedAtMs: noon})
	for o := from; o < to; o++ {
		if err := b.append(o, value); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func newStoreBench(t testing.TB) (*testenv.Server, *store) {
	t.Helper()
	db := testenv.ClickHouse(t)
	if err := clickhouse.Migrate(t.Context(), db, clickhouse.Options{}); err != nil {
		t.Fatal(err)
	}
	s := newStore(db.Owner, 10*time.Second)
	t.Cleanup(s.close)
	return db, s
}

func TestAnInsertStoresWhatIsNotStored(t *testing.T) {
	db, s := newStoreBench(t)
	to := stream{table: tableOf(event.TopicNode), partition: 3}
	other := stream{table: to.table, partition: 4}
	for _, c := range []struct {
		what           string
		stream         stream
		from, to, want int64
	}{
		{"the first block whole", to, 0, 10, 10},
		{"the same block not again", to, 0, 10, 0},
		{"the rest of a block that overlaps", to, 5, 25, 15},
		{"nothing of a block within", to, 7, 9, 0},
		{"a block that begins where the last one ended", to, 25, 30, 5},
		{"a block after a gap", to, 100, 110, 10},
		{"another partition, whatever the first one has", other, 5, 15, 10},
	} {
		got, err := s.insert(t.Context(), c.stream, nodes(t, c.from, c.to), time.Now())
		if err != nil || int64(got) != c.want {
			t.Errorf("%s: stored %d rows, %v; want %d", c.what, got, err, c.want)
		}
	}
	for partition, want := range map[int32]int64{3: 110, 4: 15, 5: -1} {
		if got, err := s.next(t.Context(), stream{table: to.table, partition: partition}); err != nil || got != want {
			t.Errorf("partition %d goes on at %d, %v; want %d", partition, got, err, want)
		}
	}
	var rows, distinct uint64
	if err := db.QueryRow(t.Context(), "SELECT count(), uniqExact(kafka_partition, kafka_offset) FROM node_events").Scan(&rows, &distinct); err != nil || rows != 50 || distinct != 50 {
		t.Errorf("%d rows of %d offsets, %v; want 50", rows, distinct, err)
	}
}

func TestAnInsertIsOnePart(t *testing.T) {
	db, s := newStoreBench(t)
	if err := db.Exec(t.Context(), "SYSTEM STOP MERGES node_events"); err != nil {
		t.Fatal(err)
	}
	to := stream{table: tableOf(event.TopicNode)}
	const rows = 200_000
	for i := range int64(3) {
		if stored, err := s.insert(t.Context(), to, nodes(t, i*rows, (i+1)*rows), time.Now()); err != nil || stored != rows {
			t.Fatalf("stored %d rows, %v", stored, err)
		}
	}
	var parts uint64
	if err := db.QueryRow(t.Context(), "SELECT count() FROM system.parts WHERE database = currentDatabase() AND table = 'node_events' AND active").Scan(&parts); err != nil || parts != 3 {
		t.Errorf("3 inserts made %d parts, %v", parts, err)
	}
}

// TestManySendersOfOnePartition lets senders that know nothing of each other, each on a connection of its own, send the
// same offsets cut in different ways, all at once.
func TestManySendersOfOnePartition(t *testing.T) {
	db, _ := newStoreBench(t)
	to := stream{table: tableOf(event.TopicNode), topic: event.TopicNode}
	const senders, total = 6, 600
	var wg sync.WaitGroup
	busy := make([]int, senders)
	for i := range senders {
		wg.Go(func() {
			s := newStore(db.Owner, 10*time.Second)
			defer s.close()
			random := rand.New(rand.NewPCG(uint64(i), 7))
			for from := int64(0); from < total; {
				until := min(from+1+random.Int64N(60), total)
				block := nodes(t, from, until)
				for {
					_, err := s.insert(context.Background(), to, block, time.Now())
					if err == nil {
						break
					}
					if !errors.Is(err, errBusy) {
						t.Error(err)
						return
					}
					busy[i]++
					pause(context.Background(), time.Duration(random.IntN(4))*time.Millisecond)
				}
				from = until
			}
		})
	}
	wg.Wait()
	var rows, distinct uint64
	if err := db.QueryRow(t.Context(), "SELECT count(), uniqExact(kafka_offset) FROM node_events").Scan(&rows, &distinct); err != nil || rows != total || distinct != total {
		t.Errorf("%d rows of %d offsets, %v; want %d", rows, distinct, err, total)
	}
	met := 0
	for _, n := range busy {
		met += n
	}
	if met == 0 {
		t.Error("no two inserts met: the test proves nothing")
	}
	t.Logf("inserts met %d times", met)
}

func TestRefusalsOfTheServerAreReported(t *testing.T) {
	db, s := newStoreBench(t)
	if err := db.Exec(t.Context(), "DROP TABLE node_events"); err != nil {
		t.Fatal(err)
	}
	_, err := s.insert(t.Context(), stream{table: tableOf(event.TopicNode)}, nodes(t, 0, 1), time.Now())
	if err == nil || !strings.Contains(err.Error(), "insert into node_events") || !strings.Contains(err.Error(), "UNKNOWN_TABLE") {
		t.Errorf("a table that is not there gave %v", err)
	}
	o := db.Owner
	o.Addresses = []string{"127.0.0.1:1", "127.0.0.1:2"}
	away := newStore(o, time.Second)
	defer away.close()
	for try := 0; ; try++ { // the second server is asked once the first was away for long enough
		_, err := away.next(t.Context(), stream{table: tableOf(event.TopicNode)})
		if err == nil || !strings.Contains(err.Error(), "connect to clickhouse at 127.0.0.1:1") {
			t.Fatalf("servers that are away gave %v", err)
		}
		if strings.Contains(err.Error(), "127.0.0.1:2") {
			if try == 0 {
				t.Error("the second server was asked at once: an insert may still run on the first")
			}
			return
		}
		pause(t.Context(), 50*time.Millisecond)
		if try > 200 {
			t.Fatal("the second server is never asked")
		}
	}
}

func TestInsertQuery(t *testing.T) {
	b := nodes(t, 7, 9)
	got := insertQuery(tableOf(event.TopicNode), b.input(), 2, time.UnixMilli(1234), 7, 8)
	for _, want := range []string{
		"INSERT INTO node_events (kafka_partition, loaded_at, `kafka_offset`, `cluster`,",
		"SELECT toInt32(2), fromUnixTimestamp64Milli(toInt64(1234), 'UTC'), `kafka_offset`, `cluster`,",
		`FROM input('` + "`kafka_offset` Int64, `cluster` LowCardinality(String)",
		"kafka_partition = 2 AND kafka_offset BETWEEN 7 AND 8",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the query lacks %q:\n%s", want, got)
		}
	}
}

// BenchmarkInsert is an insert of a block into a table of some size: what the guard costs as a table grows.
func BenchmarkInsert(b *testing.B) {
	for _, size := range []int{0, 10_000_000} {
		for _, rows := range []int64{100, 100_000} {
			b.Run(fmt.Sprintf("table=%d/rows=%d", size, rows), func(b *testing.B) {
				db, s := newStoreBench(b)
				// As many rows of 4 partitions, whose offsets run side by side, as a table has that was filled for months.
				err := db.Exec(b.Context(), fmt.Sprintf(`INSERT INTO node_events (kafka_partition, kafka_offset, loaded_at, cluster, node, source, observed_at, revision)
					SELECT number %% 4, intDiv(number, 4), now64(3), 'alpha', concat('n', toString(cityHash64(number) %% 5000)), 's', now64(3), number FROM numbers(%d)`, size))
				if err != nil {
					b.Fatal(err)
				}
				if err := db.Exec(b.Context(), "OPTIMIZE TABLE node_events FINAL"); err != nil {
					b.Fatal(err)
				}
				to := stream{table: tableOf(event.TopicNode)}
				next := int64(size / 4)
				b.ResetTimer()
				for b.Loop() {
					b.StopTimer()
					block := nodes(b, next, next+rows)
					next += rows
					b.StartTimer()
					if stored, err := s.insert(b.Context(), to, block, time.Now()); err != nil || int64(stored) != rows {
						b.Fatal(stored, err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(int64(b.N)*rows), "ns/row")
			})
		}
	}
}

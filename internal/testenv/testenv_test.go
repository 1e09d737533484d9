package testenv

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

func TestMain(m *testing.M) { Main(m) }

func TestEachTestGetsAnEmptyDatabaseOfARealServer(t *testing.T) {
	ctx := context.Background()
	a, b := ClickHouse(t), ClickHouse(t)
	if a.Database == b.Database {
		t.Fatalf("both calls got database %s", a.Database)
	}
	if err := a.Exec(ctx, "CREATE TABLE x (n UInt64) ENGINE = MergeTree ORDER BY n"); err != nil {
		t.Fatal(err)
	}
	if err := a.Exec(ctx, "INSERT INTO x SELECT number FROM numbers(10)"); err != nil {
		t.Fatal(err)
	}
	var n uint64
	if err := a.QueryRow(ctx, "SELECT sum(n) FROM x").Scan(&n); err != nil || n != 45 {
		t.Fatalf("sum is %d, %v; want 45", n, err)
	}
	if err := b.QueryRow(ctx, "SELECT count() FROM system.tables WHERE database = currentDatabase()").Scan(&n); err != nil || n != 0 {
		t.Fatalf("the second database holds %d tables, %v; want none", n, err)
	}
}

func TestWhatATestStoresDoesNotAge(t *testing.T) {
	ctx, db := context.Background(), ClickHouse(t)
	for _, s := range []string{
		"CREATE TABLE old (at DateTime) ENGINE = MergeTree ORDER BY at TTL at + INTERVAL 1 DAY",
		"INSERT INTO old VALUES ('2001-01-01 00:00:00')", "INSERT INTO old VALUES ('2001-01-02 00:00:00')", "OPTIMIZE TABLE old FINAL",
	} {
		if err := db.Exec(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	var n uint64
	if err := db.QueryRow(ctx, "SELECT count() FROM old").Scan(&n); err != nil || n != 2 {
		t.Errorf("%d rows are left, %v; want both", n, err)
	}
}

func TestEachTestGetsABrokerOfItsOwn(t *testing.T) {
	ctx := context.Background()
	k := Kafka(t)
	conn, err := k.Dialer().DialContext(ctx, "tcp", k.Brokers[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.CreateTopics(kafka.TopicConfig{Topic: "a", NumPartitions: 3, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	parts, err := conn.ReadPartitions("a")
	if err != nil || len(parts) != 3 {
		t.Fatalf("topic has %d partitions, %v; want 3", len(parts), err)
	}
}

// verdict runs f as a test would and reports how it ended.
func verdict(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t, verdict: "passed"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.verdict
}

type recorder struct {
	testing.TB
	verdict string
}

func (r *recorder) Fatalf(string, ...any) { r.verdict = "failed"; runtime.Goexit() }
func (r *recorder) Skipf(string, ...any)  { r.verdict = "skipped"; runtime.Goexit() }

func TestAnAbsentServiceSkipsUnlessServicesAreRequired(t *testing.T) {
	for value, want := range map[string]string{"": "skipped", "0": "skipped", "1": "failed"} {
		t.Setenv(RequireVariable, value)
		got := verdict(t, func(tb testing.TB) { Binary(tb, "no-such-program") })
		if got != want {
			t.Errorf("with %s=%q a test without its program has %s, want %s", RequireVariable, value, got, want)
		}
	}
	if got := verdict(t, func(tb testing.TB) { Binary(tb, "go") }); got != "passed" {
		t.Errorf("a test with its program has %s", got)
	}
}

func TestEventuallyWaitsForSuccessAndFailsAfterItsTime(t *testing.T) {
	tries := 0
	Eventually(t, time.Minute, func() error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if tries != 3 {
		t.Errorf("it tried %d times, want 3", tries)
	}
	if got := verdict(t, func(tb testing.TB) { Eventually(tb, time.Millisecond, func() error { return errors.New("never") }) }); got != "failed" {
		t.Errorf("a condition that never holds has %s, want failed", got)
	}
}

package testenv

import (
	"context"
	"testing"

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

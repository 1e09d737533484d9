package load

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/kafka"
	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

// TestTwoOwnersOnACluster is TestTwoOwnersOfEveryPartition through Distributed tables over two servers, each of which
// any loader may ask.
func TestTwoOwnersOnACluster(t *testing.T) {
	var shards []engine.ClusterNode
	var free []net.Listener
	for i := range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		free = append(free, l)
		shards = append(shards, engine.ClusterNode{Shard: i + 1, Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port})
	}
	for _, l := range free {
		l.Close()
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("of the test"), 0o600); err != nil {
		t.Fatal(err)
	}
	dirs := []string{t.TempDir(), t.TempDir()}
	both := chconn.Options{}
	for i, n := range shards {
		cfg := engine.DefaultConfig()
		cfg.DataDir = dirs[i]
		cfg.Kafka.Mode = engine.ModeNone
		cfg.ClickHouse.TCPPort, cfg.ClickHouse.Cluster, cfg.ClickHouse.Nodes = n.Port, "fabric", shards
		cfg.ClickHouse.ClusterSecretFile = secret
		if i == 1 { // it has the password of the first: a loader knows one
			name := filepath.Join("clickhouse", "credentials.json")
			password, err := os.ReadFile(filepath.Join(dirs[0], name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(dirs[1], "clickhouse"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dirs[1], name), password, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		e, err := engine.Start(t.Context(), cfg, quiet)
		if err != nil {
			testenv.Unavailable(t, "a cluster of ClickHouse", err)
		}
		t.Cleanup(func() {
			if err := e.Stop(); err != nil {
				t.Error(err)
			}
		})
		o := e.ClickHouse.Owner
		conn, err := chconn.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := clickhouse.Migrate(t.Context(), conn, clickhouse.Options{Database: o.Database, Cluster: "fabric", Unreplicated: true}); err != nil {
			t.Fatal(err)
		}
		o.Addresses = append(both.Addresses, o.Addresses...)
		both = o
	}
	conn, err := chconn.Open(both)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	b := &bench{store: &testenv.Server{Conn: conn, Owner: both}, kafka: testenv.Kafka(t)}
	if err := kafka.EnsureTopics(t.Context(), b.kafka, twoPartitions); err != nil {
		t.Fatal(err)
	}
	b.producer = kafka.NewProducer(b.kafka, kafka.Deps{Log: quiet})
	defer b.producer.Close()
	const total = 800
	stopOne := start(t, config("one"), b.deps())
	stopTwo := start(t, config("two"), b.deps())
	begun := time.Now()
	if err := b.emit(t.Context(), 0, total); err != nil {
		t.Fatal(err)
	}
	b.wait(t, "placement_events", total)
	t.Logf("%d rows in %s", total, time.Since(begun).Round(time.Millisecond))
	b.exact(t, total)
	stopOne()
	stopTwo()
	var local uint64
	if err := conn.QueryRow(t.Context(), "SELECT count() FROM placement_events_local").Scan(&local); err != nil || local == 0 || local == total {
		t.Errorf("one server holds %d of %d rows, %v: the rows are not spread", local, total, err)
	}
}

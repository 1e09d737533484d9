package clickhouse

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/internal/testenv"
)

// twoServers are a cluster of two shards, without Keeper as embedded servers have none.
func twoServers(t *testing.T, cluster string) []driver.Conn {
	t.Helper()
	var nodes []engine.ClusterNode
	var free []net.Listener
	for shard := range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		free = append(free, l)
		nodes = append(nodes, engine.ClusterNode{Shard: shard + 1, Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port})
	}
	for _, l := range free {
		l.Close()
	}
	var conns []driver.Conn
	for _, n := range nodes {
		cfg := engine.DefaultConfig()
		cfg.DataDir = t.TempDir()
		cfg.Kafka.Mode = engine.ModeNone
		cfg.ClickHouse.TCPPort, cfg.ClickHouse.Cluster, cfg.ClickHouse.Nodes = n.Port, cluster, nodes
		cfg.ClickHouse.ClusterSecretFile = secretFile(t)
		e, err := engine.Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			testenv.Unavailable(t, "a cluster of ClickHouse", err)
		}
		conn, err := chconn.Open(e.ClickHouse.Owner)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			conn.Close()
			if err := e.Stop(); err != nil {
				t.Error(err)
			}
		})
		conns = append(conns, conn)
	}
	return conns
}

func TestAClusterHoldsEveryRowOnceAndEveryServerSeesAll(t *testing.T) {
	ctx := t.Context()
	servers := twoServers(t, "fabric")
	o := Options{Database: "spillway", Cluster: "fabric", Unreplicated: true}
	for _, conn := range servers {
		for range 2 { // the second run has nothing to do
			if err := Migrate(ctx, conn, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Rows of one Kafka partition stay together, whichever server takes them.
	const partitions, each = 6, 50
	for p := range partitions {
		err := servers[p%2].Exec(ctx, fmt.Sprintf(`INSERT INTO node_events (kafka_partition, kafka_offset, loaded_at, cluster, node, source, observed_at, revision)
			SETTINGS distributed_foreground_insert = 1
			SELECT %d, number, now64(3), 'c', concat('n', toString(number)), 's', now64(3), 1 FROM numbers(%d)`, p, each))
		if err != nil {
			t.Fatal(err)
		}
	}
	var sum uint64
	for i, conn := range servers {
		var all, local, split uint64
		if err := conn.QueryRow(ctx, "SELECT count() FROM node_events").Scan(&all); err != nil || all != partitions*each {
			t.Errorf("server %d sees %d rows, %v; want %d", i, all, err, partitions*each)
		}
		if err := conn.QueryRow(ctx, "SELECT count() FROM node_events_local").Scan(&local); err != nil || local == 0 {
			t.Errorf("server %d holds %d rows, %v; want a share", i, local, err)
		}
		err := conn.QueryRow(ctx, fmt.Sprintf("SELECT countIf(n != %d) FROM (SELECT count() AS n FROM node_events_local GROUP BY kafka_partition)", each)).Scan(&split)
		if err != nil || split != 0 {
			t.Errorf("server %d holds %d partitions in part, %v; want each whole", i, split, err)
		}
		sum += local
	}
	if sum != partitions*each {
		t.Errorf("the servers hold %d rows together, want %d", sum, partitions*each)
	}
	// Every table takes a row through its Distributed form, whatever its sharding expression.
	for _, table := range append(RawTables(), DerivedTables()...) {
		random := "*"
		if slices.Contains(DerivedTables(), table) && table != TablePassProgress {
			random = "* REPLACE (0 AS is_deleted)" // which must be 0 or 1
		}
		if err := servers[0].Exec(ctx, "INSERT INTO "+table+" SELECT "+random+" FROM generateRandom() LIMIT 3 SETTINGS distributed_foreground_insert = 1"); err != nil {
			t.Errorf("insert into %s: %v", table, err)
		}
	}
}

func secretFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("of the test"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

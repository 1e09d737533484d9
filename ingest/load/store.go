package load

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/chpool"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/spillway-io/spillway/internal/chconn"
)

// store is the ClickHouse side of a loader: it inserts blocks and tells how far a partition has come.
type store struct {
	pool    *chpool.Pool
	timeout time.Duration
}

// openStore connects with ch-go, whose columns are sent as they lie in memory: the client's part of an insert is a
// third of what clickhouse-go's column appends take.
func openStore(ctx context.Context, o chconn.Options, timeout time.Duration) (*store, error) {
	var last error
	for _, address := range o.Addresses {
		pool, err := chpool.Dial(ctx, chpool.Options{
			ClientOptions: ch.Options{
				Address: address, Database: o.Database, User: o.User, Password: o.Password, TLS: o.TLS,
				Compression: ch.CompressionLZ4, ClientName: "spillway-load", DialTimeout: 5 * time.Second,
			},
			MaxConns: 8, MinConns: 0, MaxConnIdleTime: time.Minute, HealthCheckPeriod: 30 * time.Second,
		})
		if err == nil {
			return &store{pool: pool, timeout: timeout}, nil
		}
		last = err
	}
	return nil, fmt.Errorf("connect to clickhouse at %s: %w", strings.Join(o.Addresses, ", "), last)
}

func (s *store) close() { s.pool.Close() }

// stream names one partition of one topic and the table its rows go to.
type stream struct {
	table     string
	topic     string
	partition int32
}

// comment marks the inserts of a stream on the server, so that another owner can see one that is still running.
func (s stream) comment() string { return fmt.Sprintf("load %s/%d", s.topic, s.partition) }

// insert stores a block as one part. An error says nothing about whether it was stored: ask next.
func (s *store) insert(ctx context.Context, to stream, rows proto.Input) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	seconds := fmt.Sprint(max(1, int(s.timeout.Seconds())))
	err := s.pool.Do(ctx, ch.Query{
		Body: rows.Into(to.table), Input: rows,
		Settings: []ch.Setting{
			ch.SettingInt("async_insert", 0),
			// One block, one part: never split, never joined with another.
			ch.SettingInt("max_insert_block_size", 1<<30), ch.SettingInt("min_insert_block_size_rows", 0),
			ch.SettingInt("min_insert_block_size_bytes", 0), ch.SettingInt("max_insert_threads", 1),
			ch.SettingInt("insert_deduplicate", 0),
			{Key: "max_execution_time", Value: seconds}, {Key: "log_comment", Value: to.comment()},
		},
	})
	if err != nil {
		return fmt.Errorf("insert into %s: %w", to.table, err)
	}
	return nil
}

// next is the offset a stream goes on at: one after the highest stored, or -1 when nothing is. It first waits until no
// insert of an earlier owner is running any more, since that one could still be stored after the question.
func (s *store) next(ctx context.Context, of stream) (int64, error) {
	for {
		running, err := s.one(ctx, `SELECT toInt64(count()) AS n FROM system.processes
			WHERE query_kind = 'Insert' AND Settings['log_comment'] = {comment:String}`, "comment", of.comment())
		if err != nil {
			return 0, fmt.Errorf("look for running inserts of %s: %w", of.comment(), err)
		}
		if running == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	n, err := s.one(ctx, fmt.Sprintf(`SELECT if(count() = 0, toInt64(-1), max(kafka_offset) + 1) AS n FROM %s
		WHERE kafka_partition = toInt32({partition:String})`, of.table), "partition", fmt.Sprint(of.partition))
	if err != nil {
		return 0, fmt.Errorf("find the last stored offset of %s: %w", of.comment(), err)
	}
	return n, nil
}

// buried lists the offsets of a stream, from one on, that are in the dead letters already.
func (s *store) buried(ctx context.Context, of stream, from int64) (map[int64]bool, error) {
	var offsets proto.ColInt64
	found := map[int64]bool{}
	err := s.pool.Do(ctx, ch.Query{
		Body: `SELECT DISTINCT topic_offset AS n FROM dead_letters WHERE topic = {topic:String}
			AND topic_partition = toInt32({partition:String}) AND topic_offset >= toInt64({from:String}) AND stage = 'load'`,
		Parameters: ch.Parameters(map[string]any{"topic": of.topic, "partition": fmt.Sprint(of.partition), "from": fmt.Sprint(from)}),
		Result:     proto.Results{{Name: "n", Data: &offsets}},
		OnResult: func(context.Context, proto.Block) error {
			for _, n := range offsets {
				found[n] = true
			}
			return nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("find the dead letters of %s: %w", of.comment(), err)
	}
	return found, nil
}

// one runs a query that gives one Int64 called n.
func (s *store) one(ctx context.Context, query, parameter, value string) (int64, error) {
	var n proto.ColInt64
	got := int64(0)
	err := s.pool.Do(ctx, ch.Query{
		Body: query, Parameters: ch.Parameters(map[string]any{parameter: value}), Result: proto.Results{{Name: "n", Data: &n}},
		OnResult: func(context.Context, proto.Block) error {
			if len(n) > 0 {
				got = n[0]
			}
			return nil
		},
	})
	return got, err
}

package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/ch-go"
	"github.com/ClickHouse/ch-go/proto"

	"github.com/spillway-io/spillway/internal/chconn"
)

// store is the ClickHouse side of a loader: it inserts blocks and tells how far a partition has come. It speaks through
// ch-go, whose columns are sent as they lie in memory: the client's part of an insert is a third of what clickhouse-go's
// column appends take, and only ch-go can send data to the query that insertQuery makes.
type store struct {
	options   ch.Options // without an address
	addresses []string
	settings  []ch.Setting // of every insert
	timeout   time.Duration
	slots     chan struct{} // bounds the connections in use

	mu   sync.Mutex
	idle map[string][]*ch.Client
	down map[string]time.Time // since when an address does not answer
}

// compression is for the network: to a server on this machine it would only cost, on both sides.
func compression(addresses []string) ch.Compression {
	for _, a := range addresses {
		host, _, err := net.SplitHostPort(a)
		if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return ch.CompressionLZ4
		}
	}
	return ch.CompressionDisabled
}

// maxConns is how many inserts of one loader run at once.
const maxConns = 8

// newStore dials nothing.
func newStore(o chconn.Options, timeout time.Duration) *store {
	seconds := fmt.Sprint(max(1, int(timeout.Seconds())))
	s := &store{
		options: ch.Options{
			Database: o.Database, User: o.User, Password: o.Password, TLS: o.TLS, Compression: compression(o.Addresses),
			ClientName: "spillway-load", DialTimeout: 5 * time.Second, ReadTimeout: timeout + 5*time.Second,
		},
		addresses: o.Addresses, timeout: timeout, slots: make(chan struct{}, maxConns),
		idle: map[string][]*ch.Client{}, down: map[string]time.Time{},
		settings: []ch.Setting{
			// The insert is over when it is stored, here and on the server of a cluster that the rows belong to.
			ch.SettingInt("async_insert", 0), ch.SettingInt("distributed_foreground_insert", 1),
			// One block, one part: never split, never joined with another.
			ch.SettingInt("max_insert_block_size", 1<<30), ch.SettingInt("min_insert_block_size_rows", 0),
			ch.SettingInt("min_insert_block_size_bytes", 0), ch.SettingInt("max_insert_threads", 1), ch.SettingInt("max_threads", 1),
			// What is stored twice is decided by offsets alone: never by a hash, nor by a token, under which other rows
			// of a topic made anew would vanish.
			ch.SettingInt("insert_deduplicate", 0),
			// The guard's few granules are found before any is read; looking at the index again while reading, as newer
			// servers do, takes half of the guard's time.
			{Key: "use_skip_indexes_on_data_read", Value: "0"},
			// A query that nobody ends ends by itself.
			{Key: "max_execution_time", Value: seconds}, {Key: "receive_timeout", Value: seconds},
			// On replicas: read where the rows were written.
			{Key: "load_balancing", Value: "in_order"}, ch.SettingInt("prefer_localhost_replica", 0),
		},
	}
	for k, v := range o.Settings {
		s.settings = append(s.settings, ch.Setting{Key: k, Value: fmt.Sprint(v), Important: true})
	}
	return s
}

func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, clients := range s.idle {
		for _, c := range clients {
			c.Close()
		}
	}
	s.idle = nil
}

// stream names one partition of one topic and the table its rows go to.
type stream struct {
	table     table
	topic     string
	partition int32
}

func (s stream) String() string { return fmt.Sprintf("%s/%d", s.topic, s.partition) }

// errBusy says that an insert of the same partition is running on the server: nothing was stored.
var errBusy = errors.New("another insert of this partition is running")

// insert stores the rows of a block that are not stored yet, as one part, and tells how many those were. It may be
// called again with the same block whatever the error, and by several owners of a partition at once.
//
// Two properties of the server make it so. It runs one query of a name at a time, and the name is the partition: from
// before it looks what is stored until after the part is there or given up, nobody else's insert of the partition
// runs, not even one whose sender is long dead. And the query itself leaves out offsets that are there. Both hold on
// one server, so on a cluster every insert of a partition goes through the same one; another is asked only when that
// one has not answered for the time after which it ends an insert by itself.
func (s *store) insert(ctx context.Context, to stream, b block, loadedAt time.Time) (stored int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout+time.Second)
	defer cancel()
	rows := b.input()
	first, last := b.span()
	err = s.do(ctx, to, ch.Query{
		QueryID:  "spillway-load/" + s.options.Database + "." + to.table.name + "/" + fmt.Sprint(to.partition),
		Body:     insertQuery(to.table, rows, to.partition, loadedAt, first, last),
		Input:    rows,
		Settings: s.settings,
		OnProgress: func(_ context.Context, p proto.Progress) error {
			stored += int(p.WroteRows)
			return nil
		},
	})
	if ch.IsErr(err, proto.ErrQueryWithSameIDIsAlreadyRunning) {
		return 0, fmt.Errorf("insert into %s: %w", to.table.name, errBusy)
	}
	if err != nil {
		return 0, fmt.Errorf("insert into %s: %w", to.table.name, err)
	}
	return stored, nil
}

// insertQuery inserts what is sent except the offsets of this partition that are stored. Offsets of a partition are
// stored in order, so the highest one between the first and the last of the block says it all; the bounds keep the
// question small, whatever the size of the table. The partition and the load time are the same for the whole block: that
// makes it one part of the table, stored or not.
func insertQuery(t table, rows proto.Input, partition int32, loadedAt time.Time, first, last int64) string {
	var names, declared strings.Builder
	for i, c := range rows {
		if i > 0 {
			names.WriteString(", ")
			declared.WriteString(", ")
		}
		names.WriteString("`" + c.Name + "`")
		declared.WriteString("`" + c.Name + "` " + string(c.Data.Type()))
	}
	structure := strings.ReplaceAll(declared.String(), "'", `\'`)
	return fmt.Sprintf(`INSERT INTO %[1]s (kafka_partition, loaded_at, %[2]s)
SELECT toInt32(%[4]d), fromUnixTimestamp64Milli(toInt64(%[8]d), 'UTC'), %[2]s FROM input('%[3]s')
WHERE kafka_offset > (SELECT if(count() = 0, -1, max(kafka_offset)) FROM %[1]s
    WHERE kafka_partition = %[4]d AND kafka_offset BETWEEN %[5]d AND %[6]d)%[7]s
FORMAT Native`, t.name, names.String(), structure, partition, first, last, t.guard, loadedAt.UnixMilli())
}

// next is the offset a stream goes on at: one after the highest stored, or -1 when nothing is. An insert of an earlier
// owner may still be running; what it stores after this answer, insert leaves out.
func (s *store) next(ctx context.Context, of stream) (int64, error) {
	var n proto.ColInt64
	next := int64(-1)
	err := s.do(ctx, of, ch.Query{
		Body: fmt.Sprintf("SELECT if(count() = 0, toInt64(-1), max(kafka_offset) + 1) AS n FROM %s WHERE kafka_partition = %d",
			of.table.name, of.partition),
		Result: proto.Results{{Name: "n", Data: &n}},
		OnResult: func(context.Context, proto.Block) error {
			if len(n) > 0 {
				next = n[0]
			}
			return nil
		},
	})
	if err != nil {
		return 0, fmt.Errorf("find the last stored offset of %s: %w", of, err)
	}
	return next, nil
}

// buried lists the offsets of a stream, from one on, that are in the dead letters already.
func (s *store) buried(ctx context.Context, of stream, from int64) (map[int64]bool, error) {
	var offsets proto.ColInt64
	found := map[int64]bool{}
	err := s.do(ctx, of, ch.Query{
		Body: fmt.Sprintf(`SELECT topic_offset AS n FROM dead_letters
			WHERE topic = '%s' AND topic_partition = %d AND topic_offset >= %d AND stage = 'load'`, of.topic, of.partition, from),
		Result: proto.Results{{Name: "n", Data: &offsets}},
		OnResult: func(context.Context, proto.Block) error {
			for _, n := range offsets {
				found[n] = true
			}
			return nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("find the dead letters of %s: %w", of, err)
	}
	return found, nil
}

// do runs one query on the server of a stream. A connection whose query failed is not used again: the server closes it
// itself after it refused an insert.
func (s *store) do(ctx context.Context, of stream, q ch.Query) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	address, client, err := s.client(ctx, int(of.partition))
	if err != nil {
		return err
	}
	err = client.Do(ctx, q)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.idle != nil {
		s.idle[address] = append(s.idle[address], client)
		return nil
	}
	client.Close()
	if !ch.IsException(err) { // the others to that server are likely to be as dead
		for _, c := range s.idle[address] {
			c.Close()
		}
		delete(s.idle, address)
	}
	return err
}

// client gives a connection to the server of a partition.
func (s *store) client(ctx context.Context, partition int) (string, *ch.Client, error) {
	var errs []error
	for i := range s.addresses {
		address := s.addresses[(partition+i)%len(s.addresses)]
		s.mu.Lock()
		if n := len(s.idle[address]); n > 0 {
			c := s.idle[address][n-1]
			s.idle[address] = s.idle[address][:n-1]
			s.mu.Unlock()
			return address, c, nil
		}
		s.mu.Unlock()
		o := s.options
		o.Address = address
		c, err := ch.Dial(ctx, o)
		s.mu.Lock()
		if err == nil {
			delete(s.down, address)
			s.mu.Unlock()
			return address, c, nil
		}
		since, known := s.down[address]
		if !known {
			since = time.Now()
			s.down[address] = since
		}
		s.mu.Unlock()
		errs = append(errs, fmt.Errorf("connect to clickhouse at %s: %w", address, err))
		if time.Since(since) < s.timeout {
			break
		}
	}
	return "", nil, errors.Join(errs...)
}

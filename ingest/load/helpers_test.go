package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/spillway-io/spillway/ingest/kafka"
	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/schemas/event"
)

// twoPartitions is the least at which an order across partitions can go wrong.
var twoPartitions = kafka.TopicConfig{Partitions: 2, Replication: 1, Retention: 24 * time.Hour}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// metric is the sum of a counter or gauge over its labels; 0 when there is none.
func metric(t testing.TB, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// limits are what a connection through a proxy may do before it breaks; -1 is without limit.
type limits struct {
	up, down int    // bytes to and from the server; what reaches the limit upwards is delivered, then both sides are cut
	freezeAt string // once this was sent to the server nothing more is, until thaw
	mute     string // once this query and its data were sent, the server's next word is swallowed and both sides are cut
}

// proxy stands between a loader and its server.
type proxy struct {
	address string
	target  string
	refuse  atomic.Bool // whoever dials is cut off
	cuts    atomic.Int64
	frozen  atomic.Int64
	thaw    func()

	limits func() limits
	thawed chan struct{}
	wg     sync.WaitGroup
	mu     sync.Mutex
	open   map[net.Conn]bool
}

// cut ends every connection that is open.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.Close()
	}
}

func newProxy(t testing.TB, target string, l func() limits) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: listener.Addr().String(), target: target, limits: l, thawed: make(chan struct{}), open: map[net.Conn]bool{}}
	p.thaw = sync.OnceFunc(func() { close(p.thawed) })
	p.wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			if p.refuse.Load() {
				c.Close()
				continue
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		p.thaw()
		listener.Close()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	p.open[client] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.open, client)
		p.mu.Unlock()
	}()
	l := p.limits()
	cut := sync.OnceFunc(func() {
		client.Close()
		server.Close()
	})
	// The server says what columns it expects between the query and its data.
	const query, columns, data = 1, 2, 3
	var sent atomic.Int32
	up := func(b []byte) bool {
		if l.mute != "" && bytes.Contains(b, []byte(l.mute)) {
			sent.Store(query)
		} else if sent.Load() == columns {
			sent.Store(data)
		}
		return true
	}
	down := func([]byte) bool {
		switch sent.Load() {
		case query:
			sent.Store(columns)
		case data:
			p.cuts.Add(1)
			return false
		}
		return true
	}
	var pair sync.WaitGroup
	pair.Go(func() { p.copy(server, client, l.up, l.freezeAt, up, cut) })
	pair.Go(func() { p.copy(client, server, l.down, "", down, cut) })
	pair.Wait()
}

func (p *proxy) copy(to io.Writer, from io.Reader, limit int, freezeAt string, pass func([]byte) bool, cut func()) {
	defer cut()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !pass(buf[:n]) {
				return
			}
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
		if freezeAt != "" && bytes.Contains(buf[:n], []byte(freezeAt)) {
			p.frozen.Add(1)
			<-p.thawed
			freezeAt = ""
		}
		if limit >= 0 {
			if limit -= n; limit <= 0 {
				p.cuts.Add(1)
				return
			}
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func encode(t testing.TB, r event.Record) []byte {
	t.Helper()
	_, value, err := event.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// childVariable makes this test binary a loader; it holds a child as JSON.
const childVariable = "SPILLWAY_TEST_LOADER"

type child struct {
	Group      string
	Brokers    []string
	ClickHouse account
	Default    bool   // with the default configuration, not one of small batches
	Progress   string // file to write the number of counters stored to, from the first record read on
	Ceiling    string // no loader: insert the records of this file, see BenchmarkComparison
	Sorted     bool   // in the order of the table's key
}

// account is the part of a server's options that a child needs and that JSON can hold.
type account struct {
	Addresses                []string
	Database, User, Password string
}

func accountOf(o chconn.Options) account {
	return account{o.Addresses, o.Database, o.User, o.Password}
}

func (a account) options() chconn.Options {
	return chconn.Options{Addresses: a.Addresses, Database: a.Database, User: a.User, Password: a.Password}
}

// startChild runs a loader in a process of its own until it is killed.
func startChild(t testing.TB, c child) (kill func()) {
	t.Helper()
	_, kill = startChildProcess(t, c)
	return kill
}

func startChildProcess(t testing.TB, c child) (pid int, kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(kill)
	return cmd.Process.Pid, kill
}

// runChild never returns by itself; should its parent die, it has nobody to load for and ends after a while.
func runChild(text string) {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	if c.Ceiling != "" {
		if err := runCeiling(c.ClickHouse.options(), c.Ceiling, c.Sorted); err != nil {
			panic(err)
		}
		return
	}
	k := engine.Kafka{Brokers: c.Brokers}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	p := kafka.NewProducer(k, kafka.Deps{Log: quiet})
	defer p.Close()
	cfg := config(c.Group)
	if c.Default {
		cfg = DefaultConfig()
		cfg.Group = c.Group
	}
	l, err := New(cfg, Deps{Kafka: k, ClickHouse: c.ClickHouse.options(), DeadLetter: p.Emit, Log: quiet})
	if err != nil {
		panic(err)
	}
	if c.Progress != "" {
		go tellProgress(ctx, l, c.Progress)
	}
	if err := l.Run(ctx); err != nil {
		panic(err)
	}
}

// tellProgress costs next to nothing, other than asking ClickHouse for it.
func tellProgress(ctx context.Context, l *Loader, path string) {
	value := func(of *prometheus.CounterVec) float64 {
		var m dto.Metric
		if err := of.WithLabelValues(event.TopicCounters).Write(&m); err != nil {
			panic(err)
		}
		return m.GetCounter().GetValue()
	}
	for told := -1.0; pause(ctx, 25*time.Millisecond); {
		if stored := value(l.m.rows); stored > told && value(l.m.records) > 0 {
			told = stored
			if err := os.WriteFile(path+".new", fmt.Append(nil, stored), 0o600); err != nil {
				panic(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				panic(err)
			}
		}
	}
}

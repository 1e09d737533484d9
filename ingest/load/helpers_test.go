package load

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/schemas/event"
)

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
}

func newProxy(t testing.TB, target string, l func() limits) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: listener.Addr().String(), target: target, limits: l, thawed: make(chan struct{})}
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
	l := p.limits()
	cut := sync.OnceFunc(func() {
		client.Close()
		server.Close()
	})
	var pair sync.WaitGroup
	pair.Go(func() { p.copy(server, client, l.up, l.freezeAt, cut) })
	pair.Go(func() { p.copy(client, server, l.down, "", cut) })
	pair.Wait()
}

func (p *proxy) copy(to io.Writer, from io.Reader, limit int, freezeAt string, cut func()) {
	defer cut()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if n > 0 {
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

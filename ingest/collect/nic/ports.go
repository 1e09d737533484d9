package nic

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// counter is a cumulative number of a port.
type counter uint8

const (
	txBytes counter = iota
	rxBytes
	txWait
	recoveries
	downs
	counters
)

// port is one reading of one port. Numbers that the source does not have are NaN.
type port struct {
	device string
	number uint32
	gid    string // empty = not told
	layer  string // InfiniBand, Ethernet; empty = not told
	state  event.LinkState
	speed  float64 // bytes per second
	values [counters]float64
}

func newPort(device string, number uint32) *port {
	p := &port{device: device, number: number, speed: math.NaN()}
	for i := range p.values {
		p.values[i] = math.NaN()
	}
	return p
}

// stateOf is a port's state as InfiniBand numbers it, on Ethernet too: 1 down, 2 initialising, 3 armed, 4 active, 5 active
// with its link just lost.
func stateOf(n float64) event.LinkState {
	switch n {
	case 1:
		return event.LinkState_DOWN
	case 2, 3:
		return event.LinkState_STARTING
	case 4, 5:
		return event.LinkState_UP
	}
	return event.LinkState_LINK_STATE_UNSPECIFIED
}

// history is what is known of every node from one reading to the next.
type history struct {
	forget  time.Duration // how long a port that vanished is missing
	timeout time.Duration // how much an answer may be late

	mu     sync.Mutex
	nodes  map[nodeKey]*node
	pruned time.Time
}

type nodeKey struct{ cluster, node string }

type node struct {
	mu    sync.Mutex
	seen  time.Time
	ports map[string]*past // by GID, or else by device and port
}

// past is a port as it was seen last.
type past struct {
	port  port
	seen  time.Time
	since time.Time // since when its counters run unbroken
	at    [counters]time.Time
}

func newHistory(forget, timeout time.Duration) *history {
	return &history{forget: forget, timeout: timeout, nodes: map[nodeKey]*node{}}
}

func (h *history) node(key nodeKey, now time.Time) *node {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.pruned) > h.forget/4 {
		h.pruned = now
		for k, n := range h.nodes {
			n.mu.Lock()
			old := now.Sub(n.seen) > h.forget
			n.mu.Unlock()
			if old {
				delete(h.nodes, k)
			}
		}
	}
	n := h.nodes[key]
	if n == nil {
		n = &node{seen: now, ports: map[string]*past{}}
		h.nodes[key] = n
	}
	return n
}

// record makes the record of one reading of a node, or nil where a newer one has overtaken it. A whole reading is one of
// which nothing was unreadable: only then is a port that is not in it missing.
func (h *history) record(key nodeKey, source string, ports []*port, at time.Time, whole bool) *event.Counters {
	n := h.node(key, at)
	n.mu.Lock()
	defer n.mu.Unlock()
	if late := n.seen.Sub(at); late > 0 && late < h.timeout { // more is a clock that was set back
		return nil
	}
	n.seen = at
	r := &event.Counters{Cluster: key.cluster, Node: key.node, Source: source, ObservedAtMs: at.UnixMilli()}
	slices.SortFunc(ports, func(a, b *port) int {
		return cmp.Or(strings.Compare(a.device, b.device), cmp.Compare(a.number, b.number))
	})
	for _, p := range ports {
		id := p.gid
		if old := n.ports[id]; id == "" || old != nil && old.seen.Equal(at) { // two ports of one GID, as those of a bond
			id = p.name()
		}
		old := n.ports[id]
		if old == nil {
			old = &past{since: at}
			for i := range old.port.values {
				old.port.values[i] = math.NaN()
			}
			n.ports[id] = old
		}
		reset := old.update(p, at)
		appendPort(r, p, old.since, reset)
	}
	if whole {
		n.missing(r, at, h.forget)
	}
	trim(r)
	return r
}

func (p *port) name() string { return fmt.Sprintf("%s/%d", p.device, p.number) }

// overshoot and delay bound what a port can have carried between two readings: links are signalled a little faster than
// they carry data, and a NIC renews its counters about once a second.
const (
	overshoot = 1.07
	delay     = 5 * time.Second
)

// update takes a new reading and says whether the counters have begun anew since the one before.
func (o *past) update(p *port, at time.Time) (reset bool) {
	// A port that is down may tell a speed that it had never while it was up.
	speed := p.speed
	if math.IsNaN(speed) || o.port.speed > speed {
		speed = o.port.speed
	}
	values := o.port.values
	for i, v := range p.values {
		before := values[i]
		if math.IsNaN(v) {
			continue
		}
		values[i] = v
		if c := counter(i); !math.IsNaN(before) {
			most := math.Inf(1)
			if (c == txBytes || c == rxBytes) && speed > 0 {
				most = speed * overshoot * (at.Sub(o.at[i]) + delay).Seconds()
			}
			reset = reset || v < before || v-before > most
		}
		o.at[i] = at
	}
	o.port, o.seen = *p, at
	o.port.values = values
	if reset {
		o.since = at
	}
	return reset
}

// missing adds the ports that were there before, while others still are.
func (n *node) missing(r *event.Counters, at time.Time, forget time.Duration) {
	var gone []*past
	for id, o := range n.ports {
		switch {
		case o.seen.Equal(at):
		case at.Sub(o.seen) > forget:
			delete(n.ports, id)
		default:
			gone = append(gone, o)
		}
	}
	slices.SortFunc(gone, func(a, b *past) int {
		return cmp.Or(strings.Compare(a.port.device, b.port.device), cmp.Compare(a.port.number, b.port.number))
	})
	for _, o := range gone {
		p := newPort(o.port.device, o.port.number)
		p.gid, p.layer, p.state = o.port.gid, o.port.layer, event.LinkState_MISSING
		appendPort(r, p, o.since, false)
	}
}

func numbers(r *event.Counters) [counters]*[]float64 {
	return [counters]*[]float64{
		txBytes: &r.NicTxBytes, rxBytes: &r.NicRxBytes, txWait: &r.NicTxWait, recoveries: &r.NicRecoveries, downs: &r.NicDowns,
	}
}

func appendPort(r *event.Counters, p *port, since time.Time, reset bool) {
	r.Nic = append(r.Nic, p.device)
	r.NicPort = append(r.NicPort, p.number)
	r.NicGid = append(r.NicGid, p.gid)
	r.NicLinkLayer = append(r.NicLinkLayer, p.layer)
	r.NicState = append(r.NicState, p.state)
	r.NicSinceMs = append(r.NicSinceMs, since.UnixMilli())
	r.NicReset = append(r.NicReset, reset)
	r.NicSpeedBytesPerSecond = append(r.NicSpeedBytesPerSecond, p.speed)
	for i, column := range numbers(r) {
		*column = append(*column, p.values[i])
	}
}

// trim empties the columns that hold nothing.
func trim(r *event.Counters) {
	columns := numbers(r)
	for _, c := range append(columns[:], &r.NicSpeedBytesPerSecond) {
		if !slices.ContainsFunc(*c, func(v float64) bool { return !math.IsNaN(v) }) {
			*c = nil
		}
	}
	for _, c := range []*[]string{&r.NicGid, &r.NicLinkLayer} {
		if !slices.ContainsFunc(*c, func(s string) bool { return s != "" }) {
			*c = nil
		}
	}
	if !slices.Contains(r.NicReset, true) {
		r.NicReset = nil
	}
	if !slices.ContainsFunc(r.NicState, func(s event.LinkState) bool { return s != event.LinkState_LINK_STATE_UNSPECIFIED }) {
		r.NicState = nil
	}
}

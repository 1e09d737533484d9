package dcgm

import (
	"sync"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// history is what is known of every node from one answer to the next. It is kept by node and not by target, so that an
// exporter that comes back under another address goes on where it was.
type history struct {
	mu     sync.Mutex
	nodes  map[nodeKey]*node
	pruned time.Time
}

type nodeKey struct{ cluster, node string }

// node is one node. Its lock is held while an answer about it is worked on.
type node struct {
	mu     sync.Mutex
	key    nodeKey
	seen   time.Time
	driver string
	gpus   map[string]*gpu

	told    string    // the membership last stored, as text
	toldAt  time.Time // when it was
	version uint64    // revision of the newest membership, so that none is overtaken
}

// gpu is one GPU of a node.
type gpu struct {
	index   uint32
	uuid    string
	model   string
	seen    time.Time // in an answer
	missing bool      // in the last whole answer
	since   time.Time // since when its counters run unbroken
	fabric  fabric
	cells   [gpuColumns]past
	links   map[uint32]*link
	summed  []summand // what its bytes are the sum of, where they are one
}

// summand is a counter of one link.
type summand struct {
	link   uint32
	column linkColumn
}

// link is one NVLink of a GPU.
type link struct {
	seen  time.Time
	cells [linkColumns]past
}

// past is the last value of a cell.
type past struct {
	value float64
	raw   float64
	from  uint16    // id of the field; 0 = there was none yet
	at    time.Time // when it was seen
	since time.Time // since when it has not changed
}

func newHistory() *history { return &history{nodes: map[nodeKey]*node{}} }

// node gives what is known of a node. What was not seen for longer than forget is forgotten.
func (h *history) node(key nodeKey, now time.Time, forget time.Duration) *node {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.pruned) > forget/4 {
		h.pruned = now
		for k, n := range h.nodes {
			n.mu.Lock()
			old := now.Sub(n.seen) > forget
			n.mu.Unlock()
			if old {
				delete(h.nodes, k)
			}
		}
	}
	n := h.nodes[key]
	if n == nil {
		n = &node{key: key, seen: now, gpus: map[string]*gpu{}}
		h.nodes[key] = n
	}
	return n
}

// broken says whether a cumulative value has begun anew since the one before: it fell, it comes from another field, or it
// grew by more than most bytes a second allow, as it does when a new DCGM counts all links in place of one. An exporter
// may show values that are as old as its own interval, so the growth of that time may come on top.
func (p *past) broken(c *cell, at time.Time, most float64, slack time.Duration) bool {
	if p.from == 0 || c.from == nil {
		return false
	}
	if p.from != c.from.id || c.value < p.value {
		return true
	}
	return most > 0 && c.value-p.value > most*(at.Sub(p.at)+slack).Seconds()
}

// coarse is where a rate, as printed, is so small that it comes again by itself.
const coarse = 1000

// unchanged is for how long a rate has been exactly the same. One that is coarse is always new.
func (p *past) unchanged(c *cell, at time.Time) time.Duration {
	if p.from == 0 || p.from != c.from.id || p.raw != c.raw || c.raw < coarse {
		return 0
	}
	return at.Sub(p.since)
}

// note remembers a value; an absent one leaves what was.
func (p *past) note(c *cell, at time.Time) {
	if c.from == nil {
		return
	}
	if p.from != c.from.id || p.raw != c.raw {
		p.since = at
	}
	p.value, p.raw, p.from, p.at = c.value, c.raw, c.from.id, at
}

// stateOf is a link's state as NVML numbers it.
func stateOf(c *cell) event.LinkState {
	if c.from == nil {
		return event.LinkState_LINK_STATE_UNSPECIFIED
	}
	switch c.value {
	case 0:
		return event.LinkState_DOWN
	case 1:
		return event.LinkState_UP
	case 2:
		return event.LinkState_SLEEP
	case 3:
		return event.LinkState_TRAFFIC_DISABLED
	}
	return event.LinkState_LINK_STATE_UNSPECIFIED
}

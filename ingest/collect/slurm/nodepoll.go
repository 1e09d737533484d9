package slurm

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
	"github.com/spillway-io/spillway/schemas/event"
)

// Nodes is one document of nodes, as Jobs is one of jobs.
type Nodes func(yield func(*slurmjson.Node) error) (slurmjson.Meta, error)

// NodePoller turns a series of full answers about the nodes of one cluster into records of what changed. It works as a
// Poller does.
type NodePoller struct {
	cfg   *Config
	fold  folder
	log   *slog.Logger
	trust int

	known, staged map[string]knownNode
	first         time.Time // of the first good poll
	stagedFirst   time.Time
	empty         int
}

// knownNode is what of a node was emitted. The scheduler's words (IDLE, MIXED, PLANNED) change all the time and are not in
// it: a change of them alone makes no record.
type knownNode struct {
	cluster, reason, reservation string
	gpus, schedulable            int64 // -1 = not known
	emitted                      int64 // Unix milliseconds; 0 = its record broke the contract
}

// NewNodePoller gives a NodePoller that knows nothing yet.
func NewNodePoller(cfg *Config, log *slog.Logger, note func(reason string, facts int)) *NodePoller {
	return &NodePoller{cfg: cfg, log: log, trust: emptyPolls, fold: folder{cfg: cfg, note: note}, known: map[string]knownNode{}}
}

// Commit makes what the last call proposed the truth.
func (p *NodePoller) Commit() {
	if p.staged != nil {
		p.known, p.staged, p.first = p.staged, nil, p.stagedFirst
	}
}

// ToldSince is when the first answer was read, if all that the last one lists was told since then; else zero.
func (p *NodePoller) ToldSince() time.Time {
	for _, n := range p.known {
		if n.emitted == 0 {
			return time.Time{}
		}
	}
	if len(p.known) == 0 { // a cluster has nodes: an answer without any is no list of them
		return time.Time{}
	}
	return p.first
}

// Observe reads one answer to "which nodes are there" and proposes the records of what changed since the last; a node that
// is no longer listed is removed. A document that cannot be read to its end is refused whole.
func (p *NodePoller) Observe(nodes Nodes, observed time.Time) ([]event.Record, slurmjson.Meta, error) {
	p.staged = nil
	next := make(map[string]knownNode, len(p.known))
	var changed []*event.Node
	meta, err := nodes(func(n *slurmjson.Node) error {
		if _, twice := next[n.Name]; twice {
			return fmt.Errorf("node %s is listed twice; the document is not an answer of Slurm, refuse it", n.Name)
		}
		rec := p.fold.node(n)
		now := knownNode{cluster: rec.Cluster, reason: rec.Reason, reservation: rec.Reservation, gpus: -1, schedulable: -1, emitted: observed.UnixMilli()}
		if rec.GpusPresent != nil {
			now.gpus = int64(*rec.GpusPresent)
		}
		if rec.Schedulable != nil {
			now.schedulable = 0
			if *rec.Schedulable {
				now.schedulable = 1
			}
		}
		old, had := p.known[n.Name]
		same := now
		same.emitted = old.emitted
		due := p.cfg.Refresh > 0 && now.emitted-old.emitted >= p.cfg.Refresh.Milliseconds()
		if had && old == same && !due {
			next[n.Name] = old
			return nil
		}
		next[n.Name] = now
		changed = append(changed, rec)
		return nil
	})
	switch {
	case err != nil:
		return nil, meta, err
	case meta.Unchanged:
		return nil, meta, nil
	case observed.IsZero() && meta.LastUpdate.IsZero():
		return nil, meta, errors.New("the document does not say its time; put the time into the file's name, as nodes-20261129T142633Z.json")
	case observed.IsZero():
		observed = meta.LastUpdate
	}
	if len(next) == 0 && len(p.known) > 0 && p.empty+1 < p.trust {
		p.empty++
		return nil, meta, fmt.Errorf("slurm lists no node at all where it listed %d before; that is believed after %d such answers in a row", len(p.known), p.trust)
	}
	p.empty = 0
	for name, old := range p.known {
		if _, listed := next[name]; !listed {
			changed = append(changed, &event.Node{Cluster: old.cluster, Node: name, Source: SourceNodes, Removed: true})
		}
	}
	var out []event.Record
	for _, rec := range changed {
		if rec.Cluster == "" {
			rec.Cluster = p.fold.cluster(meta.Cluster)
		}
		if rec.Cluster == "" {
			return nil, meta, errors.New("neither the nodes nor the document name the cluster; set cluster in the configuration of the slurm collector")
		}
		rec.ObservedAtMs, rec.Revision = observed.UnixMilli(), event.Revision(observed)
		if err := rec.Validate(); err != nil {
			p.fold.note("invalid", 1)
			p.log.Debug("left a node out", "node", rec.Node, "error", err)
			if n, listed := next[rec.Node]; listed {
				n.emitted = 0
				next[rec.Node] = n
			}
			continue
		}
		out = append(out, rec)
	}
	for path, n := range meta.Unread {
		p.fold.note("field_unreadable", n)
		p.log.Debug("a field of slurm's answer has a shape that is not known", "field", path, "times", n)
	}
	p.staged, p.stagedFirst = next, p.first
	if p.first.IsZero() {
		p.stagedFirst = observed
	}
	return out, meta, nil
}

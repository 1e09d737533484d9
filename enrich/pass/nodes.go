package pass

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
)

// capacityFact is what one source says of one node's capacity; nil = it does not say.
type capacityFact struct {
	present, healthy, allocatable *uint16
	schedulable                   *bool
	state, why                    string // kept only where the node takes no jobs: they say why
	removed                       bool
}

func (f capacityFact) equal(g capacityFact) bool {
	return same(f.present, g.present) && same(f.healthy, g.healthy) && same(f.allocatable, g.allocatable) &&
		same(f.schedulable, g.schedulable) && f.state == g.state && f.why == g.why && f.removed == g.removed
}

// nodeCapacity is what a node offers, from all its sources; nil = not known.
type nodeCapacity struct {
	present     *uint16
	usable      *uint16
	schedulable *bool
	state, why  string
}

func (s nodeCapacity) equal(t nodeCapacity) bool {
	return same(s.present, t.present) && same(s.usable, t.usable) && same(s.schedulable, t.schedulable) &&
		s.state == t.state && s.why == t.why
}

// offer is what jobs can have of it; a node that takes none offers nothing.
func (s nodeCapacity) offer() offer {
	if s.schedulable != nil && !*s.schedulable {
		return offer{s.present, new(uint16(0))}
	}
	return offer{s.present, s.usable}
}

// offersSame leaves out the texts: nothing is judged by them.
func (s nodeCapacity) offersSame(t nodeCapacity) bool {
	return same(s.present, t.present) && same(s.usable, t.usable) && same(s.schedulable, t.schedulable)
}

func same[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// combine gives the state of a node from what its sources say at one moment, in the order of their names. One source
// that keeps the node from jobs is enough; of several counts the lowest is the one a job can rely on. A node that every
// source has removed offers nothing; nil = no source has ever spoken.
func combine(facts []*capacityFact) *nodeCapacity {
	out := &nodeCapacity{}
	heard, listed := false, false
	for _, f := range facts {
		if f == nil {
			continue
		}
		heard = true
		if f.removed {
			continue
		}
		listed = true
		out.present = larger(out.present, f.present)
		usable := cmp.Or(f.allocatable, f.healthy, f.present)
		if usable != nil && (out.usable == nil || *usable < *out.usable) {
			out.usable = usable
		}
		if f.schedulable != nil && (out.schedulable == nil || !*f.schedulable) {
			if out.schedulable == nil || *out.schedulable {
				out.state, out.why = f.state, f.why
			}
			out.schedulable = f.schedulable
		}
	}
	none, no := uint16(0), false
	switch {
	case !heard:
		return nil
	case !listed:
		return &nodeCapacity{present: &none, usable: &none, schedulable: &no, why: reasonRemoved}
	case out.schedulable != nil && !*out.schedulable:
		out.usable = &none
	}
	return out
}

func larger(a, b *uint16) *uint16 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// combineAll combines the sources of one node over time, from a moment on.
func combineAll(sources [][]interval[capacityFact], from int64) []interval[nodeCapacity] {
	cuts := []int64{from}
	for _, list := range sources {
		for _, iv := range list {
			if iv.from > from {
				cuts = append(cuts, iv.from)
			}
		}
	}
	slices.Sort(cuts)
	var out []interval[nodeCapacity]
	for _, t := range slices.Compact(cuts) {
		facts := make([]*capacityFact, len(sources))
		for i, list := range sources {
			facts[i] = at(list, t)
		}
		state := combine(facts)
		if state == nil {
			continue
		}
		if last := len(out) - 1; last >= 0 {
			if out[last].value.equal(*state) {
				continue
			}
			out[last].to = t
		}
		out = append(out, interval[nodeCapacity]{t, forever, *state})
	}
	return out
}

// foldNodes folds the batch's node records into what each source says, and that into the state of each node. It gives
// the spans over which what a node offers changed.
func (p *Passes) foldNodes(ctx context.Context, b batch) ([]nodeSpan, error) {
	if len(b.of(rawNodes)) == 0 {
		return nil, nil
	}
	clusters, changes, err := p.changedIn(ctx, "nodes_changed", rawNodes, b)
	if err != nil {
		return nil, fmt.Errorf("fold nodes: %w", err)
	}
	var spans []nodeSpan
	for _, cluster := range clusters {
		f := &nodesFold{p: p, cluster: cluster, told: map[string]map[string]history[capacityFact]{}}
		changed, err := f.run(ctx, changes[cluster], b)
		if err != nil {
			return nil, fmt.Errorf("fold nodes of cluster %s: %w", cluster, err)
		}
		spans = append(spans, changed...)
	}
	return spans, nil
}

// nodesFold is the work on one cluster in one batch.
type nodesFold struct {
	p       *Passes
	cluster string
	from    int64                                       // before it nothing changes
	told    map[string]map[string]history[capacityFact] // by node and source: as stored
}

func (f *nodesFold) run(ctx context.Context, changes []changed, b batch) ([]nodeSpan, error) {
	records, err := f.records(ctx, changes, b)
	if err != nil {
		return nil, err
	}
	nodes := map[string]bool{}
	for _, c := range changes {
		nodes[c.node] = true
	}
	names := slices.Sorted(maps.Keys(nodes))
	if err := f.load(ctx, names); err != nil {
		return nil, err
	}
	stored, err := f.states(ctx, names)
	if err != nil {
		return nil, err
	}
	facts := &writer{table: schema.TableNodeFacts}
	from := map[string]int64{}
	for _, c := range changes {
		old := f.told[c.node][c.view.source]
		fresh := old.refold(c.first, records[c.telling], capacityFact.equal)
		f.addFacts(facts, c, old, fresh)
		f.told[c.node][c.view.source] = fresh
		if t, _, differs := difference(old.values(), fresh.values(), capacityFact.equal); differs {
			if first, again := from[c.node]; !again || t < first {
				from[c.node] = t
			}
		}
	}
	c, err := f.p.cluster(ctx, f.cluster)
	if err != nil {
		return nil, err
	}
	offers := func(list []interval[nodeCapacity]) (out []interval[offer]) {
		for _, iv := range list {
			out = append(out, interval[offer]{iv.from, iv.to, iv.value.offer()})
		}
		return out
	}
	states := &writer{table: schema.TableNodeStates}
	var spans []nodeSpan
	for _, node := range slices.Sorted(maps.Keys(from)) {
		var sources [][]interval[capacityFact]
		for _, s := range slices.Sorted(maps.Keys(f.told[node])) {
			sources = append(sources, f.told[node][s].values())
		}
		old := after(stored[node], from[node])
		wanted := splice(old, combineAll(sources, from[node]), from[node], nodeCapacity.equal)
		if t, until, differs := difference(old, wanted, nodeCapacity.offersSame); differs {
			spans = append(spans, nodeSpan{f.cluster, node, moment(t), moment(until)})
		}
		put, drop := edits(old, wanted, nodeCapacity.equal)
		f.addStates(states, node, put, 0)
		f.addStates(states, node, drop, 1)
		c.offers[node] = edited(c.offers[node], offers(put), offers(drop))
	}
	c.settle(f.p.cfg.Settle)
	if err := f.p.write(ctx, states); err != nil {
		return nil, err
	}
	// The facts come last: as long as they are not stored, the same batch finds all of this to do again.
	return spans, f.p.write(ctx, facts)
}

// after leaves out the intervals that have ended by a moment.
func after[V any](list []interval[V], t int64) []interval[V] {
	return slices.DeleteFunc(list, func(iv interval[V]) bool { return iv.to <= t })
}

// records reads what the sources said, and sets f.from to the oldest moment they speak of.
func (f *nodesFold) records(ctx context.Context, changes []changed, b batch) (map[telling][]step[capacityFact], error) {
	out := map[telling][]step[capacityFact]{}
	f.from = forever
	q, since := recordsOf("nodes_records", rawNodes, f.cluster, changes, b)
	err := f.p.ask(ctx, q, func(rows driver.Rows) error {
		var t telling
		var s step[capacityFact]
		v := &s.value
		if err := rows.Scan(&t.node, &t.view.source, &s.at, &s.revision, &s.hash, &v.present, &v.healthy, &v.allocatable,
			&v.schedulable, &v.state, &v.why, &v.removed); err != nil {
			return err
		}
		if s.revision < since[t] {
			return nil
		}
		if v.schedulable == nil || *v.schedulable {
			v.state, v.why = "", ""
		}
		out[t] = append(out[t], s)
		f.from = min(f.from, s.at)
		return nil
	})
	return out, err
}

func (f *nodesFold) about(file string, nodes []string) question {
	return question{
		file: file, params: clickhouse.Parameters{"cluster": f.cluster, "after": millis(f.from)},
		names: []string{"node"}, wanted: namesOf(nodes),
	}
}

// load reads the stored facts of nodes from f.from on.
func (f *nodesFold) load(ctx context.Context, nodes []string) error {
	for _, n := range nodes {
		f.told[n] = map[string]history[capacityFact]{}
	}
	return f.p.ask(ctx, f.about("nodes_facts", nodes), func(rows driver.Rows) error {
		var node, source string
		var iv interval[step[capacityFact]]
		v := &iv.value.value
		if err := rows.Scan(&node, &source, &iv.from, &iv.to, &v.present, &v.healthy, &v.allocatable, &v.schedulable,
			&v.state, &v.why, &v.removed, &iv.value.revision, &iv.value.hash); err != nil {
			return err
		}
		iv.value.at = iv.from
		f.told[node][source] = append(f.told[node][source], iv)
		return nil
	})
}

// states reads the stored states of nodes from f.from on.
func (f *nodesFold) states(ctx context.Context, nodes []string) (map[string][]interval[nodeCapacity], error) {
	out := map[string][]interval[nodeCapacity]{}
	err := f.p.ask(ctx, f.about("nodes_now", nodes), func(rows driver.Rows) error {
		var node string
		var iv interval[nodeCapacity]
		v := &iv.value
		if err := rows.Scan(&node, &iv.from, &iv.to, &v.present, &v.usable, &v.schedulable, &v.state, &v.why); err != nil {
			return err
		}
		out[node] = append(out[node], iv)
		return nil
	})
	return out, err
}

func (f *nodesFold) addStates(w *writer, node string, list []interval[nodeCapacity], deleted uint8) {
	for _, iv := range list {
		s := iv.value
		w.add(f.cluster, node, moment(iv.from), moment(iv.to), s.present, s.usable, s.schedulable, s.state, s.why,
			f.p.version, deleted)
	}
}

func (f *nodesFold) addFacts(w *writer, c changed, old, fresh history[capacityFact]) {
	same := func(a, b step[capacityFact]) bool {
		return a.revision == b.revision && a.hash == b.hash && a.value.equal(b.value)
	}
	put, drop := edits(old, fresh, same)
	for i, list := range [][]interval[step[capacityFact]]{put, drop} {
		for _, iv := range list {
			v := iv.value.value
			w.add(f.cluster, c.node, c.view.source, moment(iv.from), moment(iv.to), v.present, v.healthy, v.allocatable,
				v.schedulable, v.state, v.why, v.removed, iv.value.revision, iv.value.hash, f.p.version, uint8(i))
		}
	}
}

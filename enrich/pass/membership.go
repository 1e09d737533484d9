package pass

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
)

// foldMembership folds the batch's membership records into what each source says, and that into the effective
// membership and the list of disagreements. It gives the spans over which a node's membership changed. A refresh that
// says nothing new costs one statement and writes nothing.
func (p *Passes) foldMembership(ctx context.Context, b batch) ([]nodeSpan, error) {
	if len(b.of(rawMembership)) == 0 {
		return nil, nil
	}
	clusters, changes, err := p.changedIn(ctx, "membership_changed", rawMembership, b)
	if err != nil {
		return nil, fmt.Errorf("fold membership: %w", err)
	}
	var spans []nodeSpan
	for _, cluster := range clusters {
		f := &membershipFold{p: p, cluster: cluster, told: map[string]map[view]history[fact]{}}
		changed, err := f.run(ctx, changes[cluster], b)
		if err != nil {
			return nil, fmt.Errorf("fold membership of cluster %s: %w", cluster, err)
		}
		spans = append(spans, changed...)
	}
	return spans, nil
}

// membershipFold is the work on one cluster in one batch.
type membershipFold struct {
	p       *Passes
	cluster string
	from    int64                             // before it nothing changes; forever = nothing does at all
	told    map[string]map[view]history[fact] // by node: as stored
	fresh   map[telling]history[fact]         // as it is after the batch, where that differs
}

func (f *membershipFold) run(ctx context.Context, changes []changed, b batch) ([]nodeSpan, error) {
	if err := f.refold(ctx, changes, b); err != nil {
		return nil, err
	}
	if f.from == forever {
		return nil, f.writeFacts(ctx)
	}
	if err := f.close(ctx); err != nil {
		return nil, err
	}
	views, nodes := f.views(), slices.Sorted(maps.Keys(f.told))
	facts := make([]nodeFacts, len(nodes))
	for i, node := range nodes {
		facts[i] = nodeFacts{node: node, facts: make([][]interval[fact], len(views))}
		for v, vw := range views {
			facts[i].facts[v] = f.now(node, vw).values()
		}
	}
	resolved := resolve(views, facts, f.from)
	spans, err := f.writeMembership(ctx, nodes, resolved)
	if err != nil {
		return nil, err
	}
	if err := f.writeConflicts(ctx, nodes, resolved); err != nil {
		return nil, err
	}
	// The facts come last: as long as they are not stored, the same batch finds all of this to do again.
	return spans, f.writeFacts(ctx)
}

// now is what a view says of a node after the batch.
func (f *membershipFold) now(node string, v view) history[fact] {
	if h, ok := f.fresh[telling{node, v}]; ok {
		return h
	}
	return f.told[node][v]
}

// refold reads the records behind the changes and folds them into the facts.
func (f *membershipFold) refold(ctx context.Context, changes []changed, b batch) error {
	records, oldest, err := f.records(ctx, changes, b)
	if err != nil {
		return err
	}
	touched := map[string]bool{}
	for _, c := range changes {
		touched[c.node] = true
	}
	f.from = oldest
	if err := f.load(ctx, slices.Sorted(maps.Keys(touched))); err != nil {
		return err
	}
	f.fresh, f.from = map[telling]history[fact]{}, forever
	for _, c := range changes {
		stored := f.told[c.node][c.view]
		fresh := stored.refold(c.first, records[c.telling], fact.equal)
		f.fresh[c.telling] = fresh
		if from, _, differs := difference(stored.values(), fresh.values(), fact.equal); differs {
			f.from = min(f.from, from)
		}
	}
	return nil
}

// records reads what the sources said, and the oldest moment they speak of.
func (f *membershipFold) records(ctx context.Context, changes []changed, b batch) (map[telling][]step[fact], int64, error) {
	out, oldest := map[telling][]step[fact]{}, forever
	q, since := recordsOf("membership_records", rawMembership, f.cluster, changes, b)
	err := f.p.ask(ctx, q, func(rows driver.Rows) error {
		var t telling
		var s step[fact]
		var r membershipRecord
		var uuids, states, statuses []string
		var cliques []*uint32
		if err := rows.Scan(&t.node, &t.view.source, &t.view.topology, &s.at, &s.revision, &s.hash, &r.removed, &r.levels,
			&r.values, &uuids, &cliques, &states, &statuses); err != nil {
			return err
		}
		if s.revision < since[t] {
			return nil
		}
		r.node = t.node
		if len(r.levels) != len(r.values) || len(uuids) != len(cliques) || len(uuids) != len(states) || len(uuids) != len(statuses) {
			f.p.m.dropped.WithLabelValues("membership_columns").Inc()
			return nil
		}
		for i := range uuids {
			r.gpus = append(r.gpus, gpuIdentity{uuids[i], cliques[i], states[i], statuses[i]})
		}
		s.value = r.fact()
		out[t] = append(out[t], s)
		oldest = min(oldest, s.at)
		return nil
	})
	return out, oldest, err
}

// load reads the stored facts of nodes from f.from on.
func (f *membershipFold) load(ctx context.Context, nodes []string) error {
	for _, n := range nodes {
		f.told[n] = map[view]history[fact]{}
	}
	return f.p.ask(ctx, f.about("membership_facts", nodes), func(rows driver.Rows) error {
		var node string
		var v view
		var iv interval[step[fact]]
		if err := rows.Scan(&node, &v.source, &v.topology, &iv.from, &iv.to, &iv.value.value.domain, &iv.value.value.partition,
			&iv.value.value.levels, &iv.value.value.reason, &iv.value.revision, &iv.value.hash); err != nil {
			return err
		}
		iv.value.at = iv.from
		f.told[node][v] = append(f.told[node][v], iv)
		return nil
	})
}

// about is a question about nodes of this cluster after f.from.
func (f *membershipFold) about(file string, nodes []string) question {
	return question{
		file: file, params: clickhouse.Parameters{"cluster": f.cluster, "after": millis(f.from)},
		names: []string{"node"}, wanted: namesOf(nodes),
	}
}

// close loads every node that shares a domain of some view with one that is loaded, until there are no more: what the
// domain means depends on all of them.
func (f *membershipFold) close(ctx context.Context) error {
	type domain struct {
		view view
		name string
	}
	asked := map[domain]bool{}
	for nodes := slices.Collect(maps.Keys(f.told)); len(nodes) > 0; {
		q := f.about("membership_peers", nil)
		q.names = []string{"source", "topology", "domain"}
		note := func(v view, h history[fact]) {
			for _, iv := range h {
				d := domain{v, iv.value.value.domain}
				if d.name == "" || iv.to <= f.from || asked[d] {
					continue
				}
				asked[d] = true
				q.wanted = append(q.wanted, []any{v.source, v.topology, d.name})
			}
		}
		for _, node := range nodes {
			for v, h := range f.told[node] {
				note(v, h)
			}
		}
		for t, h := range f.fresh {
			note(t.view, h)
		}
		nodes = nil
		if len(q.wanted) == 0 {
			break
		}
		err := f.p.ask(ctx, q, func(rows driver.Rows) error {
			var node string
			if err := rows.Scan(&node); err != nil {
				return err
			}
			if f.told[node] == nil {
				nodes = append(nodes, node)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(nodes) > 0 {
			if err := f.load(ctx, nodes); err != nil {
				return err
			}
		}
	}
	return nil
}

// views are all tellings of the loaded nodes in the order of belief.
func (f *membershipFold) views() []view {
	all := map[view]bool{}
	for _, byView := range f.told {
		for v := range byView {
			all[v] = true
		}
	}
	for t := range f.fresh {
		all[t.view] = true
	}
	views := slices.Collect(maps.Keys(all))
	sortViews(views, f.p.cfg.Precedence)
	return views
}

// writeMembership stores what changed of the effective membership, under a new generation if anything did.
func (f *membershipFold) writeMembership(ctx context.Context, nodes []string, resolved []nodeView) ([]nodeSpan, error) {
	stored := map[string][]interval[effective]{}
	err := f.p.ask(ctx, f.about("membership_now", nodes), func(rows driver.Rows) error {
		var node string
		var iv interval[effective]
		e := &iv.value
		if err := rows.Scan(&node, &iv.from, &iv.to, &e.domain, &e.partition, &e.levels, &e.source, &e.reason); err != nil {
			return err
		}
		stored[node] = append(stored[node], iv)
		return nil
	})
	if err != nil {
		return nil, err
	}
	generation, err := f.nextGeneration(ctx)
	if err != nil {
		return nil, err
	}
	c, err := f.p.cluster(ctx, f.cluster)
	if err != nil {
		return nil, err
	}
	homes := func(list []interval[effective]) (out []interval[home]) {
		for _, iv := range list {
			out = append(out, interval[home]{iv.from, iv.to, home{iv.value, generation}})
		}
		return out
	}
	var spans []nodeSpan
	w := &writer{table: schema.TableMembership}
	add := func(node string, iv interval[effective], deleted uint8) {
		e := iv.value
		w.add(f.cluster, node, moment(iv.from), moment(iv.to), e.domain, e.partition, e.levels, e.source, e.reason,
			generation, f.p.version, deleted)
	}
	for i, node := range nodes {
		wanted := splice(stored[node], resolved[i].effective, f.from, effective.equal)
		if from, to, differs := difference(stored[node], wanted, effective.equal); differs {
			spans = append(spans, nodeSpan{f.cluster, node, moment(from), moment(to)})
		}
		put, drop := edits(stored[node], wanted, effective.equal)
		for _, iv := range put {
			add(node, iv, 0)
		}
		for _, iv := range drop {
			add(node, iv, 1)
		}
		c.homes[node] = edited(c.homes[node], homes(put), homes(drop))
	}
	c.settle(f.p.cfg.Settle)
	return spans, f.p.write(ctx, w)
}

// nextGeneration is one more than any generation of the cluster so far.
func (f *membershipFold) nextGeneration(ctx context.Context) (uint64, error) {
	var n uint64
	q := question{file: "membership_generation", params: clickhouse.Parameters{"cluster": f.cluster}}
	err := f.p.ask(ctx, q, func(rows driver.Rows) error { return rows.Scan(&n) })
	return n + 1, err
}

// writeConflicts stores what changed of the disagreements.
func (f *membershipFold) writeConflicts(ctx context.Context, nodes []string, resolved []nodeView) error {
	same := func(a, b conflict) bool { return a == b }
	stored := map[string]map[pairOf][]interval[conflict]{}
	err := f.p.ask(ctx, f.about("membership_conflicts", nodes), func(rows driver.Rows) error {
		var node string
		var pair pairOf
		var iv interval[conflict]
		if err := rows.Scan(&node, &pair.a, &pair.b, &iv.from, &iv.to, &iv.value.domainA, &iv.value.domainB, &iv.value.detail); err != nil {
			return err
		}
		if stored[node] == nil {
			stored[node] = map[pairOf][]interval[conflict]{}
		}
		stored[node][pair] = append(stored[node][pair], iv)
		return nil
	})
	if err != nil {
		return err
	}
	w := &writer{table: schema.TableTopologyConflicts}
	add := func(node string, pair pairOf, iv interval[conflict], deleted uint8) {
		c := iv.value
		w.add(f.cluster, node, pair.a, c.domainA, pair.b, c.domainB, c.detail, moment(iv.from), moment(iv.to), f.p.version, deleted)
	}
	for i, node := range nodes {
		pairs := map[pairOf]bool{}
		for p := range stored[node] {
			pairs[p] = true
		}
		for p := range resolved[i].conflicts {
			pairs[p] = true
		}
		for pair := range pairs {
			old := stored[node][pair]
			put, drop := edits(old, splice(old, resolved[i].conflicts[pair], f.from, same), same)
			for _, iv := range put {
				add(node, pair, iv, 0)
			}
			for _, iv := range drop {
				add(node, pair, iv, 1)
			}
		}
	}
	return f.p.write(ctx, w)
}

// writeFacts stores what changed of what each source says.
func (f *membershipFold) writeFacts(ctx context.Context) error {
	same := func(a, b step[fact]) bool {
		return a.revision == b.revision && a.hash == b.hash && a.value.equal(b.value)
	}
	w := &writer{table: schema.TableMembershipFacts}
	add := func(t telling, iv interval[step[fact]], deleted uint8) {
		s := iv.value
		w.add(f.cluster, t.node, t.view.source, t.view.topology, moment(iv.from), moment(iv.to), s.value.domain,
			s.value.partition, s.value.levels, s.value.reason, s.revision, s.hash, f.p.version, deleted)
	}
	for t, fresh := range f.fresh {
		put, drop := edits(f.told[t.node][t.view], fresh, same)
		for _, iv := range put {
			add(t, iv, 0)
		}
		for _, iv := range drop {
			add(t, iv, 1)
		}
	}
	return f.p.write(ctx, w)
}

package kube

import (
	"errors"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/spillway-io/spillway/schemas/event"
)

// Sources of records. Places that node labels tell have the names that the contract has for them.
const (
	SourcePods  = "kubernetes.pods"
	SourceNodes = "kubernetes.nodes"
)

const scheduler = "kubernetes"

// model is what a server said so far, and which of it was told. It knows no transport and no clock, and it is not safe for
// use by several goroutines.
//
// propose gives the records of what changed; they count as told when the batch is committed, so that what the pipeline did
// not take is proposed again.
type model struct {
	cfg  *Config
	log  *slog.Logger
	note func(reason string, facts int)
	seed maphash.Seed

	nodes     map[string]*object            // by name
	hosts     map[string]string             // node by its label of the host name
	workloads map[string]*object            // by namespace/name
	owned     map[string]string             // Workload by the UID of what it was made for
	claims    map[string]*object            // by namespace/name
	claimants map[string]map[string]*pod    // of a claim, by UID
	slices    map[string]*object            // by name
	slicesBy  map[string]map[string]*object // of a node, by name
	domains   map[string]*object            // by UID
	parts     map[string]map[string]*object // ComputeDomainCliques of a ComputeDomain, by namespace/name
	cliques   map[string]map[string]string  // of a node, as each ComputeDomain says it
	pods      map[string]*pod               // by UID
	runs      map[string]*run
	bad       map[kind]map[string]bool // objects that are listed and cannot be read
	sizes     map[uint32]int           // nodes with so many GPUs

	regroup  bool               // which job a pod belongs to may have changed
	dirty    map[*run]bool      // to be looked at
	news     map[string]bool    // nodes to be looked at
	domainly map[string]bool    // ComputeDomains to be looked at
	told     map[string]telling // by topic and what it is of
	declared *int64             // since when the first record of a node holds; nil = since it was seen
}

// mostBytes leaves a record room for what is set when it is told.
const mostBytes = event.MaxBytes - 100

// telling is what was last told of something.
type telling struct {
	hash    uint64
	at      int64 // Unix milliseconds
	invalid bool  // it broke the contract and was left out
}

func newModel(cfg *Config, log *slog.Logger, note func(reason string, facts int)) *model {
	return &model{
		cfg: cfg, log: log, note: note, seed: maphash.MakeSeed(),
		nodes: map[string]*object{}, hosts: map[string]string{}, workloads: map[string]*object{}, owned: map[string]string{},
		claims: map[string]*object{}, claimants: map[string]map[string]*pod{},
		slices: map[string]*object{}, slicesBy: map[string]map[string]*object{},
		domains: map[string]*object{}, parts: map[string]map[string]*object{}, cliques: map[string]map[string]string{}, pods: map[string]*pod{},
		runs: map[string]*run{}, sizes: map[uint32]int{}, bad: map[kind]map[string]bool{}, dirty: map[*run]bool{}, news: map[string]bool{},
		domainly: map[string]bool{}, told: map[string]telling{},
	}
}

// size is how many objects of a kind are kept.
func (m *model) size(k kind) int {
	switch k {
	case kindNodes:
		return len(m.nodes)
	case kindPods:
		n := 0
		for _, p := range m.pods {
			if !p.gone {
				n++
			}
		}
		return n
	case kindWorkloads:
		return len(m.workloads)
	case kindClaims:
		return len(m.claims)
	case kindSlices:
		return len(m.slices)
	case kindCliques:
		n := 0
		for _, parts := range m.parts {
			n += len(parts)
		}
		return n
	}
	return len(m.domains)
}

// put takes an object that was added or has changed.
func (m *model) put(k kind, o *object, at time.Time) {
	if o.bad != nil { // what was known of it stays
		m.note("unreadable", 1)
		m.log.Warn("an object cannot be read and is left out", "error", o.bad)
		if m.bad[k] == nil {
			m.bad[k] = map[string]bool{}
		}
		m.bad[k][o.key()] = true
		return
	}
	delete(m.bad[k], o.key())
	switch k {
	case kindNodes:
		m.putNode(o)
	case kindPods:
		m.putPod(o, at)
	case kindWorkloads:
		m.putWorkload(o)
	case kindClaims:
		m.claims[o.key()] = o
		m.claimChanged(o.key())
	case kindSlices:
		m.removeSlice(o.Name)
		m.slices[o.Name] = o
		if m.slicesBy[o.slice.node] == nil {
			m.slicesBy[o.slice.node] = map[string]*object{}
		}
		m.slicesBy[o.slice.node][o.Name] = o
		m.news[o.slice.node] = true
	case kindDomains:
		m.removeDomain(o.UID)
		m.putDomain(o)
	case kindCliques:
		m.removeClique(o)
		m.putClique(o)
	}
}

func (m *model) removeSlice(name string) {
	s := m.slices[name]
	if s == nil {
		return
	}
	node := s.slice.node
	delete(m.slices, name)
	if delete(m.slicesBy[node], name); len(m.slicesBy[node]) == 0 {
		delete(m.slicesBy, node)
	}
	m.news[node] = true
}

// remove takes an object away. last is when it was there last, where that is not the moment before.
func (m *model) remove(k kind, o *object, last, at time.Time) {
	delete(m.bad[k], o.key())
	switch k {
	case kindNodes:
		m.removeNode(o.Name)
	case kindPods:
		m.removePod(o, last, at)
	case kindWorkloads:
		m.removeWorkload(o)
	case kindClaims:
		delete(m.claims, o.key()) // a claim goes when its pod has ended; what the pod held is kept with it
	case kindSlices:
		m.removeSlice(o.Name)
	case kindDomains:
		m.removeDomain(o.UID)
	case kindCliques:
		m.removeClique(o)
	}
}

// replace takes a full list of a kind: what is not in it is gone since last.
func (m *model) replace(k kind, list []*object, last, at time.Time) {
	listed := make(map[string]bool, len(list))
	for _, o := range list {
		listed[m.id(k, o)] = true
	}
	for _, gone := range m.known(k) {
		if !listed[m.id(k, gone)] {
			m.remove(k, gone, last, at)
		}
	}
	delete(m.bad, k)
	for _, o := range list {
		m.put(k, o, at)
	}
}

// id is what tells objects of one kind apart: pods and ComputeDomains of one name may follow each other.
func (m *model) id(k kind, o *object) string {
	if k == kindPods || k == kindDomains {
		return o.UID
	}
	return o.key()
}

// known are the objects of a kind that were there last.
func (m *model) known(k kind) []*object {
	var out []*object
	switch k {
	case kindNodes:
		out = slices.AppendSeq(out, maps.Values(m.nodes))
	case kindPods:
		for _, p := range m.pods {
			if !p.gone {
				out = append(out, p.object)
			}
		}
	case kindWorkloads:
		out = slices.AppendSeq(out, maps.Values(m.workloads))
	case kindClaims:
		out = slices.AppendSeq(out, maps.Values(m.claims))
	case kindSlices:
		out = slices.AppendSeq(out, maps.Values(m.slices))
	case kindDomains:
		out = slices.AppendSeq(out, maps.Values(m.domains))
	case kindCliques:
		for _, parts := range m.parts {
			out = slices.AppendSeq(out, maps.Values(parts))
		}
	}
	return out
}

func (m *model) putWorkload(o *object) {
	key := o.key()
	if old := m.workloads[key]; old == nil || old.UID != o.UID {
		m.regroup = true
		if old != nil {
			m.removeWorkload(old)
		}
	}
	m.workloads[key] = o
	for _, w := range o.Owners {
		m.owned[w.UID] = key
	}
	r := m.runOf(workloadKey(key))
	r.workload, r.deleted = o, false
	m.dirty[r] = true
}

func (m *model) removeWorkload(o *object) {
	key := o.key()
	w := m.workloads[key]
	if w == nil {
		return
	}
	delete(m.workloads, key)
	for _, owner := range w.Owners {
		if m.owned[owner.UID] == key {
			delete(m.owned, owner.UID)
		}
	}
	if r := m.runs[workloadKey(key)]; r != nil { // it keeps what its Workload said last until it has ended
		r.deleted = true
		m.dirty[r] = true
	}
}

func workloadKey(name string) string { return "workload " + name }

// runOf gives the run of a key, and makes one where there is none.
func (m *model) runOf(key string) *run {
	r := m.runs[key]
	if r == nil {
		r = &run{key: key, pods: map[string]*pod{}}
		m.runs[key] = r
	}
	return r
}

// batch is what is proposed at one moment.
type batch struct {
	m        *model
	at       time.Time
	records  []event.Record
	tellings map[string]telling
	commits  []func()

	// What was looked at, to be looked at again when the batch is not taken.
	news, domains map[string]bool
	dirty         map[*run]bool
	again         bool // the run that is looked at changes by the passing of time
}

// propose gives what has changed, or is to be told again, at a moment. Nothing of it counts as told before commit.
func (m *model) propose(at time.Time) *batch {
	if m.regroup {
		m.regroupPods()
	}
	b := &batch{m: m, at: at, tellings: map[string]telling{}, news: m.news, domains: m.domainly, dirty: m.dirty}
	m.news, m.domainly, m.dirty = map[string]bool{}, map[string]bool{}, map[*run]bool{}
	for _, name := range slices.Sorted(maps.Keys(b.news)) {
		m.tellNode(b, name)
	}
	for _, uid := range slices.Sorted(maps.Keys(b.domains)) {
		m.tellDomain(b, uid)
	}
	for _, r := range slices.SortedFunc(maps.Keys(b.dirty), func(a, b *run) int { return strings.Compare(a.key, b.key) }) {
		b.again = false
		m.tellRun(b, r)
		if b.again {
			m.dirty[r] = true
		}
	}
	return b
}

// withdraw makes all of a batch that was not taken be proposed again.
func (b *batch) withdraw() {
	maps.Copy(b.m.news, b.news)
	maps.Copy(b.m.domainly, b.domains)
	maps.Copy(b.m.dirty, b.dirty)
}

// tell proposes a record under a name, unless it is what was told of that name last and not yet to be told again.
func (b *batch) tell(name string, r event.Record) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		b.m.leftOut(r, err)
		return
	}
	if p, ok := r.(*event.Placement); ok && len(raw) > mostBytes { // thousands of pods: where they are counts more than their names
		b.m.note("pods_left_out", 1)
		for _, n := range p.Placements {
			n.Pods = nil
		}
	}
	now := telling{hash: maphash.Bytes(b.m.seed, raw), at: b.at.UnixMilli()}
	old, had := b.m.told[name]
	if had && old.hash == now.hash && (b.m.cfg.Refresh <= 0 || now.at-old.at < b.m.cfg.Refresh.Milliseconds()) {
		return
	}
	stamp(r, b.at)
	if err := r.Validate(); err != nil {
		if !had || old.hash != now.hash {
			b.m.leftOut(r, err)
		}
		now.invalid = true
	} else {
		b.records = append(b.records, r)
	}
	b.tellings[name] = now
}

// end proposes the last record under a name.
func (b *batch) end(name string, r event.Record) {
	if _, told := b.m.told[name]; !told {
		return
	}
	stamp(r, b.at)
	b.records = append(b.records, r)
	b.commits = append(b.commits, func() { delete(b.m.told, name) })
}

func (m *model) leftOut(r event.Record, err error) {
	m.note("invalid", 1)
	m.log.Debug("left a record out", "key", r.RecordKey(), "error", err)
}

func stamp(r event.Record, at time.Time) {
	switch r := r.(type) {
	case *event.Placement:
		r.ObservedAtMs, r.Revision = at.UnixMilli(), event.Revision(at)
	case *event.Node:
		r.ObservedAtMs, r.Revision = at.UnixMilli(), event.Revision(at)
	case *event.Membership:
		r.ObservedAtMs, r.Revision = at.UnixMilli(), event.Revision(at)
	case *event.Domain:
		r.ObservedAtMs, r.Revision = at.UnixMilli(), event.Revision(at)
	}
}

// commit makes what was proposed the truth.
func (b *batch) commit() {
	maps.Copy(b.m.told, b.tellings)
	for _, f := range b.commits {
		f()
	}
}

// wholly says whether all that the server lists of some kinds could be read, and no record of a name that begins so broke
// the contract.
func (m *model) wholly(name string, kinds ...kind) error {
	for _, k := range kinds {
		if len(m.bad[k]) > 0 {
			return errors.New("some of " + string(k) + " could not be read")
		}
	}
	for of, t := range m.told {
		if t.invalid && strings.HasPrefix(of, name) {
			return errors.New(of + " broke the contract")
		}
	}
	return nil
}

// again marks all that is known as to be looked at, so that what is old enough is told again.
func (m *model) again() {
	for name := range m.nodes {
		m.news[name] = true
	}
	for uid := range m.domains {
		m.domainly[uid] = true
	}
	for _, r := range m.runs {
		m.dirty[r] = true
	}
}

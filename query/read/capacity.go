package read

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// Domain is the capacity of one NVLink domain at a moment.
type Domain struct {
	Cluster     string            `json:"cluster"`
	Domain      string            `json:"domain"`
	Label       *string           `json:"label" doc:"Rack or block it is known by; null when its id is all there is."`
	Since       time.Time         `json:"since" doc:"Minute of the last change."`
	Nodes       uint16            `json:"nodes"`
	NodesUsable uint16            `json:"nodes_usable"`
	NodesFree   uint16            `json:"nodes_free" doc:"Usable and wholly free."`
	GPUs        uint32            `json:"gpus"`
	GPUsUsable  uint32            `json:"gpus_usable"`
	GPUsHeld    uint32            `json:"gpus_held" doc:"By real jobs."`
	GPUsProbe   uint32            `json:"gpus_probe" doc:"By probe jobs, which any real job may evict."`
	GPUsFree    uint32            `json:"gpus_free" doc:"Usable and not held by real jobs."`
	Slots       map[uint16]uint32 `json:"slots" doc:"How many slots of each size in GPUs fit now."`
	Basis       string            `json:"gpus_basis" enum:"exact,assumed,unknown"`
}

// Domains is a list of domains, with the age of its facts.
type Domains struct {
	At        time.Time `json:"at"`
	Domains   []Domain  `json:"domains"`
	Freshness Freshness `json:"freshness"`
}

type capacityRow struct {
	Cluster     string    `ch:"cluster"`
	Domain      string    `ch:"domain"`
	Minute      time.Time `ch:"minute"`
	Nodes       uint16    `ch:"nodes"`
	NodesUsable uint16    `ch:"nodes_usable"`
	NodesFree   uint16    `ch:"nodes_free"`
	GPUs        uint32    `ch:"gpus"`
	GPUsUsable  uint32    `ch:"gpus_usable"`
	GPUsHeld    uint32    `ch:"gpus_held"`
	GPUsProbe   uint32    `ch:"gpus_probe"`
	GPUsFree    uint32    `ch:"gpus_free"`
	SlotSizes   []uint16  `ch:"slot_sizes"`
	Slots       []uint32  `ch:"slots"`
	NodeEnds    []uint32  `ch:"node_ends"` // of a history only
	Basis       string    `ch:"gpus_basis"`
	Version     uint64    `ch:"version"`
	IsDeleted   uint8     `ch:"is_deleted"`
}

func (c capacityRow) domain(names *labels) Domain {
	slots := make(map[uint16]uint32, len(c.Slots))
	for i, size := range c.SlotSizes {
		if i < len(c.Slots) {
			slots[size] = c.Slots[i]
		}
	}
	return Domain{
		Cluster: c.Cluster, Domain: c.Domain, Label: names.label(c.Cluster, c.Domain), Since: c.Minute, Nodes: c.Nodes, NodesUsable: c.NodesUsable,
		NodesFree: c.NodesFree, GPUs: c.GPUs, GPUsUsable: c.GPUsUsable, GPUsHeld: c.GPUsHeld, GPUsProbe: c.GPUsProbe,
		GPUsFree: c.GPUsFree, Slots: slots, Basis: c.Basis,
	}
}

// capacityFollower keeps the newest row of every domain in memory, so that a question a scheduler asks many times a
// second costs ClickHouse one small query per followEvery and not one a call.
type capacityFollower struct {
	mu sync.Mutex
	followed
	behind atomic.Bool // a refresh is on its way
}

// followed is the copy.
type followed struct {
	loaded  bool
	asked   time.Time
	version uint64
	newest  map[[2]string]capacityRow
	gone    withdrawals
	told    reports
}

// withdrawals tells withdrawn rows that were seen before from new ones: the rows of the last version are read every time.
type withdrawals struct {
	version uint64
	rows    int
}

// copy gives a copy that may be changed while callers read the old one.
func (f *capacityFollower) copy() *capacityFollower {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &capacityFollower{followed: f.followed}
	c.newest = maps.Clone(f.newest)
	return c
}

// The follower's copy is brought up to date when it is older than followEvery, behind the caller's back: a scheduler's
// budget is a few milliseconds. Only one older than followAtMost makes its caller wait.
const (
	followEvery  = 250 * time.Millisecond
	followAtMost = 2 * time.Second
)

// behind brings the copy up to date without a caller waiting; one at a time.
func (r *Reader) behind(ctx context.Context) {
	f := r.capa
	if !f.behind.CompareAndSwap(false, true) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), followAtMost)
	go func() {
		defer f.behind.Store(false)
		defer cancel()
		fresh := f.copy()
		if fresh.refresh(ctx, r) != nil {
			return // the copy grows older, and then a caller waits and gets the error
		}
		fresh.asked = r.now()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.followed = fresh.followed
	}()
}

// follow brings the copy up to date and gives the domains of one cluster (empty = all) in name order, with the
// reports of the same moment.
func (r *Reader) follow(ctx context.Context, cluster string) ([]Domain, reports, error) {
	f := r.capa
	f.mu.Lock()
	defer f.mu.Unlock()
	switch age := r.now().Sub(f.asked); {
	case !f.loaded || age >= followAtMost:
		if err := f.refresh(ctx, r); err != nil {
			return nil, reports{}, err
		}
		f.asked = r.now()
	case age >= followEvery:
		r.behind(ctx)
	}
	names, err := r.freshLabels(ctx)
	if err != nil {
		return nil, reports{}, err
	}
	out := make([]Domain, 0, len(f.newest))
	for key, row := range f.newest {
		// A domain without nodes is one that has been taken down.
		if row.Nodes > 0 && event.Covers(cluster, key[0]) {
			out = append(out, row.domain(names))
		}
	}
	slices.SortFunc(out, func(a, b Domain) int {
		return strings.Compare(a.Cluster+"/"+a.Domain, b.Cluster+"/"+b.Domain)
	})
	return out, f.told, nil
}

func (f *capacityFollower) refresh(ctx context.Context, r *Reader) error {
	file, p := "capacity_since", params{}.uint("version", f.version)
	if !f.loaded {
		file, p = "domains_at", params{"cluster": "", "probe_cluster": "", "domain": ""}.time("at", r.now()) // of all, follow picks
		f.newest = map[[2]string]capacityRow{}
	}
	got, err := rows[capacityRow](ctx, r, file, p)
	if err != nil {
		return err
	}
	type minute struct {
		cluster, domain string
		at              int64
	}
	var gone withdrawals
	withdrawn := map[minute]uint64{} // in which version
	for _, row := range got {
		if row.IsDeleted != 0 {
			gone = withdrawals{max(gone.version, row.Version), gone.rows + 1}
			at := minute{row.Cluster, row.Domain, row.Minute.Unix()}
			withdrawn[at] = max(withdrawn[at], row.Version)
		}
	}
	if f.loaded && gone.rows > 0 && gone != f.gone {
		// A row withdrawn may be the one held here: read everything again.
		f.gone, f.loaded = gone, false
		return f.refresh(ctx, r)
	}
	for _, row := range got {
		if row.IsDeleted != 0 || row.Version < withdrawn[minute{row.Cluster, row.Domain, row.Minute.Unix()}] {
			continue
		}
		key := [2]string{row.Cluster, row.Domain}
		if old, ok := f.newest[key]; !ok || !row.Minute.Before(old.Minute) {
			f.newest[key] = row
		}
		f.version = max(f.version, row.Version)
	}
	f.told, err = r.reports(ctx)
	f.loaded = err == nil
	return err
}

// Slots is how many slots of one size every domain has now.
type Slots struct {
	GPUs      uint32       `json:"gpus" doc:"Slot size asked for."`
	Total     uint32       `json:"total" doc:"Slots over all domains listed."`
	Domains   []DomainSlot `json:"domains" doc:"Most slots first; domains without one are listed too."`
	Basis     string       `json:"basis" doc:"What the count looked at."`
	Freshness Freshness    `json:"freshness"`
}

// DomainSlot is one domain's part of Slots.
type DomainSlot struct {
	Cluster  string  `json:"cluster"`
	Domain   string  `json:"domain"`
	Label    *string `json:"label"`
	Model    *string `json:"gpu_model" doc:"Null when not known: nobody tells, its nodes disagree, or the advisor's picture is not fresh."`
	Slots    uint32  `json:"slots"`
	GPUsFree uint32  `json:"gpus_free"`
	Probe    uint32  `json:"gpus_probe" doc:"Of gpus_free: held by probe jobs, which any real job may evict."`
	Stranded uint32  `json:"gpus_stranded" doc:"Free, but in no slot of this size."`
	Usable   uint32  `json:"gpus_usable"`
}

// SlotBasis is said with every count, since other resources may still keep a job out.
const SlotBasis = "GPUs only: usable, not held by a real job; above one node's GPUs only wholly free nodes count"

// Slots counts slots of n GPUs in each domain of a cluster (empty = all) from the copy in memory. A size below one node's
// GPUs that capacity was not counted for is an error wrapping ErrNotFound that lists the sizes there are, and so is a
// cluster that nobody has told of: it has no slots that could be counted, not none.
func (r *Reader) Slots(ctx context.Context, cluster string, n uint32) (*Slots, error) {
	domains, told, err := r.follow(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if cluster != "" && len(domains) == 0 && !slices.ContainsFunc(told.sources, func(s Source) bool { return s.Cluster == cluster }) {
		return nil, fmt.Errorf("cluster %s: %w: `spillway domains` lists those there are", cluster, ErrNotFound)
	}
	out := &Slots{GPUs: n, Domains: make([]DomainSlot, 0, len(domains)), Basis: SlotBasis, Freshness: told.freshness(cluster, r.now())}
	for _, d := range domains {
		count, err := d.slots(n)
		if err != nil {
			return nil, err
		}
		out.Total += count
		out.Domains = append(out.Domains, DomainSlot{
			Cluster: d.Cluster, Domain: d.Domain, Label: d.Label, Slots: count, GPUsFree: d.GPUsFree, Usable: d.GPUsUsable,
			Probe:    min(d.GPUsProbe, d.GPUsFree),
			Stranded: d.GPUsFree - min(d.GPUsFree, count*n),
		})
	}
	slices.SortStableFunc(out.Domains, func(a, b DomainSlot) int { return int(b.Slots) - int(a.Slots) })
	return out, nil
}

// slots counts slots of n GPUs: as counted when the row was written, or from wholly free nodes for another size. The rule
// stands in other places too; internal/testenv/slot_rule.csv tests them all.
func (d Domain) slots(n uint32) (uint32, error) {
	if count, ok := d.Slots[uint16(n)]; ok && n <= 0xffff {
		return count, nil
	}
	if d.Nodes == 0 || d.GPUs == 0 {
		return 0, nil
	}
	// To the nearest: a node that lost a GPU must not make all nodes of the domain smaller.
	perNode := max(1, (2*d.GPUs+uint32(d.Nodes))/(2*uint32(d.Nodes)))
	if n <= perNode {
		return 0, notCounted(n, slices.Collect(maps.Keys(d.Slots)), perNode)
	}
	return uint32(d.NodesFree) / ((n + perNode - 1) / perNode), nil
}

// notCounted refuses a size that only counting each node could answer.
func notCounted(n uint32, sizes []uint16, perNode uint32) error {
	slices.Sort(sizes)
	return fmt.Errorf("slots of %d GPUs: %w: capacity is counted for %v GPUs and any size above one node's %d; "+
		"add the size to enrich.slot_sizes", n, ErrNotFound, sizes, perNode)
}

// SlotsOf is how many slots of n GPUs the domain has; false when they were not counted for that size.
func (d Domain) SlotsOf(n uint32) (uint32, bool) {
	count, err := d.slots(n)
	return count, err == nil
}

// DomainsNow lists every domain of a cluster (empty = all) from the copy in memory.
func (r *Reader) DomainsNow(ctx context.Context, cluster string) (*Domains, error) {
	domains, told, err := r.follow(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return &Domains{At: r.now(), Domains: domains, Freshness: told.freshness(cluster, r.now())}, nil
}

// DomainsAt lists every domain of a cluster (empty = all) as it stood at a moment.
func (r *Reader) DomainsAt(ctx context.Context, cluster string, at time.Time) (*Domains, error) {
	got, err := rows[capacityRow](ctx, r, "domains_at", params{"cluster": cluster, "domain": ""}.time("at", at))
	if err != nil {
		return nil, err
	}
	names, err := r.freshLabels(ctx)
	if err != nil {
		return nil, err
	}
	out := &Domains{At: at, Domains: make([]Domain, len(got))}
	for i, row := range got {
		out.Domains[i] = row.domain(names)
	}
	out.Freshness, err = r.freshness(ctx, cluster)
	return out, err
}

// Name is what a person calls the domain.
func (d Domain) Name() string { return nameOf(d.Domain, d.Label) }

// Name is what a person calls the domain.
func (d DomainSlot) Name() string { return nameOf(d.Domain, d.Label) }

package read

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// Map is every domain, node and holder at a moment, column by column: a picture of 100,000 GPUs in one answer.
type Map struct {
	At        time.Time  `json:"at"`
	Domains   MapDomains `json:"domains" doc:"One entry a domain; nodes whose domain is not known come last, under an empty id."`
	Nodes     MapNodes   `json:"nodes" doc:"One entry a node, in the order of the domains."`
	States    []string   `json:"states" doc:"What the scheduler says of nodes; nodes.state points here."`
	Jobs      []MapJob   `json:"jobs" doc:"Attempts that hold nodes."`
	Held      MapHeld    `json:"held" doc:"One entry a node that a job holds."`
	Freshness Freshness  `json:"freshness"`
}

// MapDomains are columns over domains. FirstNode has one entry more than there are domains.
type MapDomains struct {
	Cluster   []string  `json:"cluster"`
	Domain    []string  `json:"domain" doc:"Empty = the domain of these nodes is not known."`
	Label     []*string `json:"label"`
	FirstNode []int     `json:"first_node" doc:"Nodes of domain i are first_node[i] up to first_node[i+1]."`
}

// MapNodes are columns over nodes. Nulls are unknown.
type MapNodes struct {
	Name    []string  `json:"name"`
	Present []*uint16 `json:"gpus_present"`
	Usable  []*uint16 `json:"gpus_usable"`
	State   []int     `json:"state"`
}

// MapHeld are columns over (node, job) pairs.
type MapHeld struct {
	Node []int     `json:"node"`
	Job  []int     `json:"job"`
	GPUs []*uint16 `json:"gpus" doc:"null = how many is not known"`
}

// MapJob is one attempt that holds nodes.
type MapJob struct {
	Cluster      string     `json:"cluster"`
	JobID        string     `json:"job_id"`
	Attempt      uint32     `json:"attempt"`
	Name         string     `json:"name"`
	User         string     `json:"user"`
	Account      string     `json:"account"`
	Queue        string     `json:"queue"`
	ServiceClass string     `json:"service_class"`
	Probe        bool       `json:"probe"`
	State        string     `json:"state"`
	From         time.Time  `json:"from"`
	ExpectedEnd  *time.Time `json:"expected_end"`
	GPUs         *uint32    `json:"gpus"`
	Outcome      *string    `json:"outcome" doc:"null = not judged (yet), or no GPU of it is known"`
	Cause        *string    `json:"cause"`
	DomainsUsed  *uint32    `json:"domains_used"`
	DomainsMin   *uint32    `json:"domains_min"`
}

// mapMemory is the newest map of each cluster: many people look at the same one.
type mapMemory struct {
	mu    sync.Mutex
	byKey map[string]*Map
}

// mapEvery bounds how old a map of now may be.
const mapEvery = 2 * time.Second

// MapNow gives the map of a cluster (empty = all) as it is, at most mapEvery old.
func (r *Reader) MapNow(ctx context.Context, cluster string) (*Map, error) {
	m := r.maps
	m.mu.Lock() // callers wait for the one that asks, and take its answer
	defer m.mu.Unlock()
	if newest := m.byKey[cluster]; newest != nil && r.now().Sub(newest.At) < mapEvery {
		return newest, nil
	}
	fresh, err := r.MapAt(ctx, cluster, r.now())
	if err != nil {
		return nil, err
	}
	if len(fresh.Nodes.Name) > 0 { // a name nobody has is not worth remembering
		m.byKey[cluster] = fresh
	}
	return fresh, nil
}

type mapNodeRow struct {
	Cluster string  `ch:"cluster"`
	Node    string  `ch:"node"`
	Domain  string  `ch:"domain"`
	Present *uint16 `ch:"gpus_present"`
	Usable  *uint16 `ch:"gpus_usable"`
	State   string  `ch:"state"`
}

type mapHeldRow struct {
	Cluster      string     `ch:"cluster"`
	JobID        string     `ch:"job_id"`
	Number       uint32     `ch:"number"`
	Name         string     `ch:"name"`
	User         string     `ch:"user"`
	Account      string     `ch:"account"`
	Queue        string     `ch:"queue"`
	ServiceClass string     `ch:"service_class"`
	Probe        bool       `ch:"probe"`
	State        string     `ch:"state"`
	ValidFrom    time.Time  `ch:"valid_from"`
	ExpectedEnd  *time.Time `ch:"expected_end"`
	GPUs         *uint32    `ch:"gpus"`
	Nodes        []string   `ch:"nodes"`
	NodeGPUs     []*uint16  `ch:"node_gpus"`
	Outcome      *string    `ch:"outcome"`
	Cause        *string    `ch:"cause"`
	DomainsUsed  *uint32    `ch:"domains_used"`
	DomainsMin   *uint32    `ch:"domains_min"`
}

// MapAt gives the map of a cluster (empty = all) as it stood at a moment.
func (r *Reader) MapAt(ctx context.Context, cluster string, at time.Time) (*Map, error) {
	p := params{"cluster": cluster}.time("at", at)
	// Both are asked at once: each takes about half of the time there is.
	var nodes []mapNodeRow
	var nodesErr error
	var asking sync.WaitGroup
	asking.Go(func() { nodes, nodesErr = rows[mapNodeRow](ctx, r, "map_nodes_at", p) })
	held, err := rows[mapHeldRow](ctx, r, "map_held_at", p)
	asking.Wait()
	if err := cmp.Or(nodesErr, err); err != nil {
		return nil, err
	}
	names, err := r.freshLabels(ctx)
	if err != nil {
		return nil, err
	}
	out := &Map{At: at, States: []string{}, Jobs: make([]MapJob, 0, len(held))}
	index := out.place(nodes, names)
	out.hold(held, index)
	out.Freshness, err = r.freshness(ctx, cluster)
	return out, err
}

// place fills the columns of domains and nodes, in the order people count racks in, and gives each node's place.
func (m *Map) place(nodes []mapNodeRow, names *labels) map[[2]string]int {
	type member struct {
		mapNodeRow
		order string // by which nodes are ordered in their rack
	}
	type rack struct {
		cluster, domain string
		label           *string
		order           string // by which racks are ordered
		members         []member
	}
	byKey := map[[2]string]*rack{}
	racks := []*rack{}
	for _, n := range nodes {
		in := byKey[[2]string{n.Cluster, n.Domain}]
		if in == nil {
			in = &rack{cluster: n.Cluster, domain: n.Domain, label: names.label(n.Cluster, n.Domain)}
			in.order = countable(nameOf(n.Domain, in.label))
			byKey[[2]string{n.Cluster, n.Domain}] = in
			racks = append(racks, in)
		}
		in.members = append(in.members, member{n, countable(n.Node)})
	}
	slices.SortFunc(racks, func(a, b *rack) int {
		unknown := func(r *rack) int {
			if r.domain == "" {
				return 1
			}
			return 0
		}
		return cmp.Or(strings.Compare(a.cluster, b.cluster), unknown(a)-unknown(b), strings.Compare(a.order, b.order), strings.Compare(a.domain, b.domain))
	})
	m.Domains = MapDomains{Cluster: []string{}, Domain: []string{}, Label: []*string{}, FirstNode: []int{}}
	m.Nodes = MapNodes{
		Name: make([]string, 0, len(nodes)), Present: make([]*uint16, 0, len(nodes)), Usable: make([]*uint16, 0, len(nodes)),
		State: make([]int, 0, len(nodes)),
	}
	index := make(map[[2]string]int, len(nodes))
	states := map[string]int{}
	for _, in := range racks {
		m.Domains.Cluster, m.Domains.Domain = append(m.Domains.Cluster, in.cluster), append(m.Domains.Domain, in.domain)
		m.Domains.Label, m.Domains.FirstNode = append(m.Domains.Label, in.label), append(m.Domains.FirstNode, len(m.Nodes.Name))
		slices.SortFunc(in.members, func(a, b member) int { return strings.Compare(a.order, b.order) })
		for _, n := range in.members {
			state, ok := states[n.State]
			if !ok {
				state = len(m.States)
				states[n.State] = state
				m.States = append(m.States, n.State)
			}
			index[[2]string{n.Cluster, n.Node}] = len(m.Nodes.Name)
			m.Nodes.Name, m.Nodes.State = append(m.Nodes.Name, n.Node), append(m.Nodes.State, state)
			m.Nodes.Present, m.Nodes.Usable = append(m.Nodes.Present, n.Present), append(m.Nodes.Usable, n.Usable)
		}
	}
	m.Domains.FirstNode = append(m.Domains.FirstNode, len(nodes))
	return index
}

// hold fills who holds what. A node that nothing else tells of has no place on the map and is left out there; the job
// still counts it in its own figures.
func (m *Map) hold(held []mapHeldRow, index map[[2]string]int) {
	m.Held = MapHeld{Node: []int{}, Job: []int{}, GPUs: []*uint16{}}
	for _, h := range held {
		job := MapJob{
			Cluster: h.Cluster, JobID: h.JobID, Attempt: h.Number, Name: h.Name, User: h.User, Account: h.Account,
			Queue: h.Queue, ServiceClass: h.ServiceClass, Probe: h.Probe, State: h.State, From: h.ValidFrom,
			ExpectedEnd: h.ExpectedEnd, GPUs: h.GPUs, Outcome: h.Outcome, DomainsUsed: h.DomainsUsed, DomainsMin: h.DomainsMin,
		}
		if h.Cause != nil {
			job.Cause = text(*h.Cause)
		}
		m.Jobs = append(m.Jobs, job)
		for i, node := range h.Nodes {
			at, ok := index[[2]string{h.Cluster, node}]
			if !ok {
				continue
			}
			var gpus *uint16
			if i < len(h.NodeGPUs) {
				gpus = h.NodeGPUs[i]
			}
			m.Held.Node, m.Held.Job, m.Held.GPUs = append(m.Held.Node, at), append(m.Held.Job, len(m.Jobs)-1), append(m.Held.GPUs, gpus)
		}
	}
}

// countable pads runs of digits, so that names compare as people count: rack2 before rack10.
func countable(name string) string {
	const width = 12
	var b strings.Builder
	b.Grow(len(name) + 2*width)
	for i := 0; i < len(name); {
		n := 0
		for i+n < len(name) && name[i+n] >= '0' && name[i+n] <= '9' {
			n++
		}
		if n == 0 {
			b.WriteByte(name[i])
			i++
			continue
		}
		if n < width {
			b.WriteString("000000000000"[:width-n])
		}
		b.WriteString(name[i : i+n])
		i += n
	}
	return b.String()
}

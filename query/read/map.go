package read

import (
	"cmp"
	"context"
	"slices"
	"strconv"
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

// mapDomainRow is one domain; its lists have an entry a node, see listed.
type mapDomainRow struct {
	Cluster string `ch:"cluster"`
	Domain  string `ch:"domain"`
	Nodes   string `ch:"nodes"`
	Present string `ch:"gpus_present"`
	Usable  string `ch:"gpus_usable"`
	States  string `ch:"states"`
}

// listed takes a list apart that the statements send as one text.
func listed(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\x1F")
}

// smallNumbers are what most entries of such a list are; sharing them spares a hundred thousand allocations.
var smallNumbers = func() (out [64]uint16) {
	for i := range out {
		out[i] = uint16(i)
	}
	return out
}()

// numberAt reads an entry of a list; nil = empty or not there, which is unknown.
func numberAt(list []string, i int) *uint16 {
	if i >= len(list) {
		return nil
	}
	n, err := strconv.ParseUint(list[i], 10, 16)
	if err != nil {
		return nil
	}
	if n < uint64(len(smallNumbers)) {
		return &smallNumbers[n]
	}
	big := uint16(n)
	return &big
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
	Nodes        string     `ch:"nodes"`
	NodeGPUs     string     `ch:"node_gpus"`
	Outcome      *string    `ch:"outcome"`
	Cause        *string    `ch:"cause"`
	DomainsUsed  *uint32    `ch:"domains_used"`
	DomainsMin   *uint32    `ch:"domains_min"`
}

// MapAt gives the map of a cluster (empty = all) as it stood at a moment.
func (r *Reader) MapAt(ctx context.Context, cluster string, at time.Time) (*Map, error) {
	p := params{"cluster": cluster}.time("at", at)
	// Both are asked at once: each takes about half of the time there is.
	var domains []mapDomainRow
	var domainsErr error
	var asking sync.WaitGroup
	asking.Go(func() { domains, domainsErr = rows[mapDomainRow](ctx, r, "map_nodes_at", p) })
	held, err := rows[mapHeldRow](ctx, r, "map_held_at", p)
	asking.Wait()
	if err := cmp.Or(domainsErr, err); err != nil {
		return nil, err
	}
	names, err := r.freshLabels(ctx)
	if err != nil {
		return nil, err
	}
	out := &Map{At: at, States: []string{}, Jobs: make([]MapJob, 0, len(held))}
	index := out.place(domains, names)
	out.hold(held, index)
	out.Freshness, err = r.freshness(ctx, cluster)
	return out, err
}

// place fills the columns of domains and nodes, in the order people count racks in, and gives each node's place.
func (m *Map) place(domains []mapDomainRow, names *labels) map[[2]string]int {
	type rack struct {
		mapDomainRow
		label *string
		name  string
	}
	racks, count := make([]rack, len(domains)), 0
	for i, d := range domains {
		label := names.label(d.Cluster, d.Domain)
		racks[i] = rack{d, label, nameOf(d.Domain, label)}
		count += strings.Count(d.Nodes, "\x1F") + 1
	}
	slices.SortFunc(racks, func(a, b rack) int {
		unknown := func(r rack) int {
			if r.Domain == "" {
				return 1
			}
			return 0
		}
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), unknown(a)-unknown(b), compareCounting(a.name, b.name), strings.Compare(a.Domain, b.Domain))
	})
	m.Domains = MapDomains{Cluster: []string{}, Domain: []string{}, Label: []*string{}, FirstNode: []int{}}
	m.Nodes = MapNodes{Name: make([]string, 0, count), Present: make([]*uint16, 0, count), Usable: make([]*uint16, 0, count), State: make([]int, 0, count)}
	index := make(map[[2]string]int, count)
	states := map[string]int{}
	for _, in := range racks {
		m.Domains.Cluster, m.Domains.Domain = append(m.Domains.Cluster, in.Cluster), append(m.Domains.Domain, in.Domain)
		m.Domains.Label, m.Domains.FirstNode = append(m.Domains.Label, in.label), append(m.Domains.FirstNode, len(m.Nodes.Name))
		names, present, usable, told := listed(in.Nodes), listed(in.Present), listed(in.Usable), listed(in.States)
		order := make([]int, len(names))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return compareCounting(names[a], names[b]) })
		for _, i := range order {
			text := ""
			if i < len(told) {
				text = told[i]
			}
			state, ok := states[text]
			if !ok {
				state = len(m.States)
				states[text] = state
				m.States = append(m.States, text)
			}
			index[[2]string{in.Cluster, names[i]}] = len(m.Nodes.Name)
			m.Nodes.Name, m.Nodes.State = append(m.Nodes.Name, names[i]), append(m.Nodes.State, state)
			m.Nodes.Present, m.Nodes.Usable = append(m.Nodes.Present, numberAt(present, i)), append(m.Nodes.Usable, numberAt(usable, i))
		}
	}
	m.Domains.FirstNode = append(m.Domains.FirstNode, len(m.Nodes.Name))
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
		counts := listed(h.NodeGPUs)
		for i, node := range listed(h.Nodes) {
			at, ok := index[[2]string{h.Cluster, node}]
			if !ok {
				continue
			}
			m.Held.Node, m.Held.Job, m.Held.GPUs = append(m.Held.Node, at), append(m.Held.Job, len(m.Jobs)-1), append(m.Held.GPUs, numberAt(counts, i))
		}
	}
}

// compareCounting compares names as people count: rack2 before rack10. Runs of digits compare by value, and where only
// their leading zeros differ, by text.
func compareCounting(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		na, nb := digits(a[i:]), digits(b[j:])
		if na == 0 || nb == 0 {
			if a[i] != b[j] {
				return cmp.Compare(a[i], b[j])
			}
			i, j = i+1, j+1
			continue
		}
		x, y := strings.TrimLeft(a[i:i+na], "0"), strings.TrimLeft(b[j:j+nb], "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
			return c
		}
		i, j = i+na, j+nb
	}
	return cmp.Or(cmp.Compare(len(a)-i, len(b)-j), strings.Compare(a, b))
}

// digits is how many of them a text begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

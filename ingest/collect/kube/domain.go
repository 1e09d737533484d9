package kube

import (
	"slices"
	"strings"

	"github.com/spillway-io/spillway/schemas/event"
)

// Phases of a ComputeDomain, in the contract's words.
const (
	phaseCreated  = "created"
	phaseReady    = "ready"
	phaseNotReady = "not_ready"
	phaseTornDown = "torn_down"
)

// putDomain takes a ComputeDomain, and removeDomain takes it away; its nodes, whose place it tells, are looked at.
func (m *model) putDomain(o *object) {
	m.domains[o.UID] = o
	m.domainly[o.UID] = true
	m.placed(o.UID, o.domain.nodes)
}

func (m *model) removeDomain(uid string) {
	if o := m.domains[uid]; o != nil {
		delete(m.domains, uid)
		m.domainly[uid] = true
		m.displaced(uid, o.domain.nodes)
	}
}

// putClique takes the part of a ComputeDomain in one partition, of which the status of the ComputeDomain is made some seconds
// later, and not always whole.
func (m *model) putClique(o *object) {
	uid := o.Labels[labelComputeDomain]
	if m.parts[uid] == nil {
		m.parts[uid] = map[string]*object{}
	}
	m.parts[uid][o.key()] = o
	m.domainly[uid] = true
	m.placed(o.key(), o.domain.nodes)
}

func (m *model) removeClique(o *object) {
	for uid, parts := range m.parts {
		old := parts[o.key()]
		if old == nil {
			continue
		}
		if delete(parts, o.key()); len(parts) == 0 {
			delete(m.parts, uid)
		}
		m.domainly[uid] = true
		m.displaced(o.key(), old.domain.nodes)
	}
}

// placed notes that something says where nodes are, and displaced that it no longer does.
func (m *model) placed(by string, nodes []domainNode) {
	for _, n := range nodes {
		if m.cliques[n.Name] == nil {
			m.cliques[n.Name] = map[string]string{}
		}
		m.cliques[n.Name][by] = n.Clique
		m.news[n.Name] = true
	}
}

func (m *model) displaced(by string, nodes []domainNode) {
	for _, n := range nodes {
		if delete(m.cliques[n.Name], by); len(m.cliques[n.Name]) == 0 {
			delete(m.cliques, n.Name)
		}
		m.news[n.Name] = true
	}
}

// tellDomain proposes the step that a ComputeDomain is at.
func (m *model) tellDomain(b *batch, uid string) {
	o := m.domains[uid]
	name := "domain " + uid
	if o == nil {
		b.end(name, &event.Domain{Cluster: m.cfg.Cluster, Domain: uid, Source: event.SourceComputeDomain, Phase: phaseTornDown})
		return
	}
	r := &event.Domain{Cluster: m.cfg.Cluster, Domain: uid, Source: event.SourceComputeDomain, Owner: o.key(), Phase: phaseCreated}
	switch o.domain.status {
	case "Ready":
		r.Phase = phaseReady
	case "NotReady":
		r.Phase = phaseNotReady
	}
	var domains, partitions []string
	nodes := slices.Clone(o.domain.nodes)
	for _, part := range m.parts[uid] {
		nodes = append(nodes, part.domain.nodes...)
	}
	for _, n := range nodes {
		r.Nodes = append(r.Nodes, n.Name)
		if domain, partition, ok := splitClique(n.Clique); ok && partition != "" {
			domains, partitions = append(domains, domain), append(partitions, partition)
		}
	}
	slices.Sort(r.Nodes)
	r.Nodes = slices.Compact(r.Nodes)
	for level, values := range map[string][]string{event.LevelDomain: domains, event.LevelPartition: partitions} {
		slices.Sort(values)
		for _, v := range slices.Compact(values) {
			r.Levels = append(r.Levels, &event.Level{Level: level, Value: v})
		}
	}
	slices.SortFunc(r.Levels, func(a, b *event.Level) int {
		if c := strings.Compare(a.Level, b.Level); c != 0 {
			return c
		}
		return strings.Compare(a.Value, b.Value)
	})
	b.tell(name, r)
}

// cliqueOf is where the ComputeDomains say that a node sits; nothing where they say nothing, or not the same.
func (m *model) cliqueOf(node string) (domain, partition string, told bool) {
	for _, clique := range m.cliques[node] {
		d, p, ok := splitClique(clique)
		switch {
		case !ok || p == "":
		case told && (d != domain || p != partition):
			return "", "", false
		default:
			domain, partition, told = d, p, true
		}
	}
	return domain, partition, told
}

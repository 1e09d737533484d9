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
	for _, n := range o.domain.nodes {
		if m.cliques[n.Name] == nil {
			m.cliques[n.Name] = map[string]string{}
		}
		m.cliques[n.Name][o.UID] = n.Clique
		m.news[n.Name] = true
	}
}

func (m *model) removeDomain(uid string) {
	o := m.domains[uid]
	if o == nil {
		return
	}
	delete(m.domains, uid)
	m.domainly[uid] = true
	for _, n := range o.domain.nodes {
		if delete(m.cliques[n.Name], uid); len(m.cliques[n.Name]) == 0 {
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
	for _, n := range o.domain.nodes {
		r.Nodes = append(r.Nodes, n.Name)
		if domain, partition, ok := splitClique(n.Clique); ok && partition != "" {
			domains, partitions = append(domains, domain), append(partitions, partition)
		}
	}
	slices.Sort(r.Nodes)
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

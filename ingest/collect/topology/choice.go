package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/schemas/event"
)

// Choice says what of a map counts.
type Choice struct {
	// Topologies names those to merge into one membership per node; where two give a level, the first wins. Empty: one
	// of each kind, the cluster's default where it has that kind, else the first.
	Topologies []string
	// DomainLevel is the level that is the NVLink domain where the source names none itself: "block" in general. "" or
	// "none": no level is.
	DomainLevel string
	// Kinds says what a node listing leaves open: the kind of a topology by its name, see [ParseNodes].
	Kinds map[string]Kind
	// Names maps instance ids to node names. Where it is given, a node it does not know is left out.
	Names map[string]string
}

// View is a map as a choice sees it.
type View struct {
	// Topology names the first of the merged topologies. It is the same for all nodes, for it is part of what a
	// membership record is known by.
	Topology string
	// Nodes have at least one level each, outermost first.
	Nodes []Node
	// Issues are what the choice leaves out, and why.
	Issues []Issue
}

// View applies a choice. The error is of a choice that the map cannot serve.
func (m *Map) View(c Choice) (View, error) {
	var v View
	topologies := v.settle(m, c.Kinds)
	chosen, err := choose(m.File, topologies, c.Topologies)
	if err != nil || len(chosen) == 0 {
		return v, err
	}
	v.Topology = chosen[0].Name
	index := map[string]int{}
	givenBy := map[Level]string{} // which topology gave a name
	shared := map[string]Level{}  // topologies that give a name which another gave before, with one such name
	unmapped := 0
	for _, t := range chosen {
		for _, n := range t.Nodes {
			name := n.Name
			if c.Names != nil {
				if name = c.Names[n.Name]; name == "" {
					unmapped++
					continue
				}
			}
			if len(n.Levels) == 0 {
				continue
			}
			i, ok := index[name]
			if !ok {
				i = len(v.Nodes)
				index[name] = i
				v.Nodes = append(v.Nodes, Node{Name: name})
			}
			for _, l := range n.Levels {
				if slices.ContainsFunc(v.Nodes[i].Levels, func(have Level) bool { return have.Level == l.Level }) {
					continue
				}
				v.Nodes[i].Levels = append(v.Nodes[i].Levels, l)
				if by, ok := givenBy[l]; ok && by != t.Name {
					shared[t.Name] = l
				} else {
					givenBy[l] = t.Name
				}
			}
		}
	}
	for _, t := range slices.Sorted(maps.Keys(shared)) {
		v.issuef(m.File, "%s %s is in topology %s and in one before it, and is taken for the same; if it is not, give them different names",
			shared[t].Level, shared[t].Value, t)
	}
	if unmapped > 0 {
		v.issuef(m.File, "%d instances have no node name and were left out; bring the file of instances up to date", unmapped)
	}
	v.unused(m.File, topologies, c, index)
	for i := range v.Nodes {
		v.Nodes[i].finish(c.DomainLevel)
	}
	return v, nil
}

func (v *View) issuef(where, format string, args ...any) {
	v.Issues = append(v.Issues, Issue{Where: where, Text: fmt.Sprintf(format, args...)})
}

// settle gives the topologies with every lone unit named after the kind that configuration says its topology has; where
// it does not say, the topology is left out.
func (v *View) settle(m *Map, kinds map[string]Kind) []Topology {
	var out []Topology
	for _, t := range m.Topologies {
		if len(t.Nodes) == 0 || t.Nodes[0].Levels == nil || t.Nodes[0].Levels[0].Level != levelUnit {
			out = append(out, t)
			continue
		}
		level := unitLevel(kinds[t.Name])
		if level == "" {
			v.issuef(m.File, "topology %s: whether its units are blocks or leaf switches is not said here, so its %d nodes were left out; "+
				"set kinds: {%s: block} or {%s: tree}", t.Name, len(t.Nodes), t.Name, t.Name)
			continue
		}
		nodes := make([]Node, len(t.Nodes))
		for i, n := range t.Nodes {
			nodes[i] = Node{Name: n.Name, Levels: []Level{{level, n.Levels[0].Value}}}
		}
		out = append(out, Topology{Name: t.Name, Kind: kinds[t.Name], Nodes: nodes})
	}
	return out
}

// choose gives the topologies that count, in order.
func choose(file string, topologies []Topology, names []string) ([]Topology, error) {
	var out []Topology
	for _, name := range names {
		n := len(out)
		for _, t := range topologies {
			if t.Name == name {
				out = append(out, t)
			}
		}
		if len(out) == n {
			return nil, fmt.Errorf("%s: no topology %s in it, only %s; correct the list of topologies", file, name, nameList(topologies))
		}
	}
	if len(names) > 0 {
		return out, nil
	}
	for _, kind := range []Kind{KindLabels, KindBlock, KindTree, KindRing, KindTorus3D} {
		best := -1
		for i, t := range topologies {
			if t.Kind == kind && (best < 0 || t.Default && !topologies[best].Default) {
				best = i
			}
		}
		if best >= 0 {
			out = append(out, topologies[best])
		}
	}
	return out, nil
}

func nameList(topologies []Topology) string {
	names := map[string]bool{}
	for _, t := range topologies {
		names[t.Name] = true
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

// unused notes nodes that only topologies outside the choice know, where nobody asked for that.
func (v *View) unused(file string, topologies []Topology, c Choice, used map[string]int) {
	if len(c.Topologies) > 0 || c.Names != nil {
		return
	}
	for _, t := range topologies {
		left := 0
		for _, n := range t.Nodes {
			if _, ok := used[n.Name]; !ok && len(n.Levels) > 0 {
				left++
			}
		}
		if left > 0 {
			v.issuef(file, "%d nodes are only in topology %s, which is not used; list it in topologies, after %s", left, t.Name, v.Topology)
		}
	}
}

// finish adds the domain that the choice's level implies, and puts the levels in order.
func (n *Node) finish(domainLevel string) {
	known := func(level string) int {
		return slices.IndexFunc(n.Levels, func(l Level) bool { return l.Level == level })
	}
	if i := known(domainLevel); i >= 0 && known(event.LevelDomain) < 0 {
		n.Levels = append(n.Levels, Level{event.LevelDomain, n.Levels[i].Value})
	}
	sortLevels(n.Levels)
}

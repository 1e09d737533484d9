package topology

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spillway-io/spillway/schemas/event"
)

// switchDef is one switch as the document defines it.
type switchDef struct {
	name     string
	nodes    string // hostlist
	children string // hostlist of switches
	line     int
}

// ambiguous marks a height above a switch at which more than one switch stands.
const ambiguous = "\x00"

// tree makes the nodes of a tree of switches. A switch with children takes no nodes of its own. Where a switch or a node
// hangs below several (fabrics with rails, or with every uplink listed), the level at which they differ is left out:
// which of them counts is not for us to say.
func (d *document) tree(defined []switchDef) ([]Node, error) {
	index := make(map[string]int, len(defined))
	for i, s := range defined {
		if s.name == "" {
			return nil, d.errf(s.line, "a switch has no name; give it one")
		}
		if before, ok := index[s.name]; ok {
			return nil, d.errf(s.line, "switch %s is already defined on line %d; give each switch one definition", s.name, defined[before].line)
		}
		index[s.name] = i
	}
	children := make([][]int, len(defined))
	parents := make([][]int, len(defined))
	for i, s := range defined {
		names, err := d.expand(s.line, "children of switch "+s.name, s.children)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			c, ok := index[name]
			if !ok {
				return nil, d.errf(s.line, "switch %s has the child %s, which nothing defines; define it or take it out", s.name, name)
			}
			children[i] = append(children[i], c)
			parents[c] = append(parents[c], i)
		}
	}
	order, heights, err := d.heights(defined, children, parents)
	if err != nil {
		return nil, err
	}
	// above[i][h] is the switch of height h above switch i, or ambiguous; from the top down, so that parents are ready.
	above := make([]map[int]string, len(defined))
	shared := map[int][]int{} // height to the switches below several switches of it
	for _, i := range slices.Backward(order) {
		above[i] = map[int]string{}
		for _, p := range parents[i] {
			note(above[i], heights[p], defined[p].name)
			for h, name := range above[p] {
				note(above[i], h, name)
			}
		}
		for h, name := range above[i] {
			if name == ambiguous && !inherited(above, parents[i], h) {
				shared[h] = append(shared[h], i)
			}
		}
	}
	for _, h := range slices.Sorted(maps.Keys(shared)) {
		first := defined[slices.Min(shared[h])]
		d.issuef(first.line, "%d switches (%s first) hang below several switches of level %s, which is left out for their nodes; list one uplink a switch to have it",
			len(shared[h]), first.name, switchLevel(h))
	}
	return d.attach(defined, children, above)
}

// inherited says that a parent's own level is ambiguous at this height already, and was reported there.
func inherited(above []map[int]string, parents []int, h int) bool {
	return slices.ContainsFunc(parents, func(p int) bool { return above[p][h] == ambiguous })
}

func note(at map[int]string, height int, name string) {
	if old, ok := at[height]; ok && old != name {
		name = ambiguous
	}
	at[height] = name
}

// heights gives the switches in an order in which every child comes before its parents, and how high each stands:
// 0 for a leaf, else one more than its highest child.
func (d *document) heights(defined []switchDef, children, parents [][]int) (order, heights []int, err error) {
	heights = make([]int, len(defined))
	open := make([]int, len(defined)) // children not yet placed
	for i := range defined {
		if open[i] = len(children[i]); open[i] == 0 {
			order = append(order, i)
		}
	}
	for at := 0; at < len(order); at++ {
		i := order[at]
		for _, p := range parents[i] {
			if heights[p] = max(heights[p], heights[i]+1); heights[p] > maxTreeDepth {
				return nil, nil, d.errf(defined[p].line, "switch %s stands more than %d levels above the nodes; this is not a network", defined[p].name, maxTreeDepth)
			}
			if open[p]--; open[p] == 0 {
				order = append(order, p)
			}
		}
	}
	if len(order) < len(defined) {
		i := slices.IndexFunc(open, func(n int) bool { return n > 0 })
		return nil, nil, d.errf(defined[i].line, "switch %s is below itself, or above a switch that is; take out the child that leads back", defined[i].name)
	}
	return order, heights, nil
}

// attach hangs the nodes under their leaf switches.
func (d *document) attach(defined []switchDef, children [][]int, above []map[int]string) ([]Node, error) {
	var nodes []Node
	at := map[string]int{} // node name to its place in nodes
	chains := []map[int]string{}
	for i, s := range defined {
		if len(children[i]) > 0 {
			continue
		}
		names, err := d.expand(s.line, "switch "+s.name, s.nodes)
		if err != nil {
			return nil, err
		}
		chain := map[int]string{0: s.name}
		for h, name := range above[i] {
			chain[h] = name
		}
		homed := 0 // nodes of this switch that hang under another as well
		for _, n := range names {
			k, ok := at[n]
			if !ok {
				at[n] = len(nodes)
				nodes = append(nodes, Node{Name: n})
				chains = append(chains, chain)
				continue
			}
			if chains[k][0] == s.name {
				d.issuef(s.line, "switch %s lists node %s twice; once is enough", s.name, n)
				continue
			}
			homed++
			chains[k] = meet(chains[k], chain)
		}
		if homed > 0 {
			d.issuef(s.line, "%d nodes of switch %s hang under another leaf switch too; their leaf is left out", homed, s.name)
		}
	}
	for i := range nodes {
		for h := maxTreeDepth; h >= 0; h-- {
			if name := chains[i][h]; name != "" && name != ambiguous {
				nodes[i].Levels = append(nodes[i].Levels, Level{switchLevel(h), name})
			}
		}
	}
	return nodes, nil
}

// meet is the chain of a node that hangs under two switches: what both have in common.
func meet(a, b map[int]string) map[int]string {
	out := map[int]string{0: ambiguous}
	for h, name := range a {
		if b[h] == name {
			out[h] = name
		}
	}
	return out
}

// switchLevel is the name of a switch's level by its height.
func switchLevel(height int) string {
	switch height {
	case 0:
		return event.LevelLeaf
	case 1:
		return event.LevelSpine
	case 2:
		return levelCore
	}
	return fmt.Sprintf("tier%d", height)
}

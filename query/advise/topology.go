package advise

import (
	"cmp"
	"fmt"
	"slices"
)

// Topology is the tree that placement is judged on: levels, domains and nodes. It is immutable and shared by all states and
// snapshots of one generation; what changes by the second is kept beside it, in slices indexed by domain and node.
type Topology struct {
	Generation uint64
	// Levels names the levels wider than a domain, widest first: spine, leaf, block.
	Levels []string
	// Domains are sorted by ID and then Partition.
	Domains []Domain
	// Nodes are sorted by domain and then name, so that a domain is a range of them.
	Nodes []Node
	// Unknown names the nodes whose domain is not known. Nothing is ever placed on them.
	Unknown []string
	// GPUsPerNode is the largest number of GPUs a node has.
	GPUsPerNode int

	groups [][]int32 // per level, the group of each domain; groups are numbered in the order of ranked
	widths []int     // per level, how many groups there are
	ranked []int32   // domains by path and then as in Domains
	rank   []int32   // per domain, its place in ranked
	nodes  map[string]int32
	ids    map[string][]int32
	model  string  // the one GPU model, if there is only one
	count  []int32 // per domain, how many nodes it has: what is read of all domains for every question
	sizes  []sized // how many domains there are of each size
	// uniform: the nodes of all domains have the same number of GPUs.
	uniform bool
}

// Domain is a set of nodes whose GPUs reach each other over NVLink. Where a fabric is cut into partitions, each partition
// is a Domain here, because NVLink does not cross them.
type Domain struct {
	ID        string
	Partition string
	Model     string
	// Path is the domain's place at each level of Topology.Levels; "" where it is not known.
	Path []string
	// First and Count are the domain's range in Topology.Nodes.
	First, Count int32
	// GPUsPerNode is the largest number of GPUs one of its nodes has.
	GPUsPerNode int32
}

// Node is one machine.
type Node struct {
	Name   string
	Domain int32
	GPUs   int32
}

// NodeSpec describes one node to NewTopology.
type NodeSpec struct {
	Name string
	// Domain is "" where it is not known.
	Domain, Partition string
	Model             string
	GPUs              int
	Path              []string
}

// NewTopology builds the tree. A node is named once, and all nodes of a domain agree on model and path.
func NewTopology(generation uint64, levels []string, specs []NodeSpec) (*Topology, error) {
	t := &Topology{
		Generation: generation, Levels: slices.Clone(levels),
		nodes: make(map[string]int32, len(specs)), ids: map[string][]int32{},
	}
	specs = slices.Clone(specs)
	slices.SortFunc(specs, func(a, b NodeSpec) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Name, b.Name))
	})
	for _, s := range specs {
		if s.GPUs < 1 || s.GPUs > maxGPUs {
			return nil, fmt.Errorf("building the topology: node %q has %d GPUs: give 1 to %d", s.Name, s.GPUs, maxGPUs)
		}
		if s.Domain == "" {
			t.Unknown = append(t.Unknown, s.Name)
			continue
		}
		if _, twice := t.nodes[s.Name]; twice {
			return nil, fmt.Errorf("building the topology: node %q is named twice: list each node once", s.Name)
		}
		if len(s.Path) != len(levels) {
			return nil, fmt.Errorf("building the topology: node %q has a path of %d levels, not %d: name every level, %q where unknown",
				s.Name, len(s.Path), len(levels), "")
		}
		last := len(t.Domains) - 1
		if last < 0 || t.Domains[last].ID != s.Domain || t.Domains[last].Partition != s.Partition {
			last++
			t.Domains = append(t.Domains, Domain{
				ID: s.Domain, Partition: s.Partition, Model: s.Model, Path: slices.Clone(s.Path), First: int32(len(t.Nodes)),
			})
			t.ids[s.Domain] = append(t.ids[s.Domain], int32(last))
		}
		d := &t.Domains[last]
		if d.Model != s.Model || !slices.Equal(d.Path, s.Path) {
			return nil, fmt.Errorf("building the topology: node %q disagrees with domain %q on model or path: correct the inventory", s.Name, s.Domain)
		}
		d.Count++
		d.GPUsPerNode = max(d.GPUsPerNode, int32(s.GPUs))
		t.GPUsPerNode = max(t.GPUsPerNode, s.GPUs)
		t.nodes[s.Name] = int32(len(t.Nodes))
		t.Nodes = append(t.Nodes, Node{Name: s.Name, Domain: int32(last), GPUs: int32(s.GPUs)})
	}
	t.ranked, t.rank = make([]int32, len(t.Domains)), make([]int32, len(t.Domains))
	for i := range t.ranked {
		t.ranked[i] = int32(i)
	}
	slices.SortStableFunc(t.ranked, func(a, b int32) int { return slices.Compare(t.Domains[a].Path, t.Domains[b].Path) })
	for i, d := range t.ranked {
		t.rank[d] = int32(i)
	}
	for i := range levels {
		t.group(i)
	}
	for i := range t.Domains {
		t.count = append(t.count, t.Domains[i].Count)
		t.sizes = addSize(t.sizes, t.Domains[i].Count)
	}
	t.uniform = true
	for _, d := range t.Domains {
		t.uniform = t.uniform && int(d.GPUsPerNode) == t.GPUsPerNode
	}
	for i, d := range t.Domains {
		if i == 0 {
			t.model = d.Model
		} else if t.model != d.Model {
			t.model = ""
			break
		}
	}
	return t, nil
}

// sized is how many domains have this many nodes.
type sized struct{ nodes, domains int32 }

// addSize adds a domain to those of its size. There are few sizes.
func addSize(sizes []sized, nodes int32) []sized {
	for i := range sizes {
		if sizes[i].nodes == nodes {
			sizes[i].domains++
			return sizes
		}
	}
	return append(sizes, sized{nodes, 1})
}

// largest is the most nodes that the ask may have of any one domain.
func (t *Topology) largest(a *Ask) int32 {
	most := int32(0)
	for _, s := range t.sizes {
		most = max(most, a.within(s.nodes))
	}
	return most
}

// maxGPUs is the most GPUs a node may have.
const maxGPUs = 16

// group numbers the groups of one level. A domain whose place is unknown there is a group of its own: unknown never
// equals another unknown.
func (t *Topology) group(level int) {
	seen := map[string]int32{}
	groups := make([]int32, len(t.Domains))
	n := int32(0)
	for _, i := range t.ranked {
		key := t.Domains[i].Path[level]
		g, ok := seen[key]
		if !ok || key == "" {
			g = n
			n++
			seen[key] = g
		}
		groups[i] = g
	}
	t.groups = append(t.groups, groups)
	t.widths = append(t.widths, int(n))
}

// level is the group of each domain at a level, and how many groups there are; the level below the last is that of domains.
func (t *Topology) level(level int) (groups []int32, width int) {
	if level == len(t.groups) {
		return t.rank, len(t.rank)
	}
	return t.groups[level], t.widths[level]
}

// Node gives the index of a node by name.
func (t *Topology) Node(name string) (int32, bool) {
	n, ok := t.nodes[name]
	return n, ok
}

// Domain gives the indices of the domains (the partitions, where there are several) with this ID.
func (t *Topology) Domain(id string) []int32 { return t.ids[id] }

// Common is the narrowest level that all parts share: an index into Levels, or -1 where only the whole cluster is common.
func (t *Topology) Common(parts []Part) int {
	for l := len(t.groups) - 1; l >= 0; l-- {
		same := true
		for _, p := range parts {
			same = same && t.groups[l][p.Domain] == t.groups[l][parts[0].Domain]
		}
		if same {
			return l
		}
	}
	return -1
}

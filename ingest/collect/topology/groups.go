package topology

import (
	"math/bits"
	"slices"
	"strconv"

	"github.com/spillway-io/spillway/ingest/collect/slurm/hostlist"
	"github.com/spillway-io/spillway/schemas/event"
)

// group is one block, ring or torus as the document defines it.
type group struct {
	name  string
	nodes string // hostlist
	line  int
}

// groups makes the nodes of groups that no node may share. what is the word for one of them: block, ring, torus.
func (d *document) groups(what, level string, defined []group) (nodes []Node, groupOf []int, err error) {
	lines := map[string]int{}
	owner := map[string]int{}
	for i, g := range defined {
		if g.name == "" {
			return nil, nil, d.errf(g.line, "a %s has no name; give it one", what)
		}
		if before, ok := lines[g.name]; ok {
			return nil, nil, d.errf(g.line, "%s %s is already defined on line %d; give each %s one definition", what, g.name, before, what)
		}
		lines[g.name] = g.line
		names, err := d.expand(g.line, what+" "+g.name, g.nodes)
		if err != nil {
			return nil, nil, err
		}
		for _, n := range names {
			at, ok := owner[n]
			switch {
			case ok && at == i:
				d.issuef(g.line, "%s %s lists node %s twice; once is enough", what, g.name, n)
				continue
			case ok:
				return nil, nil, d.errf(g.line, "node %s of %s %s is already in %s %s (line %d); a node sits in one %s: take it out of one",
					n, what, g.name, what, defined[at].name, defined[at].line, what)
			}
			owner[n] = i
			nodes = append(nodes, Node{Name: n, Levels: []Level{{level, g.name}}})
			groupOf = append(groupOf, i)
		}
	}
	return nodes, groupOf, nil
}

// blocks makes the nodes of a block topology. sizes are the configured block sizes, if any, smallest first.
func (d *document) blocks(defined []group, sizes []int, sizesLine int) ([]Node, error) {
	nodes, blockOf, err := d.groups("block", event.LevelBlock, defined)
	if err != nil {
		return nil, err
	}
	addGroups(nodes, blockOf, aggregate(defined, d.blockFactors(sizes, sizesLine)))
	return nodes, nil
}

// addGroups puts the aggregated blocks, smallest first, above the blocks of nodes.
func addGroups(nodes []Node, blockOf []int, groups []aggregated) {
	for i := range nodes {
		for _, g := range groups {
			if name := g.of[blockOf[i]]; name != "" {
				nodes[i].Levels = slices.Insert(nodes[i].Levels, 0, Level{g.level, name})
			}
		}
	}
}

// blockFactors turns block sizes into how many base blocks each holds. Slurm takes only powers of two; where a size
// breaks that rule none is used, for then nobody knows which blocks belong together.
func (d *document) blockFactors(sizes []int, line int) []int {
	var factors []int
	for _, s := range sizes {
		switch base := sizes[0]; {
		case s <= 0:
			d.issuef(line, "block size %d is not a number of nodes; aggregated blocks are left out: set it to the nodes of one block", s)
			return nil
		case s%base != 0 || bits.OnesCount(uint(s/base)) != 1 || s/base > 1<<15:
			d.issuef(line, "block size %d is not %d times a power of two, which Slurm demands; aggregated blocks are left out", s, base)
			return nil
		default:
			factors = append(factors, s/base)
		}
	}
	slices.Sort(factors)
	return slices.Compact(factors)
}

// aggregated is one level of aggregated blocks: for each base block the name of the one that holds it, or "".
type aggregated struct {
	level string
	of    []string
}

// levelOf is the level of aggregated blocks of n base blocks, where they are not the smallest.
func levelOf(n int) string { return event.LevelBlockGroup + "_" + strconv.Itoa(n) }

// aggregate follows Slurm's rule (src/plugins/topology/block/block_record.c): an aggregated block is n adjacent blocks
// in the order of their definition, beginning at a multiple of n. The last one may be short, but exists only if it holds
// more blocks than the next smaller size. Sizes beyond the first that covers all blocks are not used.
func aggregate(defined []group, factors []int) []aggregated {
	var out []aggregated
	for j, n := range factors {
		if j == 0 {
			continue // the base block itself
		}
		if factors[j-1] >= len(defined) {
			break
		}
		a := aggregated{level: event.LevelBlockGroup, of: make([]string, len(defined))}
		if len(out) > 0 {
			a.level = levelOf(n)
		}
		for from := 0; from < len(defined); from += n {
			rest := len(defined) - from
			if n > rest && factors[j-1] >= rest {
				break
			}
			to := from + min(n, rest)
			names := make([]string, 0, to-from)
			for _, g := range defined[from:to] {
				names = append(names, g.name)
			}
			name := hostlist.Compress(names)
			for i := from; i < to; i++ {
				a.of[i] = name
			}
		}
		out = append(out, a)
	}
	return out
}

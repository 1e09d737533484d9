package topology

import (
	"errors"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-io/spillway/schemas/event"
)

// errSlurm marks an answer in which Slurm says that it could not answer.
var errSlurm = errors.New("slurm did not answer")

// ParseScontrol reads what `scontrol show topology [NAME]` prints: lines BlockName=, AggregatedBlock=, SwitchName=,
// RingName= and TorusName=. An empty answer (of a flat topology) is a map without nodes; an error printed by scontrol is
// an error here.
//
// A file may hold several answers, each below a line "$ command". Then a topology is named after its command, `scontrol
// show topoconf` is read too, and the rest is skipped: other commands, and answers narrowed by unit= or node=, which
// hold only a part. An answer that is an error is then an issue, unless all are.
func ParseScontrol(r io.Reader, name string) (*Map, error) {
	d := &document{name: name, format: FormatScontrol}
	text, err := d.readAll(r)
	if err != nil {
		return nil, err
	}
	answers := splitAnswers(text)
	var out []Topology
	var failed error
	unnamed := -1
	for _, a := range answers {
		var found []Topology
		var err error
		switch {
		case a.conf:
			d.offset = a.first - 1
			found, err = d.slurmYAML(a.text)
			d.offset = 0
		default:
			found, err = d.scontrol(a)
		}
		switch {
		case errors.Is(err, errSlurm) && len(answers) > 1:
			placed, _ := errors.AsType[*placedError](err)
			d.issues = append(d.issues, Issue{Where: placed.where, Text: placed.err.Error()})
			failed = err
			continue
		case err != nil:
			return nil, err
		}
		for _, t := range found {
			i := slices.IndexFunc(out, func(o Topology) bool { return o.Name == t.Name && o.Kind == t.Kind })
			switch {
			case i < 0:
				if a.unnamed {
					unnamed = len(out)
				}
				out = append(out, t)
			case !reflect.DeepEqual(out[i].Nodes, t.Nodes):
				d.issuef(a.first, "topology %s was printed before and differs; the later answer is used", t.Name)
				out[i] = t
			}
		}
	}
	// The same topology, once as the nameless default and once by name.
	if unnamed >= 0 && slices.ContainsFunc(out, func(t Topology) bool {
		return t.Name != DefaultName && t.Default && t.Kind == out[unnamed].Kind
	}) {
		out = slices.Delete(out, unnamed, unnamed+1)
	}
	if len(out) == 0 && failed != nil {
		return nil, failed
	}
	return d.result(out), nil
}

// answer is the output of one command.
type answer struct {
	name    string // of the topology
	unnamed bool   // the command named none: this is the cluster's default
	conf    bool   // of show topoconf
	first   int    // line number
	text    string
}

// splitAnswers cuts a recording at its "$ command" lines. Text without any is one answer of `scontrol show topology`.
func splitAnswers(text string) []answer {
	var out []answer
	var current *answer
	recorded := strings.HasPrefix(text, "$ ") || strings.Contains(text, "\n$ ")
	if !recorded {
		return []answer{{name: DefaultName, unnamed: true, first: 1, text: text}}
	}
	n := 0
	for line := range strings.SplitAfterSeq(text, "\n") {
		n++
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			current = nil
			if a, ok := commandAnswer(strings.Fields(command)); ok {
				a.first = n + 1
				out = append(out, a)
				current = &out[len(out)-1]
			}
			continue
		}
		if current != nil {
			current.text += line
		}
	}
	return out
}

// commandAnswer tells what a command line asks; ok is false for what is not the whole of a topology.
func commandAnswer(words []string) (a answer, ok bool) {
	i := slices.Index(words, "show")
	if i < 0 || i+1 >= len(words) {
		return a, false
	}
	// scontrol takes any beginning of a word that is not ambiguous.
	what := strings.ToLower(words[i+1])
	switch {
	case len(what) > 4 && strings.HasPrefix("topoconf", what):
		return answer{conf: true}, true
	case len(what) >= 4 && strings.HasPrefix("topology", what):
	default:
		return a, false
	}
	a = answer{name: DefaultName, unnamed: true}
	for _, w := range words[i+2:] {
		switch {
		case strings.HasPrefix(w, "-"):
		case strings.Contains(w, "="):
			return a, false
		default:
			a.name, a.unnamed = w, false
		}
	}
	return a, true
}

// scontrol reads one answer of show topology. An answer without lines is a flat topology if it was asked for by name,
// else nothing.
func (d *document) scontrol(a answer) ([]Topology, error) {
	var blocks, sums []printedBlock
	var rings, tori []group
	var switches []switchDef
	n := a.first - 1
	for line := range strings.SplitSeq(a.text, "\n") {
		n++
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if strings.Contains(line, "slurm_load_topo error") || strings.HasPrefix(line, "scontrol: error") || strings.HasPrefix(line, "slurm_") {
			return nil, d.errf(n, "%w: %s", errSlurm, line)
		}
		head, values := printed(line)
		g := group{name: values[head], nodes: values["Nodes"], line: n}
		switch head {
		case "BlockName", "AggregatedBlock":
			b := printedBlock{group: g}
			if b.size, _ = strconv.Atoi(values["BlockSize"]); b.size <= 0 {
				return nil, d.cut(n)
			}
			if head == "BlockName" {
				blocks = append(blocks, b)
			} else {
				sums = append(sums, b)
			}
		case "SwitchName":
			s := switchDef{name: g.name, nodes: g.nodes, children: values["Switches"], line: n}
			if level := values["Level"]; level == "" || level != "0" && s.children == "" {
				return nil, d.cut(n)
			}
			switches = append(switches, s)
		case "RingName":
			rings = append(rings, g)
		case "TorusName":
			if _, placement := values["PlacementDims"]; !placement {
				tori = append(tori, g)
			}
		default:
			return nil, d.errf(n, "%q is no line of scontrol show topology", clip(line))
		}
	}
	return d.answered(a, blocks, sums, switches, rings, tori)
}

func (d *document) cut(line int) error {
	return d.errf(line, "the line is cut short; unset SLURM_TOPO_LEN and ask again")
}

func (d *document) answered(a answer, blocks, sums []printedBlock, switches []switchDef, rings, tori []group) ([]Topology, error) {
	t := Topology{Name: a.name, Default: a.unnamed}
	kinds := 0
	for _, given := range []bool{len(blocks)+len(sums) > 0, len(switches) > 0, len(rings) > 0, len(tori) > 0} {
		if given {
			kinds++
		}
	}
	if kinds > 1 {
		return nil, d.errf(a.first, "the answer mixes blocks, switches, rings or tori, which one topology cannot; put a line \"$ scontrol show topology NAME\" above each answer")
	}
	var err error
	switch {
	case len(blocks)+len(sums) > 0:
		t.Kind = KindBlock
		t.Nodes, t.Sizes, err = d.printedBlocks(blocks, sums)
	case len(switches) > 0:
		t.Kind = KindTree
		t.Nodes, err = d.tree(switches)
	case len(rings) > 0:
		t.Kind = KindRing
		t.Nodes, _, err = d.groups("ring", levelRing, rings)
	case len(tori) > 0:
		t.Kind = KindTorus3D
		t.Nodes, _, err = d.groups("torus", levelTorus, tori)
	case !a.unnamed:
		t.Kind = KindFlat
	default:
		return nil, nil
	}
	return []Topology{t}, err
}

// printed splits a line of scontrol into its first key and all values. Values hold no spaces, and may be empty.
func printed(line string) (head string, values map[string]string) {
	values = map[string]string{}
	for i, word := range strings.Fields(line) {
		key, v, _ := strings.Cut(word, "=")
		if i == 0 {
			head = key
		}
		values[key] = v
	}
	return head, values
}

// printedBlock is a printed block, or an aggregated one, whose name is the hostlist of its blocks.
type printedBlock struct {
	group
	size int // planning size in nodes
}

// printedBlocks makes the nodes of a printed block topology. Which blocks belong together is read, not computed: it is
// what the scheduler itself holds.
func (d *document) printedBlocks(blocks, sums []printedBlock) (nodes []Node, sizes []int, err error) {
	groups := make([]group, len(blocks))
	index := map[string]int{}
	for i, b := range blocks {
		groups[i] = b.group
		index[b.name] = i
	}
	nodes, blockOf, err := d.groups("block", event.LevelBlock, groups)
	if err != nil {
		return nil, nil, err
	}
	slices.SortStableFunc(sums, func(a, b printedBlock) int { return a.size - b.size })
	var levels []aggregated
	if len(blocks) > 0 {
		sizes = append(sizes, blocks[0].size)
	}
	for _, s := range sums {
		names, err := d.expand(s.line, "aggregated block "+s.name, s.name)
		if err != nil {
			return nil, nil, err
		}
		for _, name := range names {
			i, ok := index[name]
			if !ok {
				return nil, nil, d.errf(s.line, "aggregated block %s holds block %s, which is not printed; give the whole answer", s.name, name)
			}
			if s.size != sizes[len(sizes)-1] {
				level := event.LevelBlockGroup
				if len(levels) > 0 {
					level = levelOf(s.size / sizes[0])
				}
				sizes = append(sizes, s.size)
				levels = append(levels, aggregated{level: level, of: make([]string, len(blocks))})
			}
			if len(levels) > 0 {
				levels[len(levels)-1].of[i] = s.name
			}
		}
	}
	addGroups(nodes, blockOf, levels)
	return nodes, sizes, nil
}

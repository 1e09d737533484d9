package topology

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parsers are all of them, each with the documents it is tried on.
var parsers = map[Format]struct {
	parse     func(io.Reader, string) (*Map, error)
	documents []string
}{
	FormatConf:     {ParseConf, []string{"topology.conf", "topograph-block.conf", "tree.conf"}},
	FormatYAML:     {ParseYAML, []string{"topology.yaml", "topoconf.yaml", "rings.yaml"}},
	FormatScontrol: {ParseScontrol, []string{"scontrol_topology.txt", "scontrol_topology_block18.txt", "topology.txt", "rings.txt", "scontrol_topology_24.11.txt"}},
	FormatNodes:    {ParseNodes, []string{"nodes.json", "nodes_dynamic.json"}},
	FormatGraph:    {ParseGraph, []string{"topograph-graph.json"}},
	FormatCSV:      {ParseCSV, []string{"static.csv"}},
	FormatStatic:   {ParseStatic, []string{"static.yaml"}},
}

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// show prints a map as short lines: each topology, its nodes compressed by equal levels, and the issues.
func show(m *Map) string {
	var b strings.Builder
	for _, t := range m.Topologies {
		fmt.Fprintf(&b, "%s %s", t.Name, t.Kind)
		if t.Default {
			b.WriteString(" default")
		}
		if t.Sizes != nil {
			fmt.Fprintf(&b, " sizes %v", t.Sizes)
		}
		b.WriteByte('\n')
		showNodes(&b, t.Nodes)
	}
	for _, i := range m.Issues {
		fmt.Fprintf(&b, "! %s\n", i)
	}
	return b.String()
}

func showNodes(b *strings.Builder, nodes []Node) {
	for i := 0; i < len(nodes); {
		first, levels := i, showLevels(nodes[i].Levels)
		for i < len(nodes) && showLevels(nodes[i].Levels) == levels {
			i++
		}
		fmt.Fprintf(b, "  %s", nodes[first].Name)
		if i-first > 1 {
			fmt.Fprintf(b, "..%s (%d)", nodes[i-1].Name, i-first)
		}
		fmt.Fprintf(b, ": %s\n", levels)
	}
}

func showLevels(levels []Level) string {
	var out []string
	for _, l := range levels {
		out = append(out, l.Level+"="+l.Value)
	}
	return strings.Join(out, " ")
}

func trimmed(s string) string { return strings.TrimLeft(s, "\n") }

const (
	nvlBlocks = `
  gb-r01-n01..gb-r01-n18 (18): block_group=rack[01-02] block=rack01
  gb-r02-n01..gb-r02-n18 (18): block_group=rack[01-02] block=rack02
  gb-r03-n01..gb-r03-n18 (18): block=rack03
`
	ibTree = `
  gb-r01-n01..gb-r02-n09 (27): spine=spine leaf=leaf1
  gb-r02-n10..gb-r03-n18 (27): spine=spine leaf=leaf2
`
	plainBlocks = `
  gb-r01-n01..gb-r01-n18 (18): block=rack01
  gb-r02-n01..gb-r02-n18 (18): block=rack02
  gb-r03-n01..gb-r03-n18 (18): block=rack03
`
)

func TestRecordedDocuments(t *testing.T) {
	cases := map[string]struct {
		file   string
		format Format
		want   string
	}{
		"topology.conf with one block a rack": {"topology.conf", FormatConf, "default block default sizes [18]" + plainBlocks},
		"topology.yaml with a block, a tree and a flat topology": {"topology.yaml", FormatYAML,
			"nvl block default sizes [18 36]" + nvlBlocks + "ib tree" + ibTree + "none flat\n"},
		"scontrol show topoconf prints the kinds a topology is not": {"topoconf.yaml", FormatYAML,
			"nvl block default sizes [18 36]" + nvlBlocks + "ib tree" + ibTree + "none flat\n"},
		"scontrol show topology prints the aggregated block that the sizes make": {"topology.txt", FormatScontrol,
			"default block default sizes [18 36]" + nvlBlocks},
		"Slurm 24.11 prints blocks that have more nodes than their planning size": {"scontrol_topology_24.11.txt", FormatScontrol, trimmed(`
default block default sizes [3 6]
  gb200-a-01..gb200-a-04 (4): block_group=a,b block=a
  gb200-b-01..gb200-b-04 (4): block_group=a,b block=b
`)},
		"a recording of several commands skips narrowed answers and names the default": {"scontrol_topology.txt", FormatScontrol,
			"ib tree" + ibTree + "none flat\nnvl block default sizes [18 36]" + nvlBlocks +
				"! scontrol_topology.txt:29: slurm did not answer: slurm_load_topo error: Requested topology configuration is not available\n"},
		"topoconf says nothing where topology.conf is in force": {"scontrol_topology_block18.txt", FormatScontrol,
			"default block default sizes [18]" + plainBlocks +
				"! scontrol_topology_block18.txt:29: topology default says nothing; where Slurm uses topology.conf, read that file or `scontrol show topology`\n"},
		"Topograph's block comments are domain and partition": {"topograph-block.conf", FormatConf, trimmed(`
default block default sizes [8 16]
  gb200-a-01..gb200-a-18 (18): block_group=block[001-002] block=block001 domain=6c1f2a90-77aa-4a1e-9c00-0000000000a1 partition=6c1f2a90-77aa-4a1e-9c00-0000000000a1.32766
  gb200-b-01..gb200-b-09 (9): block_group=block[001-002] block=block002 domain=d3e0b7c4-55bb-4f02-8d11-0000000000b2 partition=d3e0b7c4-55bb-4f02-8d11-0000000000b2.1
  gb200-b-10..gb200-b-17 (8): block=block003 domain=d3e0b7c4-55bb-4f02-8d11-0000000000b2 partition=d3e0b7c4-55bb-4f02-8d11-0000000000b2.2
`)},
		"Topograph's graph lists switches closest first": {"topograph-graph.json", FormatGraph, trimmed(`
topograph labels
  i-sample0001: core=core-1 spine=spine-1 leaf=leaf-a1 domain=6c1f2a90-77aa-4a1e-9c00-0000000000a1 partition=6c1f2a90-77aa-4a1e-9c00-0000000000a1.32766
  i-sample0019: core=core-1 spine=spine-1 leaf=leaf-b1 domain=d3e0b7c4-55bb-4f02-8d11-0000000000b2 partition=d3e0b7c4-55bb-4f02-8d11-0000000000b2.1
`)},
		"a node listing of a cluster with topology.conf tells nothing": {"nodes.json", FormatNodes, ""},
		"a node listing with Topology= of the nodes' own": {"nodes_dynamic.json", FormatNodes, trimmed(`
nvl labels
  gb-r01-n01: unit=rack01
  gb-r03-n01: unit=rack03
ib tree
  gb-r01-n01: spine=spine leaf=leaf1
pod torus3d
  gb-r03-n01: torus=t1
`)},
		"a tree of three levels in topology.conf": {"tree.conf", FormatConf, trimmed(`
default tree default
  n1..n4 (4): core=core1 spine=s1 leaf=l1
  n5..n8 (4): core=core1 spine=s1 leaf=l2
  n9..n12 (4): core=core1 spine=s2 leaf=l3
`)},
		"rings and tori": {"rings.yaml", FormatYAML, trimmed(`
r ring default
  n01..n08 (8): ring=ring0
  n09..n16 (8): ring=ring1
t torus3d
  n01..n16 (16): torus=pod1
u torus3d
  n01..n16 (16): torus=pod1
`)},
		"rings and tori printed": {"rings.txt", FormatScontrol, trimmed(`
default ring default
  n01..n08 (8): ring=ring0
t torus3d
  n01..n16 (16): torus=pod1
`)},
		"a table of nodes": {"static.csv", FormatCSV, trimmed(`
static labels
  gb-r01-n01..gb-r01-n18 (18): room=hall-2 leaf=leaf1 domain=rack01 partition=rack01.1
  gb-r02-n01: room=hall-2 domain=rack02
  gb-r02-n02: room=hall-2 leaf=leaf2
`)},
		"the same in YAML": {"static.yaml", FormatStatic, trimmed(`
rooms labels
  gb-r01-n01..gb-r01-n18 (18): leaf=leaf1 domain=rack01 partition=rack01.1
  007: domain=rack02
`)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := testdata(t, c.file)
			m, err := Parse(bytes.NewReader(b), c.file, FormatAuto)
			if err != nil {
				t.Fatal(err)
			}
			if m.Format != c.format {
				t.Errorf("taken for %s, is %s", m.Format, c.format)
			}
			if d := cmp.Diff(c.want, show(m)); d != "" {
				t.Error(d)
			}
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			if _, err := z.Write(b); err != nil || z.Close() != nil {
				t.Fatal(err)
			}
			again, err := Parse(&packed, c.file, c.format)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(m, again); d != "" {
				t.Errorf("compressed it reads otherwise: %s", d)
			}
		})
	}
}

func TestAggregatedBlocks(t *testing.T) {
	blocks := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "BlockName=b%d Nodes=n%d\n", i+1, i+1)
		}
		return b.String()
	}
	cases := map[string]struct {
		conf string
		want string // levels above the block of the last node, or the issue
	}{
		"no sizes, no aggregated blocks":                             {blocks(4), ""},
		"a lone last block has none":                                 {blocks(3) + "BlockSizes=18,36", ""},
		"a short last one holds what is left":                        {blocks(7) + "BlockSizes=18,72", "block_group=b[5-7]"},
		"not when the smaller size covers the rest":                  {blocks(5) + "BlockSizes=18,36,72", ""},
		"several sizes, outermost first":                             {blocks(8) + "BlockSizes=18,36,72", "block_group_4=b[5-8] block_group=b[7-8]"},
		"a size that is left out makes no level":                     {blocks(8) + "BlockSizes=18,72", "block_group=b[5-8]"},
		"sizes beyond all blocks are not used":                       {blocks(2) + "BlockSizes=18,36,72", "block_group=b[1-2]"},
		"the sizes of 23.11 under their old name":                    {blocks(2) + "blocklevels=4,8", "block_group=b[1-2]"},
		"a size that is no power of two is an issue":                 {blocks(4) + "BlockSizes=4,12", "t:5: block size 12 is not 4 times a power of two, which Slurm demands; aggregated blocks are left out"},
		"a size that is no multiple is an issue":                     {blocks(4) + "BlockSizes=4,6", "t:5: block size 6 is not 4 times a power of two, which Slurm demands; aggregated blocks are left out"},
		"-1, as Topograph wrote where it found no domain":            {blocks(1) + "BlockSizes=-1", "t:2: block size -1 is not a number of nodes; aggregated blocks are left out: set it to the nodes of one block"},
		"a second size smaller than the first is none of its powers": {blocks(4) + "BlockSizes=8,4", "t:5: block size 4 is not 8 times a power of two, which Slurm demands; aggregated blocks are left out"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := ParseConf(strings.NewReader(c.conf), "t")
			if err != nil {
				t.Fatal(err)
			}
			nodes := m.Topologies[0].Nodes
			levels := nodes[len(nodes)-1].Levels
			got := showLevels(levels[:len(levels)-1])
			for _, i := range m.Issues {
				got += i.String()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestErrorsNamePlaceAndRemedy(t *testing.T) {
	cases := map[string]struct {
		format Format
		text   string
		want   string
	}{
		"a node in two blocks": {FormatConf, "BlockName=a Nodes=n[1-3]\nBlockName=b Nodes=n[3-4]",
			"t:2: node n3 of block b is already in block a (line 1); a node sits in one block: take it out of one"},
		"a block defined twice": {FormatConf, "BlockName=a Nodes=n1\n\nBlockName=a Nodes=n2",
			"t:3: block a is already defined on line 1; give each block one definition"},
		"a child that nothing defines": {FormatConf, "SwitchName=s Switches=l[1-3]\nSwitchName=l1 Nodes=n1\nSwitchName=l2 Nodes=n2",
			"t:1: switch s has the child l3, which nothing defines; define it or take it out"},
		"a cycle of switches": {FormatConf, "SwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=a\n",
			"t:1: switch a is below itself, or above a switch that is; take out the child that leads back"},
		"a switch that is its own child": {FormatYAML, "- topology: t\n  tree:\n    switches:\n      - switch: a\n        children: a\n",
			"t:4: switch a is below itself, or above a switch that is; take out the child that leads back"},
		"nodes and switches under one switch": {FormatConf, "SwitchName=a Switches=b Nodes=n1",
			"t:1: switch a has both Nodes and Switches, which Slurm refuses; nodes belong to leaf switches"},
		"a hostlist that is too large": {FormatConf, "BlockName=a Nodes=n[0-65536]",
			"t:1: block a: read hostlist element \"n[0-65536]\" at byte 0: range \"0-65536\" has more than the 65536 names Slurm allows; split it"},
		"hostlists that are too large together": {FormatConf, strings.Repeat("BlockName=a Nodes=n[0-65535]m[0-15]\n", 2),
			"t:2: block a is already defined on line 1; give each block one definition"},
		"a hostlist that is never closed": {FormatYAML, "- topology: t\n  block:\n    blocks:\n      - block: a\n        nodes: n[1-4\n",
			"t:4: block a: read hostlist element \"n[1-4\" at byte 0: \"[\" is never closed; close it with \"]\""},
		"a hostlist function": {FormatConf, "BlockName=a Nodes=block{x}",
			"t:1: block a: read hostlist: \"block{x}\" at byte 5 is a hostlist function, which only the Slurm controller can answer; write the node names out, see scontrol show hostnames"},
		"a key that Slurm does not know": {FormatConf, "BlokName=a Nodes=n1",
			"t:1: BlokName is no key of topology.conf; expected BlockName, SwitchName, RingName or BlockSizes"},
		"an included file": {FormatConf, "Include racks.conf", "t:1: Include is not followed; give the included file itself"},
		"sizes that are no numbers": {FormatConf, "BlockSizes=18,all",
			"t:1: BlockSizes=18,all is not a list of numbers of nodes such as 18,36"},
		"a word without a value": {FormatConf, "BlockName=a n1", "t:1: \"BlockName=a n1\" is not key=value"},
		"a block without a name": {FormatConf, "BlockName=\"\" Nodes=n1", "t:1: a block has no name; give it one"},
		"two kinds in one topology": {FormatYAML, "- topology: t\n  flat: true\n  tree:\n    switches: [{switch: a}]\n",
			"t:4: [0].tree: the topology is of kind flat already; a topology has one kind"},
		"a topology without a name": {FormatYAML, "- cluster_default: true\n  flat: true\n",
			"t:1: [0]: the topology has no name; begin it with \"topology: NAME\""},
		"a topology name given twice": {FormatYAML, "- topology: a\n  flat: true\n- topology: a\n  flat: true\n",
			"t:3: [1]: topology a is already defined on line 1; give each topology one name"},
		"text where blocks are expected": {FormatYAML, "- topology: a\n  block: rack01\n",
			"t:2: [0].block: is the single value \"rack01\" where key: value pairs are expected"},
		"a size that is no number": {FormatYAML, "- topology: a\n  block:\n    block_sizes: [18, all]\n",
			"t:3: [0].block.block_sizes[1]: \"all\" is not a whole number"},
		"an alias": {FormatYAML, "- topology: &a t\n  flat: true\n",
			"t:1: [0].topology: is an anchor or alias (which are not read; write the value out) where one value is expected"},
		"no YAML":             {FormatYAML, "- topology: a\n  block: [", "t:2: not YAML: sequence end token ']' not found"},
		"two YAML documents":  {FormatYAML, "---\n- topology: a\n  flat: true\n---\n- topology: b\n", "t:5: a second YAML document begins here; give one file a document"},
		"YAML that nests":     {FormatYAML, strings.Repeat("[", 100_000), "t:1: nests more than 500 deep; a topology does not"},
		"dashes that nest":    {FormatYAML, strings.Repeat("- ", 100_000), "t:1: nests more than 500 deep; a topology does not"},
		"a zero byte":         {FormatConf, "BlockName=a\x00", "t: byte 11 is zero: this is not text; is this the right file?"},
		"a line that was cut": {FormatScontrol, "BlockName=rack01 BlockIndex=0 Nodes=n[1-18]", "t:1: the line is cut short; unset SLURM_TOPO_LEN and ask again"},
		"a spine that was cut": {FormatScontrol, "SwitchName=spine Level=1 LinkSpeed=0 Nodes=n1",
			"t:1: the line is cut short; unset SLURM_TOPO_LEN and ask again"},
		"an answer that is an error": {FormatScontrol, "slurm_load_topo error: Requested topology configuration is not available\n",
			"t:1: slurm did not answer: slurm_load_topo error: Requested topology configuration is not available"},
		"a recording of nothing but errors": {FormatScontrol, "$ scontrol show topology x\nslurm_load_topo error: No\n$ scontrol show topology y\nslurm_load_topo error: No\n",
			"t:4: slurm did not answer: slurm_load_topo error: No"},
		"two answers without a line between": {FormatScontrol, "BlockName=a BlockIndex=0 Nodes=n1 BlockSize=1\nSwitchName=s Level=0 LinkSpeed=0 Nodes=n1\n",
			"t:1: the answer mixes blocks, switches, rings or tori, which one topology cannot; put a line \"$ scontrol show topology NAME\" above each answer"},
		"an aggregated block of blocks that are not there": {FormatScontrol, "AggregatedBlock=rack[01-02] BlockIndex=3 Nodes=n1 BlockSize=36\n",
			"t:1: aggregated block rack[01-02] holds block rack01, which is not printed; give the whole answer"},
		"another command's output":   {FormatScontrol, "NodeName=n1 Arch=x86_64", "t:1: \"NodeName=n1 Arch=x86_64\" is no line of scontrol show topology"},
		"a topoconf in a recording":  {FormatScontrol, "$ scontrol show topology\n\n$ scontrol show topoconf\n- topology: a\n  block: x\n", "t:5: [0].block: is the single value \"x\" where key: value pairs are expected"},
		"an error of slurmrestd":     {FormatNodes, `{"nodes":[],"errors":[{"error":"Unable to contact slurm controller"}]}`, "t: slurm did not answer: Unable to contact slurm controller"},
		"a listing of jobs":          {FormatNodes, `{"jobs":[]}`, "t: no nodes in it; expected the output of `scontrol show node --json` or of slurmrestd's nodes"},
		"a listing that breaks off":  {FormatNodes, `{"nodes":[{"name":"a"},`, "t: read nodes of the node listing at byte 23: unexpected EOF"},
		"a graph without instances":  {FormatGraph, `{}`, "t: no instances in it; expected the result of Topograph's graph engine"},
		"an instance listed twice":   {FormatGraph, `{"instances":[{"id":"a"},{"id":"a"}]}`, "t: instances[1]: a is listed twice; a node has one place"},
		"a table without nodes":      {FormatCSV, "domain,rack\na,b\n", "t:1: no column node in the header \"domain,rack\"; expected a header such as node,domain,rack"},
		"a slip in a column":         {FormatCSV, "node,domian\na,b\n", "t:1: level domian is not known; did you mean domain?"},
		"a node placed twice":        {FormatCSV, "node,domain\nn1,a\nn[1-2],b\n", "t:3: node n1 is placed on line 2 already; a node has one place"},
		"a row that is too long":     {FormatCSV, "node,domain\nn[1,2],b\n", "t:2: 3 cells, the header has 2 columns; put a cell that holds the separator in quotes"},
		"a quote that is not closed": {FormatCSV, "node,domain\n\"n1,b\n", "t:2: column 7: extraneous or missing \" in quoted-field; put a cell that holds the separator in quotes"},
		"a clique without a domain":  {FormatCSV, "node,partition\nn1,1\n", "t:2: partition 1 without a domain; a clique's number repeats in every domain, so give both"},
		"an empty table":             {FormatCSV, "# nothing\n", "t: empty; expected a header such as node,domain,rack"},
		"a slip in YAML":             {FormatStatic, "nodes:\n  - node: n1\n    doman: a\n", "t:3: level doman is not known; did you mean domain?"},
		"an entry without a node":    {FormatStatic, "nodes:\n  - domain: a\n", "t:2: no node; name one, or a hostlist of them"},
		"a key of something else":    {FormatStatic, "nodes: []\napiVersion: v1\n", "t:2: apiVersion: not known here; expected topology or nodes"},
		"nothing that is known":      {FormatAuto, "hello", "t: not a topology that is known here: expected Slurm's topology.conf or topology.yaml, the output of `scontrol show topology`, `scontrol show topoconf` or `scontrol show node --json`, a graph of Topograph, or a table with the column node; name its format if it is one of them"},
		"a request to Topograph":     {FormatAuto, `{"provider":{},"nodes":[{"region":"r","instances":{}}]}`, "t: not a topology that is known here: expected Slurm's topology.conf or topology.yaml, the output of `scontrol show topology`, `scontrol show topoconf` or `scontrol show node --json`, a graph of Topograph, or a table with the column node; name its format if it is one of them"},
		"a format that is none":      {"xml", "<a/>", "t: format \"xml\" is not known; expected one of [auto topology.conf topology.yaml scontrol nodes graph csv static]"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := Parse(strings.NewReader(c.text), "t", c.format)
			if err == nil {
				t.Fatalf("read as\n%s", show(m))
			}
			if got := err.Error(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestAllNamesOfADocumentAreBounded(t *testing.T) {
	_, err := ParseConf(strings.NewReader("BlockName=a Nodes=n[0-65535]m[0-15]\nBlockName=b Nodes=x\n"), "t")
	want := "t:2: block b: more than 1048576 names in one document; check its ranges"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSuspectButRead(t *testing.T) {
	cases := map[string]struct {
		format     Format
		text, want string
	}{
		"keys in any case, comments, spaces, quotes and long lines": {FormatConf,
			"# racks\nblockname = a nodes=\"n[1-2]\" # the first\nBLOCKNAME=b \\\n  NODES=n3\nblocksizes=2\n", trimmed(`
default block default sizes [2]
  n1..n2 (2): block=a
  n3: block=b
`)},
		"an attribute nobody knows is skipped": {FormatConf, "BlockName=a Nodes=n1 Colour=red\n", trimmed(`
default block default
  n1: block=a
! t:1: Colour is not known here and was skipped
`)},
		"a node named twice in one block": {FormatConf, "BlockName=a Nodes=n1,n[1-2]\n", trimmed(`
default block default
  n1..n2 (2): block=a
! t:1: block a lists node n1 twice; once is enough
`)},
		"block sizes without blocks": {FormatConf, "BlockSizes=-1\n", "! t:1: block sizes without any block: whatever wrote this file found no NVLink domains\n"},
		"blocks and switches in one file": {FormatConf, "BlockName=a Nodes=n1\nSwitchName=l Nodes=n1 LinkSpeed=100\n", trimmed(`
default block default
  n1: block=a
default tree default
  n1: leaf=l
`)},
		"a person's comments are no identities": {FormatConf, "# a=row-1\nBlockName=a Nodes=n1\n# b=row-1\nBlockName=b Nodes=n2\n", trimmed(`
default block default
  n1: block=a
  n2: block=b
! t:4: blocks a and b have the same identity row-1 in their comments; the comments are not used
`)},
		"a comment at one block alone": {FormatConf, "# a=cb-1\nBlockName=a Nodes=n1\nBlockName=b Nodes=n2\n", trimmed(`
default block default
  n1: block=a
  n2: block=b
! t:3: block b has no comment with its identity, others do; the comments are not used
`)},
		"the zero cluster is no domain": {FormatConf, "# a=00000000-0000-0000-0000-000000000000.0\nBlockName=a Nodes=n[1-2]\n", trimmed(`
default block default
  n1: block=a domain=node:n1 partition=node:n1
  n2: block=a domain=node:n2 partition=node:n2
`)},
		"a node under two leaf switches keeps what they share": {FormatConf, "SwitchName=s Switches=l[1-2]\nSwitchName=l1 Nodes=n[1-2]\nSwitchName=l2 Nodes=n[2-3]\n", trimmed(`
default tree default
  n1: spine=s leaf=l1
  n2: spine=s
  n3: spine=s leaf=l2
! t:3: 1 nodes of switch l2 hang under another leaf switch too; their leaf is left out
`)},
		"every uplink listed": {FormatConf, "SwitchName=s1 Switches=l[1-2]\nSwitchName=s2 Switches=l[1-2]\nSwitchName=c Switches=s[1-2]\nSwitchName=l1 Nodes=n1\nSwitchName=l2 Nodes=n2\n", trimmed(`
default tree default
  n1: core=c leaf=l1
  n2: core=c leaf=l2
! t:4: 2 switches (l1 first) hang below several switches of level spine, which is left out for their nodes; list one uplink a switch to have it
`)},
		"a leaf right below the core": {FormatConf, "SwitchName=c Switches=s,l2\nSwitchName=s Switches=l1\nSwitchName=l1 Nodes=n1\nSwitchName=l2 Nodes=n2\n", trimmed(`
default tree default
  n1: core=c spine=s leaf=l1
  n2: core=c leaf=l2
`)},
		"switches without nodes, as of dynamic nodes": {FormatYAML, "- topology: t\n  tree:\n    switches:\n    - switch: s\n      children: l\n    - switch: l\n", "t tree\n"},
		"nodes and children in YAML": {FormatYAML, "- topology: t\n  tree:\n    switches:\n    - {switch: s, children: l, nodes: n1}\n    - {switch: l, nodes: n2}\n", trimmed(`
t tree
  n1: leaf=s
  n2: leaf=l
! t:4: switch s has both children and nodes; its children are ignored, as Slurm does
`)},
		"a second default": {FormatYAML, "- {topology: a, cluster_default: Yes, flat: true}\n- {topology: b, cluster_default: true, flat: {alpha_step_rank: true}}\n", trimmed(`
a flat default
b flat
! t:2: topology b is a second cluster_default; Slurm takes the first, a
`)},
		"keys of a later release": {FormatYAML, "- topology: a\n  colour: red\n  block:\n    shape: cube\n    blocks:\n    - {block: b, nodes: n1, cooling: water}\n", trimmed(`
a block
  n1: block=b
! t:2: [0].colour is not known here and was skipped
! t:4: [0].block.shape is not known here and was skipped
! t:6: [0].block.blocks[0].cooling is not known here and was skipped
`)},
		"one entry without a dash":        {FormatYAML, "- topology: a\n  block:\n    blocks:\n      block: b\n      nodes: n1\n", "a block\n  n1: block=b\n"},
		"an emptied block and switch":     {FormatScontrol, "BlockName=a BlockIndex=0 Nodes= BlockSize=2\nBlockName=b BlockIndex=1 Nodes=n1 BlockSize=2\n", "default block default sizes [2]\n  n1: block=b\n"},
		"an emptied switch above another": {FormatScontrol, "SwitchName=s Level=1 LinkSpeed=0 Nodes= Switches=l\nSwitchName=l Level=0 LinkSpeed=0 Nodes=\n", "default tree default\n"},
		"an empty answer":                 {FormatScontrol, "\n", ""},
		"three sizes printed in any order": {FormatScontrol, "AggregatedBlock=b[1-4] BlockIndex=7 Nodes=n[1-4] BlockSize=4\nBlockName=b1 BlockIndex=0 Nodes=n1 BlockSize=1\nBlockName=b2 BlockIndex=1 Nodes=n2 BlockSize=1\nBlockName=b3 BlockIndex=2 Nodes=n3 BlockSize=1\nBlockName=b4 BlockIndex=3 Nodes=n4 BlockSize=1\nAggregatedBlock=b[1-2] BlockIndex=5 Nodes=n[1-2] BlockSize=2\nAggregatedBlock=b[3-4] BlockIndex=6 Nodes=n[3-4] BlockSize=2\n", trimmed(`
default block default sizes [1 2 4]
  n1: block_group_4=b[1-4] block_group=b[1-2] block=b1
  n2: block_group_4=b[1-4] block_group=b[1-2] block=b2
  n3: block_group_4=b[1-4] block_group=b[3-4] block=b3
  n4: block_group_4=b[1-4] block_group=b[3-4] block=b4
`)},
		"a later answer of a recording": {FormatScontrol, "$ scontrol show topology nvl\nBlockName=a BlockIndex=0 Nodes=n1 BlockSize=1\n$ squeue\nJOBID\n$ scontrol show topology nvl\nBlockName=a BlockIndex=0 Nodes=n2 BlockSize=1\n", trimmed(`
nvl block sizes [1]
  n2: block=a
! t:6: topology nvl was printed before and differs; the later answer is used
`)},
		"topologies of nodes that are odd": {FormatNodes, `{"nodes":[{"name":"n1","topology":"x"},{"name":"n1"},{"name":""},{"name":"n2","topology":7},{"name":"n3","topology":"a:b,"},{"name":"n4","topology":null}]}`, trimmed(`
a labels
  n3: unit=b
! t: node n1: its topology "x" is not NAME:UNIT and was skipped
! t: 3 nodes without a name, listed twice, or with a topology that is no text were skipped
`)},
		"an old and a new label that agree": {FormatGraph, `{"instances":[{"id":"n1","labels":{"accelerator.topograph.run/domain":"d","network.topology.nvidia.com/accelerator":"d","accelerator.topograph.run/sub-domain":"2"}}]}`, trimmed(`
topograph labels
  n1: domain=d partition=d.2
`)},
		"an old and a new label that do not": {FormatGraph, `{"instances":[{"id":"n1","network_layers":["l"],"labels":{"accelerator.topograph.run/domain":"d","network.topology.nvidia.com/accelerator":"e"}}]}`, trimmed(`
topograph labels
  n1: leaf=l
! t: n1: label accelerator.topograph.run/domain says domain d, label network.topology.nvidia.com/accelerator says e; its domain is left out until they agree
`)},
		"a cloud's name for the domain and the clique inside": {FormatGraph, `{"instances":[{"id":"n1","labels":{"network.topology.nvidia.com/accelerator":"cb-1","nvidia.com/gpu.clique":"6c1f2a90-77aa-4a1e-9c00-0000000000a1.3"}}]}`, trimmed(`
topograph labels
  n1: domain=cb-1 partition=6c1f2a90-77aa-4a1e-9c00-0000000000a1.3
`)},
		"the first graph engine": {FormatGraph, `{"instances":[{"id":"n1","type":"H100","network_layers":["l","","c"],"attributes":{"nvlink":"nvl-1"}}]}`, trimmed(`
topograph labels
  n1: core=c leaf=l domain=nvl-1
`)},
		"a table with semicolons and a mark at its head": {FormatCSV, "\ufeff# racks\nNode; Domain\nn1; a\n\nn2;\n", trimmed(`
static labels
  n1: domain=a
  n2: 
`)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := Parse(strings.NewReader(c.text), "t", c.format)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, show(m)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestDetect(t *testing.T) {
	for name, c := range map[string]struct {
		head string
		want Format
	}{
		"nothing":                    {"", ""},
		"jobs":                       {`{"jobs":[{"job_id":1}]}`, ""},
		"nodes after meta":           {`{"meta":{},"nodes":[{"architecture":"x`, FormatNodes},
		"no node at all":             {`{"nodes":[],"last_update":{}}`, FormatNodes},
		"nodes of Kubernetes":        {`{"apiVersion":"v1","items":[]}`, ""},
		"a recording of other tools": {"$ scontrol show job\nJobId=1\n", ""},
		"conf after many comments":   {strings.Repeat("# c\n", 100) + " blockname=a nodes=b", FormatConf},
		"a manifest":                 {"---\napiVersion: v1\n", ""},
		"a table with node last":     {"rack,Node\n", FormatCSV},
		"a table of other things":    {"user,jobs\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if f, ok := Detect([]byte(c.head)); f != c.want || ok != (c.want != "") {
				t.Errorf("got %q %v, want %q", f, ok, c.want)
			}
		})
	}
}

// checkMap says what any map must keep, whatever the document.
func checkMap(t *testing.T, m *Map) {
	t.Helper()
	for _, tp := range m.Topologies {
		seen := map[string]bool{}
		for _, n := range tp.Nodes {
			if n.Name == "" || seen[n.Name] {
				t.Fatalf("topology %s: node %q has no name or is there twice", tp.Name, n.Name)
			}
			seen[n.Name] = true
			levels := map[string]bool{}
			for _, l := range n.Levels {
				if l.Level == "" || l.Value == "" || levels[l.Level] {
					t.Fatalf("node %s: level %v is empty or there twice: %v", n.Name, l, n.Levels)
				}
				levels[l.Level] = true
			}
		}
	}
	if _, err := m.View(Choice{DomainLevel: "block", Kinds: map[string]Kind{"nvl": KindBlock}}); err != nil {
		t.Fatal(err)
	}
}

// A document may break off anywhere: what was read until there, or an error, never a panic or a node without a name.
func TestEveryPrefix(t *testing.T) {
	for format, p := range parsers {
		for _, name := range p.documents {
			b := testdata(t, name)
			for i := range len(b) + 1 {
				if m, err := p.parse(bytes.NewReader(b[:i:i]), name); err == nil {
					checkMap(t, m)
				} else if m != nil {
					t.Fatalf("%s cut at %d: a map beside the error %v", name, i, err)
				}
				if f, ok := Detect(b[:i:i]); ok && f != format && i == len(b) {
					t.Errorf("%s is taken for %s", name, f)
				}
			}
		}
	}
}

func fuzz(f *testing.F, format Format) {
	p := parsers[format]
	for _, name := range p.documents {
		f.Add(testdata(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := p.parse(bytes.NewReader(b), "fuzz")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fuzz") {
				t.Errorf("error %q does not name the document", err)
			}
			return
		}
		checkMap(t, m)
		Detect(b)
	})
}

func FuzzParseConf(f *testing.F)     { fuzz(f, FormatConf) }
func FuzzParseYAML(f *testing.F)     { fuzz(f, FormatYAML) }
func FuzzParseScontrol(f *testing.F) { fuzz(f, FormatScontrol) }
func FuzzParseNodes(f *testing.F)    { fuzz(f, FormatNodes) }
func FuzzParseGraph(f *testing.F)    { fuzz(f, FormatGraph) }
func FuzzParseCSV(f *testing.F)      { fuzz(f, FormatCSV) }
func FuzzParseStatic(f *testing.F)   { fuzz(f, FormatStatic) }

// A fleet of 560 racks, 10,080 nodes, as its topology.yaml.
func BenchmarkParseAndView(b *testing.B) {
	var text strings.Builder
	text.WriteString("- topology: nvl\n  cluster_default: true\n  block:\n    block_sizes: [18, 36, 72]\n    blocks:\n")
	for i := range 560 {
		fmt.Fprintf(&text, "      - block: rack%03d\n        nodes: gb-r%03d-n[01-18]\n", i, i)
	}
	text.WriteString("- topology: ib\n  tree:\n    switches:\n      - {switch: spine, children: \"leaf[000-559]\"}\n")
	for i := range 560 {
		fmt.Fprintf(&text, "      - {switch: leaf%03d, nodes: \"gb-r%03d-n[01-18]\"}\n", i, i)
	}
	for b.Loop() {
		m, err := ParseYAML(strings.NewReader(text.String()), "b")
		if err != nil {
			b.Fatal(err)
		}
		v, err := m.View(Choice{DomainLevel: "block"})
		if err != nil || len(v.Nodes) != 10080 || len(v.Nodes[0].Levels) != 6 {
			b.Fatal(err, len(v.Nodes))
		}
	}
}

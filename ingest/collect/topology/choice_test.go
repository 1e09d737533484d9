package topology

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func showView(v View) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", v.Topology)
	showNodes(&b, v.Nodes)
	for _, i := range v.Issues {
		fmt.Fprintf(&b, "! %s\n", i)
	}
	return b.String()
}

func TestView(t *testing.T) {
	const twoPartitions = `
- topology: a
  block: {blocks: [{block: b1, nodes: "n[1-2]"}]}
- topology: b
  cluster_default: true
  block: {blocks: [{block: b1, nodes: "n[3-4]"}]}
- topology: net
  tree: {switches: [{switch: l1, nodes: "n[1-3]"}]}
- topology: other
  tree: {switches: [{switch: x1, nodes: "n[1-4]"}]}
`
	const listing = `{"nodes":[{"name":"n1","topology":"ib:l1,nvl:r1"},{"name":"n2","topology":"ib:l1,nvl:r2"}]}`
	const tree = "SwitchName=s Switches=l[1-2]\nSwitchName=l1 Nodes=n1\nSwitchName=l2 Nodes=n2\n"
	const sizes = "BlockName=b1 Nodes=n1\nBlockName=b2 Nodes=n2\nBlockName=b3 Nodes=n3\nBlockSizes=1,2\n"
	const table = "node,rack,domain,room\nn1,r1,,hall\nn2,r2,d,hall\nn3,,,\n"
	const graph = `{"instances":[{"id":"i-1","network_layers":["l"]},{"id":"i-2"},{"id":"i-3","network_layers":["l"]}]}`
	cases := map[string]struct {
		text   string
		choice Choice
		want   string
		err    string
	}{
		"the default block topology and the first tree": {twoPartitions, Choice{DomainLevel: "block"}, `
b
  n3: leaf=l1 block=b1 domain=b1
  n4: block=b1 domain=b1
  n1..n2 (2): leaf=l1
`, ""},
		"a list of topologies": {twoPartitions, Choice{DomainLevel: "block", Topologies: []string{"a", "other"}}, `
a
  n1..n2 (2): leaf=x1 block=b1 domain=b1
  n3..n4 (2): leaf=x1
`, ""},
		"a name that two listed topologies give is one": {twoPartitions, Choice{DomainLevel: "block", Topologies: []string{"a", "b"}}, `
a
  n1..n4 (4): block=b1 domain=b1
! t: block b1 is in topology b and in one before it, and is taken for the same; if it is not, give them different names
`, ""},
		"a topology that is not there": {twoPartitions, Choice{Topologies: []string{"nvl"}}, "",
			"t: no topology nvl in it, only a, b, net, other; correct the list of topologies"},
		"nodes that only an unused topology knows": {"- topology: a\n  block: {blocks: [{block: b1, nodes: n1}]}\n- topology: b\n  block: {blocks: [{block: b1, nodes: n2}]}\n", Choice{}, `
a
  n1: block=b1
! t: 1 nodes are only in topology b, which is not used; list it in topologies, after a
`, ""},
		"a tree never gives a domain": {tree, Choice{DomainLevel: "block"}, `
default
  n1: spine=s leaf=l1
  n2: spine=s leaf=l2
`, ""},
		"unless it is configured to": {tree, Choice{DomainLevel: "leaf"}, `
default
  n1: spine=s leaf=l1 domain=l1
  n2: spine=s leaf=l2 domain=l2
`, ""},
		"aggregated blocks as domains": {sizes, Choice{DomainLevel: "block_group"}, `
default
  n1: block_group=b[1-2] block=b1 domain=b[1-2]
  n2: block_group=b[1-2] block=b2 domain=b[1-2]
  n3: block=b3
`, ""},
		"no level is the domain": {sizes, Choice{DomainLevel: "none"}, `
default
  n1: block_group=b[1-2] block=b1
  n2: block_group=b[1-2] block=b2
  n3: block=b3
`, ""},
		"a domain that the source names counts more than the level, and a node without levels is left out": {table, Choice{DomainLevel: "rack"}, `
static
  n1: room=hall rack=r1 domain=r1
  n2: room=hall rack=r2 domain=d
`, ""},
		"units of nodes whose kind nobody told": {listing, Choice{DomainLevel: "block"}, `

! t: topology ib: whether its units are blocks or leaf switches is not said here, so its 2 nodes were left out; set kinds: {ib: block} or {ib: tree}
! t: topology nvl: whether its units are blocks or leaf switches is not said here, so its 2 nodes were left out; set kinds: {nvl: block} or {nvl: tree}
`, ""},
		"units of nodes by kinds": {listing, Choice{DomainLevel: "block", Kinds: map[string]Kind{"nvl": KindBlock, "ib": KindTree}}, `
nvl
  n1: leaf=l1 block=r1 domain=r1
  n2: leaf=l1 block=r2 domain=r2
`, ""},
		"instances get the names of their nodes": {graph, Choice{Names: map[string]string{"i-1": "n1", "i-2": "n2"}}, `
topograph
  n1: leaf=l
! t: 1 instances have no node name and were left out; bring the file of instances up to date
`, ""},
		"nothing at all": {"\n", Choice{}, "\n\n", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := Parse(strings.NewReader(c.text), "t", FormatAuto)
			if err != nil {
				t.Fatal(err)
			}
			v, err := m.View(c.choice)
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Errorf("got %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want[1:], showView(v)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestInstances(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want map[string]string
		err  string
	}{
		"the request that Topograph was given": {string(testdata(t, "topograph-request.json")), map[string]string{"i-sample0001": "gb200-a-01", "i-sample0019": "gb200-b-01"}, ""},
		"a plain object":                       {`{"i-1":"n1"}`, map[string]string{"i-1": "n1"}, ""},
		"something else":                       {`[]`, nil, "t: read instances: json: cannot unmarshal array into Go value of type map[string]string; expected an object of instance id to node name, or a Topograph request"},
		"an empty object":                      {`{}`, nil, "t: no instances in it; expected an object of instance id to node name, or a Topograph request"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Instances(strings.NewReader(c.text), "t")
			if fmt.Sprint(err) != c.err && (err != nil || c.err != "") {
				t.Errorf("got %v, want %s", err, c.err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestLevelsAreOrderedOutermostFirst(t *testing.T) {
	want := []Level{{"room", "1"}, {"tier4", "1"}, {"tier3", "1"}, {"core", "1"}, {"spine", "1"}, {"leaf", "1"}, {"rack", "1"},
		{"block_group_4", "1"}, {"block_group", "1"}, {"block", "1"}, {"domain", "1"}, {"partition", "1"}}
	got := make([]Level, len(want))
	for i, l := range want {
		got[len(want)-1-i] = l
	}
	sortLevels(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

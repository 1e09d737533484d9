package pass

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/schemas/event"
)

const (
	uuidX = "11111111-aaaa-bbbb-cccc-000000000001"
	uuidY = "11111111-aaaa-bbbb-cccc-000000000002"
	uuid0 = "00000000-0000-0000-0000-000000000000"
)

var (
	viewNVML  = view{event.SourceNVML, ""}
	viewDCGM  = view{event.SourceDCGM, ""}
	viewLabel = view{event.SourceGFDLabel, ""}
	viewNew   = view{event.SourceTopograph, "accelerator.topograph.run"}
	viewOld   = view{event.SourceTopograph, "network.topology.nvidia.com"}
	viewSlurm = view{event.SourceSlurmTopology, ""}
	viewTree  = view{event.SourceSlurmTopology, "ib"}
)

// fabric is a record of four GPUs with one identity.
func fabric(node, uuid string, clique uint32, state, status string) membershipRecord {
	r := membershipRecord{node: node}
	for range 4 {
		r.gpus = append(r.gpus, gpuIdentity{uuid, &clique, state, status})
	}
	return r
}

func good(node, uuid string, clique uint32) membershipRecord {
	return fabric(node, uuid, clique, "completed", "success")
}

// block is a record of a source that names a domain.
func block(node, domain string) membershipRecord {
	return membershipRecord{node: node, levels: []string{"domain"}, values: []string{domain}}
}

func gone(node string) membershipRecord { return membershipRecord{node: node, removed: true} }

// run resolves records whose revision is their time, unless told otherwise.
func run(from int64, records ...said) (*oracle, map[string]nodeView) {
	o := &oracle{}
	for i := range records {
		r := &records[i]
		if r.revision == 0 {
			r.revision = uint64(r.at)
		}
		if !slices.Contains(o.views, r.view) {
			o.views = append(o.views, r.view)
		}
		if !slices.Contains(o.nodes, r.record.node) {
			o.nodes = append(o.nodes, r.record.node)
		}
	}
	o.records = records
	sortViews(o.views, event.MembershipSources())
	out := map[string]nodeView{}
	for i, nv := range resolve(o.views, o.facts(), from) {
		out[o.nodes[i]] = nv
	}
	return o, out
}

// print writes a node's outcome as text: time, domain, partition, source or the reason why unknown; then conflicts.
func (nv nodeView) print() string {
	var b strings.Builder
	for _, e := range nv.effective {
		fmt.Fprintf(&b, "%d %s", e.from, e.value.source)
		if e.value.domain != "" {
			fmt.Fprintf(&b, " %s (%s)", e.value.domain, e.value.partition)
		}
		if e.value.reason != "" {
			fmt.Fprintf(&b, " ?%s", e.value.reason)
		}
		for _, level := range slices.Sorted(maps.Keys(e.value.levels)) {
			fmt.Fprintf(&b, " %s=%s", level, e.value.levels[level])
		}
		b.WriteString("\n")
	}
	var lines []string
	for p, list := range nv.conflicts {
		for _, c := range list {
			to := fmt.Sprint(c.to)
			if c.to == forever {
				to = ""
			}
			lines = append(lines, fmt.Sprintf("! %d-%s %s:%s / %s:%s\n", c.from, to, p.a, c.value.domainA, p.b, c.value.domainB))
		}
	}
	slices.Sort(lines)
	out := strings.Join(append([]string{b.String()}, lines...), "")
	return strings.NewReplacer(uuidX, "X", uuidY, "Y").Replace(out)
}

func TestResolve(t *testing.T) {
	at := func(at int64, v view, r membershipRecord) said { return said{view: v, at: at, record: r} }
	cases := map[string]struct {
		records []said
		want    map[string]string
	}{
		"the same CliqueID under two ClusterUUIDs is two domains and two partitions": {
			[]said{at(10, viewNVML, good("n1", uuidX, 17044)), at(10, viewNVML, good("n2", uuidY, 17044))},
			map[string]string{"n1": "10 nvml X (X.17044)\n", "n2": "10 nvml Y (Y.17044)\n"},
		},
		"CliqueID 32766 on unrelated racks joins nothing": {
			[]said{at(10, viewNVML, good("n1", uuidX, 32766)), at(10, viewNVML, good("n2", uuidY, 32766))},
			map[string]string{"n1": "10 nvml X (X.32766)\n", "n2": "10 nvml Y (Y.32766)\n"},
		},
		"two cliques of one ClusterUUID are one domain and two partitions": {
			[]said{at(10, viewNVML, good("n1", uuidX, 1)), at(10, viewNVML, good("n2", uuidX, 2))},
			map[string]string{"n1": "10 nvml X (X.1)\n", "n2": "10 nvml X (X.2)\n"},
		},
		"the zero ClusterUUID with a completed registration makes each node a domain of its own": {
			[]said{at(10, viewNVML, good("h1", uuid0, 0)), at(10, viewNVML, good("h2", uuid0, 0))},
			map[string]string{"h1": "10 nvml node:h1 (node:h1)\n", "h2": "10 nvml node:h2 (node:h2)\n"},
		},
		"hardware without a fabric is a domain of its own": {
			[]said{at(10, viewNVML, fabric("a1", "", 0, "not_supported", ""))},
			map[string]string{"a1": "10 nvml node:a1 (node:a1)\n"},
		},
		"in progress for 30 s after boot is unknown, then known": {
			[]said{at(10, viewNVML, fabric("n1", uuid0, 0, "in_progress", "")), at(30_010, viewNVML, good("n1", uuidX, 3))},
			map[string]string{"n1": "10 nvml ?in_progress\n30010 nvml X (X.3)\n"},
		},
		"insufficient resources with clique 0 is unhealthy and never domain 0": {
			[]said{at(10, viewNVML, fabric("n1", uuid0, 0, "completed", "insufficient_resources"))},
			map[string]string{"n1": "10 nvml ?unhealthy\n"},
		},
		"what the fabric says of a sick node is not overruled by a file that names its rack": {
			[]said{
				at(5, viewSlurm, block("n1", "rack01")), at(10, viewNVML, fabric("n1", uuid0, 0, "completed", "insufficient_resources")),
			},
			map[string]string{"n1": "5 slurm_topology rack01 ()\n10 nvml ?unhealthy\n"},
		},
		"a source that only lists GPUs says nothing of the domain": {
			[]said{at(10, viewDCGM, fabric("n1", uuidX, 3, "", "")), at(20, viewSlurm, block("n1", "rack01"))},
			map[string]string{"n1": "10  ?no_source\n20 slurm_topology rack01 ()\n"},
		},
		"GPUs of one node that disagree make it unknown": {
			[]said{at(10, viewNVML, membershipRecord{node: "n1", gpus: append(good("n1", uuidX, 1).gpus, good("n1", uuidY, 1).gpus...)})},
			map[string]string{"n1": "10 nvml ?conflict\n"},
		},
		"a ClusterUUID that changes by maintenance closes an interval and opens the next": {
			[]said{at(10, viewNVML, good("n1", uuidX, 1)), at(500, viewNVML, good("n1", uuidY, 1))},
			map[string]string{"n1": "10 nvml X (X.1)\n500 nvml Y (Y.1)\n"},
		},
		"a refresh that says the same changes nothing": {
			[]said{at(10, viewNVML, good("n1", uuidX, 1)), at(20, viewNVML, good("n1", uuidX, 1)), at(20, viewNVML, good("n1", uuidX, 1))},
			map[string]string{"n1": "10 nvml X (X.1)\n"},
		},
		"two sources agree under different names, and the nodes only one of them knows are translated": {
			[]said{
				at(10, viewSlurm, block("n1", "rack01")), at(10, viewSlurm, block("n2", "rack01")), at(10, viewSlurm, block("n3", "rack02")),
				at(50, viewNVML, good("n1", uuidX, 1)),
			},
			map[string]string{
				"n1": "10 slurm_topology rack01 ()\n50 nvml X (X.1)\n",
				"n2": "10 slurm_topology rack01 ()\n50 slurm_topology X ()\n",
				"n3": "10 slurm_topology rack02 ()\n",
			},
		},
		"a lower domain that spans several higher ones tells nothing of the rest, and the disagreement is listed": {
			[]said{
				at(10, viewSlurm, block("n1", "rack01")), at(10, viewSlurm, block("n2", "rack01")), at(10, viewSlurm, block("n3", "rack01")),
				at(50, viewNVML, good("n1", uuidX, 1)), at(60, viewNVML, good("n2", uuidY, 1)),
			},
			map[string]string{
				"n1": "10 slurm_topology rack01 ()\n50 nvml X (X.1)\n! 60- nvml:X / slurm_topology:rack01\n",
				"n2": "10 slurm_topology rack01 ()\n50 slurm_topology X ()\n60 nvml Y (Y.1)\n! 60- nvml:Y / slurm_topology:rack01\n",
				"n3": "10 slurm_topology rack01 ()\n50 slurm_topology X ()\n60 slurm_topology ?conflict\n! 60- nvml: / slurm_topology:rack01\n",
			},
		},
		"the odd one out is listed, not the rack that agrees": {
			[]said{
				at(10, viewNVML, good("n1", uuidX, 1)), at(10, viewNVML, good("n2", uuidX, 1)), at(10, viewNVML, good("n3", uuidY, 1)),
				at(20, viewSlurm, block("n1", "rack01")), at(20, viewSlurm, block("n2", "rack01")), at(20, viewSlurm, block("n3", "rack01")),
			},
			map[string]string{
				"n1": "10 nvml X (X.1)\n", "n2": "10 nvml X (X.1)\n",
				"n3": "10 nvml Y (Y.1)\n! 20- nvml:Y / slurm_topology:rack01\n",
			},
		},
		"a stale fabric label is listed although its grouping would fit": {
			[]said{at(10, viewLabel, good("n1", uuidY, 1)), at(20, viewNVML, good("n1", uuidX, 1))},
			map[string]string{"n1": "10 gfd_label Y (Y.1)\n20 nvml X (X.1)\n! 20- nvml:X / gfd_label:Y\n"},
		},
		"a block of nodes that share NVLink with nobody is never named after one of them": {
			[]said{
				at(10, viewSlurm, block("h1", "b1")), at(10, viewSlurm, block("h2", "b1")), at(20, viewNVML, good("h1", uuid0, 0)),
			},
			map[string]string{
				"h1": "10 slurm_topology b1 ()\n20 nvml node:h1 (node:h1)\n! 20- nvml:node:h1 / slurm_topology:b1\n",
				"h2": "10 slurm_topology b1 ()\n20 slurm_topology ?conflict\n! 20- nvml: / slurm_topology:b1\n",
			},
		},
		"old and new label keys with different values are listed": {
			[]said{
				at(10, viewNew, block("n1", "d1")), at(10, viewNew, block("n2", "d1")), at(10, viewNew, block("n3", "d2")),
				at(10, viewOld, block("n1", "d1")), at(10, viewOld, block("n2", "d1")), at(10, viewOld, block("n3", "d1")),
			},
			map[string]string{
				"n1": "10 topograph d1 ()\n", "n2": "10 topograph d1 ()\n",
				"n3": "10 topograph d2 ()\n! 10- topograph/accelerator.topograph.run:d2 / topograph/network.topology.nvidia.com:d1\n",
			},
		},
		"one record that names two domains is a conflict": {
			[]said{at(10, viewNew, membershipRecord{node: "n1", levels: []string{"domain", "domain"}, values: []string{"a", "b"}})},
			map[string]string{"n1": "10 topograph ?conflict\n"},
		},
		"a tree beside a block topology adds its levels": {
			[]said{
				at(10, viewSlurm, block("n1", "rack01")),
				at(10, viewTree, membershipRecord{node: "n1", levels: []string{"spine", "leaf"}, values: []string{"s1", "l1"}}),
			},
			map[string]string{"n1": "10 slurm_topology rack01 () leaf=l1 spine=s1\n"},
		},
		"a source that is removed leaves the word to the next, and the last one leaves nothing": {
			[]said{
				at(10, viewNVML, good("n1", uuidX, 1)), at(10, viewSlurm, block("n1", "rack01")),
				at(20, viewNVML, gone("n1")), at(30, viewSlurm, gone("n1")), at(40, viewNVML, good("n1", uuidX, 1)),
			},
			map[string]string{"n1": "10 nvml X (X.1)\n20 slurm_topology rack01 ()\n30  ?removed\n40 nvml X (X.1)\n"},
		},
		"records in any order, an hour late, give the intervals of their times": {
			[]said{
				at(7_200_000, viewNVML, good("n1", uuidX, 1)), at(3_600_000, viewNVML, good("n1", uuidY, 1)), at(10, viewNVML, good("n1", uuidX, 1)),
			},
			map[string]string{"n1": "10 nvml X (X.1)\n3600000 nvml Y (Y.1)\n7200000 nvml X (X.1)\n"},
		},
		"a declared time reaches back over what was observed before": {
			[]said{at(10, viewSlurm, block("n1", "a")), {view: viewSlurm, at: 5, revision: 20, record: block("n1", "b")}},
			map[string]string{"n1": "5 slurm_topology b ()\n"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, got := run(0, c.records...)
			text := map[string]string{}
			for node, nv := range got {
				text[node] = nv.print()
			}
			if d := cmp.Diff(c.want, text); d != "" {
				t.Fatalf("want - got +\n%s", d)
			}
		})
	}
}

// The oracle recomputes everything from all records at every moment; resolve must say the same, from any moment on.
func TestResolveAgreesWithTheOracle(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(120) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		records := randomRecords(rnd, 5+rnd.IntN(60))
		for _, from := range []int64{0, int64(rnd.IntN(40))} {
			o, got := run(from, records...)
			for _, node := range o.nodes {
				compareNode(t, seed, o, node, got[node], from)
				for _, e := range got[node].effective {
					seen[e.value.reason]++
				}
				for _, list := range got[node].conflicts {
					for _, c := range list {
						seen[c.value.detail]++
					}
				}
			}
		}
	}
	if len(seen) != 10 { // known, five reasons, four kinds of conflict
		t.Fatalf("the random records are too tame: %v", seen)
	}
}

func compareNode(t *testing.T, seed uint64, o *oracle, node string, got nodeView, from int64) {
	t.Helper()
	for _, m := range append(o.moments(), from) {
		if m < from {
			continue
		}
		want, have := o.effective(node, m), at(got.effective, m)
		if (want == nil) != (have == nil) || want != nil && !want.equal(*have) {
			t.Fatalf("seed %d, %s at %d: want %+v, got %+v", seed, node, m, want, have)
		}
		conflicts := map[pairOf]conflict{}
		for p, list := range got.conflicts {
			if c := at(list, m); c != nil {
				conflicts[p] = *c
			}
		}
		if d := cmp.Diff(o.conflicts(node, m), conflicts, cmp.AllowUnexported(pairOf{}, conflict{})); d != "" {
			t.Fatalf("seed %d, conflicts of %s at %d: want - got +\n%s", seed, node, m, d)
		}
	}
	for i, e := range got.effective[min(1, len(got.effective)):] {
		if before := got.effective[i]; before.to == e.from && before.value.equal(e.value) {
			t.Fatalf("seed %d, %s: the intervals at %d and %d say the same", seed, node, before.from, e.from)
		}
	}
}

// randomRecords are records of few nodes, views and domains at few moments, so that everything collides.
func randomRecords(rnd *rand.Rand, n int) []said {
	views := []view{viewNVML, viewLabel, viewNew, viewOld, viewSlurm, viewTree}
	var out []said
	for range n {
		r := said{view: views[rnd.IntN(len(views))], at: 1 + int64(rnd.IntN(40))}
		r.revision = uint64(r.at)
		if rnd.IntN(6) == 0 {
			r.revision += uint64(rnd.IntN(20)) // declared for an earlier time than it was seen
		}
		node := fmt.Sprintf("n%d", rnd.IntN(7))
		switch k := rnd.IntN(20); {
		case k == 0:
			r.record = gone(node)
		case k == 1:
			r.record = fabric(node, uuid0, 0, "in_progress", "")
		case k == 2:
			r.record = fabric(node, uuid0, 0, "completed", "insufficient_resources")
		case k == 3:
			r.record = good(node, uuid0, 0)
		case k == 4:
			r.record = membershipRecord{node: node, levels: []string{"leaf"}, values: []string{fmt.Sprint(rnd.IntN(2))}}
		case fabricSources[r.view.source]:
			r.record = good(node, []string{uuidX, uuidY}[rnd.IntN(2)], uint32(rnd.IntN(2)))
		default:
			r.record = block(node, fmt.Sprintf("rack%d", rnd.IntN(3)))
		}
		out = append(out, r)
	}
	return out
}

// Whatever a source prints, a node has a domain or a reason why not, a partition lies in its domain, and no domain is
// made of zeros.
func FuzzMembershipFact(f *testing.F) {
	f.Add("completed", "success", uuidX, uint32(3), "completed", "success", uuidX, "domain", "rack1", "partition", "7", false)
	f.Add("completed", "success", uuid0, uint32(0), "in_progress", "", "", "block", "b1", "domain", uuid0, false)
	f.Add("completed", "insufficient_resources", uuid0, uint32(0), "", "", "", "", "", "", "", true)
	f.Add("not_supported", "", "", uint32(32766), "Completed", "Success", "0", "domain", "a", "domain", "b", false)
	f.Fuzz(func(t *testing.T, s1, t1, u1 string, clique uint32, s2, t2, u2, l1, v1, l2, v2 string, removed bool) {
		r := membershipRecord{
			node: "n1", levels: []string{l1, l2}, values: []string{v1, v2}, removed: removed,
			gpus: []gpuIdentity{{u1, &clique, s1, t1}, {u2, nil, s2, t2}},
		}
		got := r.fact()
		if (got.domain == "") == (got.reason == "") {
			t.Fatalf("domain %q with reason %q", got.domain, got.reason)
		}
		if got.partition != "" && !ownDomain(got.domain) && !strings.HasPrefix(got.partition, got.domain+".") {
			t.Fatalf("partition %q is not of domain %q", got.partition, got.domain)
		}
		if got.domain == uuid0 {
			t.Fatal("a domain of zeros")
		}
		if got.levels == nil || !got.equal(r.fact()) {
			t.Fatalf("the fact is not stable: %+v", got)
		}
	})
}

package advise

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/internal/testenv"
)

// TestSlurmBlockIsSlurms asks a real slurmctld 24.11 with topology/block where jobs would start, and SlurmBlock the same:
// the baseline that other strategies are compared with must be Slurm and not an idea of it.
func TestSlurmBlockIsSlurms(t *testing.T) {
	from := testenv.SlurmWithBlocks(t)
	for _, c := range []struct {
		nodes, sizes []int32 // of each block in nodes, and BlockSizes
	}{
		{nodes: []int32{18, 18, 18, 18}, sizes: []int32{18}},
		{nodes: []int32{18, 18, 18, 18}, sizes: []int32{16}},
		{nodes: []int32{5, 6, 7, 8}, sizes: []int32{5}},
		{nodes: []int32{8, 8, 8, 8}, sizes: []int32{8, 16, 32}},
		{nodes: []int32{6, 6, 6, 6, 6}, sizes: []int32{6, 12}},
		{nodes: []int32{8, 8, 8, 8, 8, 8, 8}, sizes: []int32{8, 32}},
		{nodes: []int32{4, 7, 4, 6, 6}},
		{nodes: slices.Repeat([]int32{2}, 40)},
	} {
		t.Run(fmt.Sprintf("%d blocks of %d nodes, sizes %d", len(c.nodes), c.nodes[0], c.sizes), func(t *testing.T) {
			s := startBlocks(t, from, c.nodes, c.sizes)
			rng := rand.New(rand.NewPCG(1, 2))
			total := int32(0)
			for _, n := range c.nodes {
				total += n
			}
			asked, placed := 0, 0
			for round := range 8 {
				if round > 0 {
					s.occupy(t, rng)
				}
				for range 20 {
					a := Ask{Mode: Preferred, GPUsPerNode: 4, MaxWait: -1, Nodes: 1 + rng.Int32N(total)}
					switch rng.IntN(4) {
					case 0:
						a.Nodes = 1 + rng.Int32N(c.nodes[0]*2)
					case 1:
						a.Segment = 1 + rng.Int32N(c.nodes[0]+1)
						a.Nodes = a.Segment * (1 + rng.Int32N(max(1, total/a.Segment)))
					}
					got, want := s.ours(&a), s.slurms(t, &a, "--test-only")
					asked++
					if want != "" {
						placed++
					}
					if got != want {
						t.Errorf("free %v, %d nodes, segment %d: got %q, Slurm says %q", s.view.Free, a.Nodes, a.Segment, got, want)
					}
				}
			}
			t.Logf("%d asked, %d placed", asked, placed)
		})
	}
}

// blocks is a Slurm with topology/block whose nodes are free or drained, and never run anything.
type blocks struct {
	view  View
	sizes []int32
	lists []string
}

func startBlocks(t *testing.T, from testenv.Slurm, nodes, sizes []int32) *blocks {
	t.Helper()
	b := &blocks{sizes: sizes}
	var specs []NodeSpec
	topology := ""
	for d, n := range nodes {
		list := fmt.Sprintf("b%02d-n[01-%02d]", d, n)
		b.lists = append(b.lists, list)
		topology += fmt.Sprintf("BlockName=b%02d Nodes=%s\n", d, list)
		for i := range n {
			specs = append(specs, NodeSpec{Name: fmt.Sprintf("b%02d-n%02d", d, i+1), Domain: fmt.Sprintf("b%02d", d), GPUs: 4})
		}
	}
	if sizes != nil {
		topology += "BlockSizes=" + strings.Trim(strings.ReplaceAll(fmt.Sprint(sizes), " ", ","), "[]") + "\n"
	}
	topo, err := NewTopology(1, nil, specs)
	if err != nil {
		t.Fatal(err)
	}
	b.view = NewState(topo).View()
	b.view.Free = slices.Clone(nodes)
	// Nodes of a cloud that are powered down are free to Slurm, and need no slurmd.
	testenv.StartSlurm(t, testenv.SlurmSetup{
		From: from, Port: testenv.FreePorts(t, 1), Files: map[string]string{"topology.conf": topology},
		Conf: `TopologyPlugin=topology/block
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=INFINITE
NodeName=` + strings.Join(b.lists, ",") + ` CPUs=4 State=CLOUD
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`,
	})
	return b
}

// occupy leaves some nodes of each block free.
func (b *blocks) occupy(t *testing.T, rng *rand.Rand) {
	t.Helper()
	slurm(t, "scontrol", "update", "nodename="+strings.Join(b.lists, ","), "state=undrain")
	var busy []string
	for d := range b.view.Free {
		n := b.view.Topology.Domains[d].Count
		b.view.Free[d] = n
		if rng.IntN(3) > 0 {
			b.view.Free[d] = rng.Int32N(n)
			busy = append(busy, fmt.Sprintf("b%02d-n[%02d-%02d]", d, b.view.Free[d]+1, n))
		}
	}
	if len(busy) > 0 {
		slurm(t, "scontrol", "update", "nodename="+strings.Join(busy, ","), "state=drain", "reason=busy")
	}
}

// ours is how many nodes of which domains SlurmBlock chooses; "" for none.
func (b *blocks) ours(a *Ask) string {
	var p Plan
	SlurmBlock{Sizes: b.sizes}.Place(&b.view, a, &p)
	counts := map[string]int{}
	for _, part := range p.Parts {
		counts[b.view.Topology.Domains[part.Domain].ID] += int(part.Nodes)
	}
	return told(counts)
}

var onNodes = regexp.MustCompile(` on nodes (\S+) in partition`)

// slurms is how many nodes of which blocks Slurm chooses; "" for none.
func (b *blocks) slurms(t *testing.T, a *Ask, flags ...string) string {
	t.Helper()
	flags = append(flags, "--exclusive", "--wrap=true", fmt.Sprintf("--nodes=%d", a.Nodes))
	if a.Segment > 0 {
		flags = append(flags, fmt.Sprintf("--segment=%d", a.Segment))
	}
	out, err := exec.Command("sbatch", flags...).CombinedOutput()
	on := onNodes.FindSubmatch(out)
	if on == nil {
		if err == nil || !strings.Contains(string(out), "allocation failure: Requested node configuration is not available") {
			t.Fatalf("sbatch %v: %v: %s", flags, err, out)
		}
		return ""
	}
	counts := map[string]int{}
	for name := range strings.FieldsSeq(slurm(t, "scontrol", "show", "hostnames", string(on[1]))) {
		block, _, _ := strings.Cut(name, "-")
		counts[block]++
	}
	return told(counts)
}

func told(counts map[string]int) string {
	if len(counts) == 0 {
		return ""
	}
	return strings.Trim(fmt.Sprint(counts), "map[]")
}

func slurm(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

package read

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMapShowsWhoIsWhere(t *testing.T) {
	r := seeded(t)
	ctx := context.Background()
	m, err := r.MapNow(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	// n3 has a node record and no membership, beta's n9 a membership that does not know its domain: both are unknown,
	// and never one group, since names are unique only inside a cluster.
	want := [][]string{{"alpha", "alpha", "alpha", "beta", "beta"}, {"rack01", "rack02", "", "rack01", ""}, {"n1", "n2", "n3", "n1", "n9"}}
	if diff := cmp.Diff(want, [][]string{m.Domains.Cluster, m.Domains.Domain, m.Nodes.Name}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5}, m.Domains.FirstNode); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := m.States[m.Nodes.State[2]]; got != "DRAIN: ecc" || *m.Nodes.Usable[2] != 0 {
		t.Errorf("n3: got %s with %d usable, want the reason and 0", got, *m.Nodes.Usable[2])
	}
	if got := m.States[m.Nodes.State[1]]; got != "no node record" || m.Nodes.Usable[1] != nil {
		t.Errorf("n2: got %s, %v usable: want unknown and not 0", got, m.Nodes.Usable[1])
	}
	type holding struct {
		node, job string
		gpus      int
	}
	var got []holding
	for i, n := range m.Held.Node {
		h := holding{m.Nodes.Name[n], m.Jobs[m.Held.Job[i]].Cluster + "/" + m.Jobs[m.Held.Job[i]].JobID, -1}
		if g := m.Held.GPUs[i]; g != nil {
			h.gpus = int(*g)
		}
		got = append(got, h)
	}
	wantHeld := []holding{{"n1", "alpha/8", 4}, {"n3", "alpha/8", 4}, {"n1", "alpha/7", -1}, {"n1", "beta/7", 4}, {"n9", "beta/7", 4}}
	if diff := cmp.Diff(wantHeld, got, cmp.AllowUnexported(holding{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, j := range m.Jobs {
		if j.JobID == "7" && j.Cluster == "alpha" && (j.Attempt != 1 || *j.Outcome != "one_domain" || j.Cause != nil) {
			t.Errorf("job 7: got %+v, want run 1 by its newest verdict", j)
		}
	}
	if again, err := r.MapNow(ctx, ""); err != nil || again != m {
		t.Errorf("asked again at once: got another map (%v)", err)
	}
}

func TestNamesCompareAsPeopleCount(t *testing.T) {
	for _, pair := range [][2]string{{"rack2", "rack10"}, {"r1-n9", "r1-n10"}, {"a", "b1"}, {"n", "n1"}, {"n007", "n8"}, {"n7", "n007x"}, {"n07", "n7"}, {"9", "a"}, {"", "a"}, {"99999999999999999998", "99999999999999999999"}} {
		if compareCounting(pair[0], pair[1]) >= 0 || compareCounting(pair[1], pair[0]) <= 0 || compareCounting(pair[0], pair[0]) != 0 {
			t.Errorf("%s does not come before %s", pair[0], pair[1])
		}
	}
}

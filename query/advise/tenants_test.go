package advise

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestATenantsViewIsOfItsDomains: what is free to a tenant, in measures too, is what is free where it may be.
func TestATenantsViewIsOfItsDomains(t *testing.T) {
	var specs []NodeSpec
	for _, d := range []struct{ id, partition string }{{"a", "1"}, {"a", "2"}, {"b", ""}, {"c/d", ""}} {
		for _, n := range []string{"x", "y"} {
			specs = append(specs, NodeSpec{Name: d.id + d.partition + n, Domain: d.id, Partition: d.partition, GPUs: 4})
		}
	}
	topo, err := NewTopology(1, nil, specs)
	if err != nil {
		t.Fatal(err)
	}
	snap := NewState(topo).Publish(100)
	for name, test := range map[string]struct {
		rule Tenant
		free []int32
	}{
		"empty lists bar nothing":             {Tenant{}, []int32{2, 2, 2, 2}},
		"a domain with all its partitions":    {Tenant{May: Places{Domains: []string{"a"}}}, []int32{2, 2, 0, 0}},
		"one partition of a domain":           {Tenant{May: Places{Domains: []string{"a/2"}}}, []int32{0, 2, 0, 0}},
		"a domain whose id has a slash":       {Tenant{MayNot: Places{Domains: []string{"c/d"}}}, []int32{2, 2, 2, 0}},
		"what it must not use wins":           {Tenant{Places{Domains: []string{"a", "b"}}, Places{Domains: []string{"a/1"}}}, []int32{0, 2, 2, 0}},
		"a cluster that it may not use":       {Tenant{MayNot: Places{Clusters: []string{"c1"}}}, []int32{0, 0, 0, 0}},
		"a domain that is not there, or gone": {Tenant{May: Places{Domains: []string{"z", "a/9"}}}, []int32{0, 0, 0, 0}},
	} {
		c := DefaultConfig()
		c.Tenants.Accounts = map[string]Tenant{"team-a": test.rule}
		v := c.ViewFor(snap, "c1", "team-a")
		if diff := cmp.Diff(test.free, v.Free); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		f, _ := Fragment(&v, c.Mix, 100)
		if want := test.free[0] + test.free[1] + test.free[2] + test.free[3]; f.FreeNodes != want {
			t.Errorf("%s: measured %d free nodes, want %d", name, f.FreeNodes, want)
		}
		if other := c.ViewFor(snap, "c1", "team-b"); other.Free[0] != 2 {
			t.Errorf("%s: another account sees %v", name, other.Free)
		}
		c.Tenants.Unlisted = Forbid
		if other := c.ViewFor(snap, "c1", "team-b"); other.Free[0]+other.Free[1]+other.Free[2]+other.Free[3] > 0 {
			t.Errorf("%s: an account that is not listed, and may not be, sees %v", name, other.Free)
		}
		if all := c.ViewFor(snap, "c1", ""); all.Free[0] != 2 {
			t.Errorf("%s: of everything that is free one sees %v", name, all.Free)
		}
		if resp, err := c.Advise(snap, &Request{GPUs: 2, Cluster: "c1", Tenant: "team-a"}, time.Unix(100, 0)); (err == nil) != (f.FreeNodes > 0) {
			t.Errorf("%s: a part of a node: %+v, %v", name, resp, err)
		}
	}
}

// TestWhetherATenantMayUseAnyOfADomain: what is told of the past is told of whole domains.
func TestWhetherATenantMayUseAnyOfADomain(t *testing.T) {
	tenants := Tenants{Unlisted: Forbid, Accounts: map[string]Tenant{
		"part":    {May: Places{Domains: []string{"a/2"}}},
		"not-a":   {MayNot: Places{Domains: []string{"a", "b/1"}}},
		"cluster": {May: Places{Clusters: []string{"c1"}}},
		"all":     {},
	}}
	for account, want := range map[string][3]bool{ // a and b of c1, a of c2
		"": {true, true, true}, "part": {true, false, true}, "not-a": {false, true, false}, "cluster": {true, true, false}, "all": {true, true, true}, "stranger": {},
	} {
		if got := [3]bool{tenants.May(account, "c1", "a"), tenants.May(account, "c1", "b"), tenants.May(account, "c2", "a")}; got != want {
			t.Errorf("%q: got %v, want %v", account, got, want)
		}
	}
}

// TestAJobOfSeveralQueuesMayUseAllOfThem: Slurm starts it in any.
func TestAJobOfSeveralQueuesMayUseAllOfThem(t *testing.T) {
	tenants := Tenants{Accounts: map[string]Tenant{"team-a": {May: Places{Queues: []string{"train", "batch"}}, MayNot: Places{Queues: []string{"batch-old"}}}}}
	for queue, may := range map[string]bool{"train": true, "batch,train": true, "train,prod": false, "": false, "batch-old": false, "train,": false} {
		if refusal := tenants.refuse(&Request{Tenant: "team-a", Queue: queue}); (refusal == nil) != may {
			t.Errorf("queue %q: got %v", queue, refusal)
		}
	}
}

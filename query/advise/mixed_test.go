package advise

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestMixedCluster: a rack of four-GPU trays beside eight-GPU machines, each of which is a domain of its own.
func TestMixedCluster(t *testing.T) {
	topo, err := NewTopology(1, nil, []NodeSpec{
		{Name: "gb-1", Domain: "nvl-1", Model: "GB200", GPUs: 4}, {Name: "gb-2", Domain: "nvl-1", Model: "GB200", GPUs: 4},
		{Name: "hgx-1", Domain: "node:hgx-1", Model: "H100", GPUs: 8}, {Name: "hgx-2", Domain: "node:hgx-2", Model: "H100", GPUs: 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	state := NewState(topo)
	bad, _ := topo.Node("hgx-2")
	state.SetUsable(bad, 7) // no whole node any more
	snap := state.Publish(100)
	c := DefaultConfig()
	for name, test := range map[string]struct {
		request Request
		nodes   []string
		code    string
	}{
		"eight GPUs go to a whole machine":             {Request{GPUs: 8, Mode: Required}, []string{"hgx-1"}, ""},
		"four a node need two trays":                   {Request{GPUs: 8, GPUsPerNode: 4, GPUModel: "GB200", Mode: Required}, []string{"gb-1", "gb-2"}, ""},
		"two machines have no domain together":         {Request{GPUs: 16, Mode: Required}, nil, NeverFits},
		"of a model with four a node":                  {Request{GPUs: 8, GPUModel: "GB200", Mode: Required}, []string{"gb-1", "gb-2"}, ""},
		"of a partition with four a node":              {Request{GPUs: 8, RequirePartition: "nvl-1"}, []string{"gb-1", "gb-2"}, ""},
		"a partition that is not there":                {Request{GPUs: 8, RequirePartition: "nvl-2"}, nil, NeverFits},
		"a partition of another model":                 {Request{GPUs: 8, GPUModel: "H100", RequirePartition: "nvl-1"}, nil, NeverFits},
		"more a node than that model has":              {Request{GPUs: 8, GPUsPerNode: 8, GPUModel: "GB200"}, nil, InvalidShape},
		"more than a plan to preempt":                  {Request{GPUs: 8, Preempt: "kill"}, nil, InvalidRequest},
		"a machine with a bad GPU serves smaller jobs": {Request{GPUs: 5}, []string{"hgx-2"}, ""},
		"two machines where one has a bad GPU":         {Request{GPUs: 16}, nil, NoCapacityNow},
		"a model that nobody has":                      {Request{GPUs: 8, GPUModel: "B300"}, nil, NeverFits},
		"more GPUs a node than any has":                {Request{GPUs: 16, GPUsPerNode: 16}, nil, InvalidShape},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := c.Advise(snap, &test.request, time.Unix(100, 0))
			var refusal *Refusal
			switch {
			case errors.As(err, &refusal):
				if refusal.Code != test.code || slices.Contains(refusal.Legal, 0) {
					t.Errorf("refused: %v, want code %q and nodes %v", refusal, test.code, test.nodes)
				}
			case test.code != "":
				t.Errorf("got %+v, want a refusal %q", resp.Candidates, test.code)
			case len(resp.Candidates) == 0 || !slices.Equal(resp.Candidates[0].Nodes, test.nodes):
				t.Errorf("got %+v, want nodes %v", resp.Candidates, test.nodes)
			}
		})
	}
}

// TestMostOfTheFleetSaysWhatANodeIs: a few larger machines beside racks do not make every question one about them.
func TestMostOfTheFleetSaysWhatANodeIs(t *testing.T) {
	specs := []NodeSpec{{Name: "hgx-1", Domain: "node:hgx-1", GPUs: 8}}
	for i := range 18 {
		specs = append(specs, NodeSpec{Name: fmt.Sprintf("gb-%02d", i), Domain: "nvl-1", GPUs: 4})
	}
	topo, err := NewTopology(1, nil, specs)
	if err != nil {
		t.Fatal(err)
	}
	snap, c := NewState(topo).Publish(100), DefaultConfig()
	for gpus, want := range map[int]struct {
		domain string
		nodes  int
	}{64: {"nvl-1", 16}, 8: {"nvl-1", 2}, 2: {"node:hgx-1", 1}, 7: {"node:hgx-1", 1}} {
		resp, err := c.Advise(snap, &Request{GPUs: gpus, Mode: Required}, time.Unix(100, 0))
		if err != nil || resp.Candidates[0].Domains[0].ID != want.domain || len(resp.Candidates[0].Nodes) != want.nodes {
			t.Errorf("%d GPUs: got %+v, %v, want %d nodes of %s", gpus, resp, err, want.nodes, want.domain)
		}
	}
	if resp, err := c.Advise(snap, &Request{GPUs: 8, GPUsPerNode: 8}, time.Unix(100, 0)); err != nil || resp.Candidates[0].Nodes[0] != "hgx-1" {
		t.Errorf("eight a node: got %+v, %v, want the machine that has them", resp, err)
	}
}

package advise

import (
	"fmt"
	"testing"

	"github.com/spillway-io/spillway/internal/testenv"
)

// TestSlotRule: what is counted from nodes is what others make of a domain's totals.
func TestSlotRule(t *testing.T) {
	for _, c := range testenv.SlotCases(t) {
		if c.GPUs == 0 || c.Slots < 0 {
			continue // a topology has no nodes without GPUs, and counts each node where others cannot
		}
		var specs []NodeSpec
		for i, gpus := range c.Each() {
			specs = append(specs, NodeSpec{Name: fmt.Sprintf("n%02d", i), Domain: "d", GPUs: gpus})
		}
		topo, err := NewTopology(1, nil, specs)
		if err != nil {
			t.Fatal(err)
		}
		state := NewState(topo)
		h := &Hold{Key: "7", Job: "7", Unsaved: -1, Restart: -1}
		for n := int32(c.NodesFree); n < int32(c.Nodes); n++ {
			h.Nodes = append(h.Nodes, Share{Node: n, GPUs: topo.Nodes[n].GPUs})
		}
		if len(h.Nodes) > 0 {
			if err := state.Hold(h); err != nil {
				t.Fatal(err)
			}
		}
		if got := new(Config).Slots(state.Publish(100), int32(c.Size), "", ""); len(got) != 1 || int(got[0].Slots) != c.Slots {
			t.Errorf("%s: got %+v, want %d", c.Says, got, c.Slots)
		}
	}
}

// TestWhatProbesHoldIsFreeAndMarkedSo: any real job may evict them.
func TestWhatProbesHoldIsFreeAndMarkedSo(t *testing.T) {
	s := NewState(cluster(t, []int32{2, 2}, 4))
	for key, hold := range map[string]Hold{"p": {Probe: true, Nodes: []Share{{0, 4}, {2, 4}}}, "7": {Nodes: []Share{{2, 3}}}} {
		hold.Key, hold.Job, hold.Unsaved, hold.Restart = key, key, -1, -1
		if err := s.Hold(&hold); err != nil {
			t.Fatal(err)
		}
	}
	snap := s.Publish(100)
	got := new(Config).Slots(snap, 4, "", "")
	if got[0].Slots != 2 || got[0].Free != 8 || got[0].Probe != 4 || got[1].Free != 5 || got[1].Probe != 1 || snap.Probed() != 1 {
		t.Errorf("got %+v and %d free nodes with a probe job on", got, snap.Probed())
	}
}

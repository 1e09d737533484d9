package advise

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// TestNumbersAreCheckedBeforeTheyAreNarrowed: the advisor computes with 32 bits, and what was cut to them could look fine.
func TestNumbersAreCheckedBeforeTheyAreNarrowed(t *testing.T) {
	topo, err := NewTopology(1, nil, []NodeSpec{{Name: "a1", Domain: "a", GPUs: 4}, {Name: "a2", Domain: "a", GPUs: 4}, {Name: "b1", Domain: "b", GPUs: 4}})
	if err != nil {
		t.Fatal(err)
	}
	snap := NewState(topo).Publish(100)
	c := DefaultConfig()
	large, negative := 1<<32, -1
	for says, r := range map[string]Request{
		"segment_nodes 4294967296":      {GPUs: 8, SegmentNodes: 1 << 32},
		"segment_nodes 2147483648":      {GPUs: 8, SegmentNodes: 1 << 31},
		"segment_nodes -1":              {GPUs: 8, SegmentNodes: -1},
		"max_domains 4294967297":        {GPUs: 12, MaxDomains: 1<<32 + 1},
		"max_domains -4294967295":       {GPUs: 12, MaxDomains: 1 - 1<<32},
		"spares_per_domain 4294967296":  {GPUs: 8, SparesPerDomain: &large},
		"spares_per_domain -1":          {GPUs: 8, SparesPerDomain: &negative},
		"candidates -1":                 {GPUs: 8, Candidates: -1},
		"duration_s 1099511627777":      {GPUs: 8, DurationS: 1<<40 + 1},
		"waited_s -1":                   {GPUs: 8, WaitedS: -1},
		"measured_GBps -0.5 is no rate": {GPUs: 8, MeasuredGBps: -.5},
		"measured_GBps NaN is no rate":  {GPUs: 8, MeasuredGBps: math.NaN()},
		"8 GPUs at 4294967300 a node":   {GPUs: 8, GPUsPerNode: 1<<32 + 4},
	} {
		var refusal *Refusal
		if resp, err := c.Advise(snap, &r, time.Unix(100, 0)); !errors.As(err, &refusal) || !strings.Contains(refusal.Detail, says) || refusal.Remedy == "" {
			t.Errorf("%s: got %+v, %v", says, resp, err)
		}
	}
	if _, err := c.Advise(snap, &Request{GPUs: 8, SegmentNodes: math.MaxInt32, MaxDomains: math.MaxInt32}, time.Unix(100, 0)); err != nil {
		t.Errorf("got %v; a segment longer than the job has no effect, and any number of domains may be allowed", err)
	}
}

// TestAServiceClassStandsForItsClass: people know their jobs by service class, the configuration knows kinds of jobs.
func TestAServiceClassStandsForItsClass(t *testing.T) {
	topo := cluster(t, []int32{18}, 4)
	c := DefaultConfig()
	asked := func(name string) string {
		a, err := c.ask(topo, &Request{GPUs: 8, Class: name})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%+v", a)
	}
	for service, class := range map[string]string{"inference": "serve", "training": "train", "finetune": "train"} {
		if one, other := asked(service), asked(class); one != other {
			t.Errorf("%s asks %s, %s asks %s", service, one, class, other)
		}
	}
	c.Classes["training"] = Class{Mode: Required, Share: -1}
	if class, ok := c.class("training"); !ok || class.Mode != Required {
		t.Errorf("training is %+v, though a class's own name comes first", class)
	}
	delete(c.Classes, "training")
	var refusal *Refusal
	_, err := c.ask(topo, &Request{GPUs: 8, Class: "trainings"})
	if want := "name one of the configured classes: finetune, inference, serve, train, train-moe, training"; !errors.As(err, &refusal) || refusal.Remedy != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

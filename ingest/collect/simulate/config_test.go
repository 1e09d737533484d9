package simulate

import (
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

func TestConfigReadsYAMLOverItsDefaults(t *testing.T) {
	text := `
seed: 7
speed: 120
history: 90m
clusters:
  - name: a
  - name: b
    racks: 3
    degraded_racks: 0
    node_mtbf: 0s
    partitions:
      - {name: all, policy: flat}
`
	got := DefaultConfig()
	if err := yaml.UnmarshalWithOptions([]byte(text), &got, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if err := got.Validate(); err != nil {
		t.Fatal(err)
	}
	a, b := DefaultCluster(), DefaultCluster()
	a.Name = "a"
	b.Name, b.Racks, b.DegradedRacks, b.NodeMTBF = "b", 3, 0, 0
	b.Partitions = []Partition{{Name: "all", Policy: PolicyFlat}}
	want := Config{Seed: 7, Speed: 120, History: 90 * time.Minute, Counters: 10 * time.Second, Clusters: []Cluster{a, b}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := yaml.UnmarshalWithOptions([]byte("clusters:\n  - {name: a, rakcs: 3}"), &got, yaml.Strict()); err == nil {
		t.Error("an unknown key of a cluster is taken")
	}
}

func TestValidateNamesTheKeyAndTheRemedy(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"speed is 0: give":                        func(c *Config) { c.Speed = 0 },
		"events_per_second is -1: give":           func(c *Config) { c.EventsPerSecond = -1 },
		"counters is 1ms: give":                   func(c *Config) { c.Counters = time.Millisecond },
		"history is -1s: give":                    func(c *Config) { c.History = -time.Second },
		"clusters is empty: name":                 func(c *Config) { c.Clusters = nil },
		`clusters[1]: name "nvl72" is taken`:      func(c *Config) { c.Clusters = append(c.Clusters, c.Clusters[0]) },
		`clusters[0]: name is "a/b": give`:        func(c *Config) { c.Clusters[0].Name = "a/b" },
		"racks is 0: give":                        func(c *Config) { c.Clusters[0].Racks = 0 },
		"degraded_racks is -1: give":              func(c *Config) { c.Clusters[0].DegradedRacks = -1 },
		`mix is "x": give one of helios, kalos`:   func(c *Config) { c.Clusters[0].Mix = "x" },
		"load is 0: give":                         func(c *Config) { c.Clusters[0].Load = 0 },
		"wave is 1.5: give":                       func(c *Config) { c.Clusters[0].Wave = 1.5 },
		"run_time_sigma is -1: give":              func(c *Config) { c.Clusters[0].RunTimeSigma = -1 },
		"node_mtbf is 1m0s: give":                 func(c *Config) { c.Clusters[0].NodeMTBF = time.Minute },
		"probe_every is 1ms: give":                func(c *Config) { c.Clusters[0].ProbeEvery = time.Millisecond },
		"partitions is empty: give":               func(c *Config) { c.Clusters[0].Partitions = nil },
		`partitions[1]: name is "gpu": give`:      func(c *Config) { c.Clusters[0].Partitions[1].Name = "gpu" },
		`partitions[0]: policy is "best": give`:   func(c *Config) { c.Clusters[0].Partitions[0].Policy = "best" },
		"partitions[0]: racks is -1: give":        func(c *Config) { c.Clusters[0].Partitions[0].Racks = -1 },
		"partitions ask for more than the 16":     func(c *Config) { c.Clusters[0].Partitions[0].Racks = 16 },
		"partitions leave 1 of 16 racks to nobod": func(c *Config) { c.Clusters[0].Partitions[0].Racks, c.Clusters[0].Partitions[1].Racks = 8, 7 },
	} {
		c := DefaultConfig()
		change(&c)
		_, err := New(c, Deps{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for racks, want := range map[int][]int{2: {1, 1}, 7: {3, 4}, 16: {8, 8}} {
		c := DefaultCluster()
		c.Racks = racks
		if got, err := c.shares(); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%d racks are shared out as %v, %v, want %v", racks, got, err, want)
		}
	}
	if _, err := Scenario("no-such", testStart); err == nil || !strings.Contains(err.Error(), "choose one of same-clique") {
		t.Errorf("unknown scenario: %v", err)
	}
}

package kube

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

// Config says how to read one Kubernetes cluster.
type Config struct {
	// Cluster is the cluster's name; an API server does not tell one.
	Cluster string `yaml:"cluster"`
	// API is the server; empty: that of the cluster this process runs in.
	API string `yaml:"api"`
	// TokenFile and CAFile are for the API server, and read again as they change; empty: what a pod is given.
	TokenFile string `yaml:"token_file"`
	CAFile    string `yaml:"ca_file"`

	// Interval is how often it is said that the server is read, which a watch does not by itself.
	Interval time.Duration `yaml:"interval"`
	// Gather is for how long news are gathered before they are emitted: the pods of a job come and go together.
	Gather time.Duration `yaml:"gather"`
	// GangStart is how long after the first pod of a job another may be bound and still count from the job's start: a
	// scheduler binds the pods of a gang one after another.
	GangStart time.Duration `yaml:"gang_start"`
	// LookBack is how far back attempts are told that had ended before anything was read, where they are still listed.
	LookBack time.Duration `yaml:"look_back"`
	// Refresh is how often what has not changed is emitted again.
	Refresh time.Duration `yaml:"refresh"`

	// Kueue, DRA and ComputeDomains say what is read besides nodes and pods, where the server has it.
	Kueue          bool `yaml:"kueue"`
	DRA            bool `yaml:"dra"`
	ComputeDomains bool `yaml:"compute_domains"`

	// GPUs are the names of resources that are whole GPUs.
	GPUs []string `yaml:"gpus"`
	// Labels are, for each level of the topology, the keys of node labels that may tell it: the first that is there does. One
	// that is set takes the place of all defaults; what nvidia.com/gpu.clique tells of NVLink is known besides.
	Labels map[string][]string `yaml:"labels"`
	// Levels name the level of further label keys by which jobs ask for topology.
	Levels map[string]string `yaml:"levels"`
	// Taints are the keys of NoSchedule and NoExecute taints that keep jobs off a node, with * and ?. Other taints are those
	// that the jobs of the node tolerate.
	Taints []string `yaml:"taints"`

	// ServiceClasses name the class of a job; the first rule that matches decides. A user is a namespace, an account a
	// ClusterQueue, a partition a LocalQueue and a QOS a priority class.
	ServiceClasses []collect.ClassRule `yaml:"service_classes"`
	// Probes are the verification jobs that any real job may evict.
	Probes []Probe `yaml:"probes"`
	// Preemptible are the jobs that may be ended for one of higher priority. Empty = not known of any.
	Preemptible []collect.Match `yaml:"preemptible"`
}

// Probe is a rule on a job whose pods may tell more of it: all that is set must match.
type Probe struct {
	collect.Match `yaml:",inline"`
	// Labels are of the job's pods; values may have * and ?.
	Labels map[string]string `yaml:"labels"`
	// PriorityBelow takes jobs whose priority is known and below.
	PriorityBelow *int64 `yaml:"priority_below"`
}

func (p *Probe) empty() bool { return p.Match.Empty() && len(p.Labels) == 0 && p.PriorityBelow == nil }

func (p *Probe) matches(j collect.Subject, labels labels, priority *int64) bool {
	if p.PriorityBelow != nil && (priority == nil || *priority >= *p.PriorityBelow) || !p.Match.Matches(j) {
		return false
	}
	for key, pattern := range p.Labels {
		if value, ok := labels[key]; !ok || !collect.Glob(pattern, value) {
			return false
		}
	}
	return true
}

// Labels that many clusters have. A key of gce-topology-subblock or of a capacity block is none of them: it is a rack's
// NVLink domain on some machines only.
const (
	labelClique   = "nvidia.com/gpu.clique"
	labelHostname = "kubernetes.io/hostname"
)

// levels of labels, outermost first.
var labelLevels = []string{
	event.LevelSpine, event.LevelLeaf, event.LevelRack, event.LevelBlockGroup, event.LevelBlock, event.LevelDomain, event.LevelPartition,
}

// DefaultConfig reads the cluster this process runs in.
func DefaultConfig() Config {
	return Config{
		Interval:  15 * time.Second,
		Gather:    2 * time.Second,
		GangStart: 30 * time.Second,
		LookBack:  24 * time.Hour,
		Refresh:   15 * time.Minute,
		Kueue:     true, DRA: true, ComputeDomains: true,
		GPUs: []string{"nvidia.com/gpu"},
		Labels: map[string][]string{
			event.LevelSpine: {
				"fabric.topograph.run/tier-1", "network.topology.nvidia.com/spine", "topology.k8s.aws/network-node-layer-2",
				"backend.coreweave.cloud/superpod", "ib.coreweave.cloud/superpod", "oci.oraclecloud.com/rdma.network_block_id",
			},
			event.LevelLeaf: {
				"fabric.topograph.run/tier-0", "network.topology.nvidia.com/leaf", "topology.k8s.aws/network-node-layer-3",
				"backend.coreweave.cloud/leafgroup", "oci.oraclecloud.com/rdma.local_block_id",
			},
			event.LevelRack:   {"node.coreweave.cloud/rack", "oci.oraclecloud.com/host.rack_id"},
			event.LevelBlock:  {"cloud.google.com/gce-topology-block"},
			event.LevelDomain: {"accelerator.topograph.run/domain", "ds.coreweave.com/nvlink.domain", "topology.k8s.aws/ultraserver-id"},
			event.LevelPartition: {
				"accelerator.topograph.run/sub-domain", "network.topology.nvidia.com/accelerator",
			},
		},
		Levels: map[string]string{},
		Taints: []string{
			"node.kubernetes.io/*", "node.cloudprovider.kubernetes.io/*", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted",
		},
		Probes: []Probe{{PriorityBelow: new(int64(0))}},
	}
}

// levelOf is the contract's level that a label key stands for, "" for none.
func (c *Config) levelOf(key string) string {
	if level, ok := c.Levels[key]; ok {
		return level
	}
	switch key {
	case labelClique:
		return event.LevelPartition
	case labelHostname:
		return event.LevelNode
	}
	for level, keys := range c.Labels {
		if slices.Contains(keys, key) {
			return level
		}
	}
	return ""
}

// Validate returns what is wrong, each with the key and what to write instead.
func (c *Config) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	switch {
	case c.Cluster == "":
		fail("cluster", "it is empty, and an API server does not tell its cluster's name; write the name that other sources of it use")
	case strings.Contains(c.Cluster, "/"):
		fail("cluster", "%q has a slash, which separates the parts of a key; write a name without one", c.Cluster)
	}
	if c.API != "" {
		if u, err := url.Parse(c.API); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			fail("api", "%q is no address of an API server; write for example https://10.96.0.1", c.API)
		}
	}
	for _, d := range []struct {
		key  string
		d    time.Duration
		zero bool
	}{
		{"interval", c.Interval, false}, {"gather", c.Gather, true}, {"gang_start", c.GangStart, true},
		{"look_back", c.LookBack, true}, {"refresh", c.Refresh, true},
	} {
		if d.d < 0 || d.d == 0 && !d.zero {
			fail(d.key, "%v is not a time to wait; write for example 15s", d.d)
		}
	}
	if len(c.GPUs) == 0 {
		fail("gpus", "no resource is a GPU; write for example [nvidia.com/gpu]")
	}
	for _, level := range slices.Sorted(maps.Keys(c.Labels)) {
		if !slices.Contains(labelLevels, level) {
			fail("labels."+level, "it is no level; write one of %s", strings.Join(labelLevels, ", "))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Levels)) {
		if level := c.Levels[key]; level != event.LevelNode && !slices.Contains(labelLevels, level) {
			fail("levels", "%s stands for %q, which is no level; write one of %s, node", key, level, strings.Join(labelLevels, ", "))
		}
	}
	for i, r := range c.ServiceClasses {
		if r.Class == "" {
			fail(fmt.Sprintf("service_classes[%d].class", i), "the rule names no class")
		}
	}
	for i := range c.Probes {
		if c.Probes[i].empty() {
			fail(fmt.Sprintf("probes[%d]", i), "an empty rule would make every job a probe; name users, names, qos, labels or priority_below")
		}
	}
	for i := range c.Preemptible {
		if c.Preemptible[i].Empty() {
			fail(fmt.Sprintf("preemptible[%d]", i), "an empty rule would make every job preemptible; name users, accounts, qos, partitions or names")
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("configuration of the kubernetes collector: %w", errors.Join(errs...))
}

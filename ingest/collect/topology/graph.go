package topology

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/spillway-io/spillway/schemas/event"
)

// Label keys under which Topograph gives a node's NVLink domain: its v1.0 and the releases before.
var domainLabels = []string{"accelerator.topograph.run/domain", "network.topology.nvidia.com/accelerator"}

// Where Topograph gives none: the label of the GPU operator, and the attribute of the first graph engine.
var otherDomainLabels = []string{"nvidia.com/gpu.clique", "nvlink"}

// The label keys of the partition inside the domain.
var partitionLabels = []string{"accelerator.topograph.run/sub-domain", "nvidia.com/gpu.clique"}

// ParseGraph reads the JSON of Topograph's graph engine (docs/engines/graph.md): instances with their switches, closest
// first, and labels. The node of an instance is its id; [Instances] maps ids of clouds to node names.
func ParseGraph(r io.Reader, name string) (*Map, error) {
	d := &document{name: name, format: FormatGraph}
	text, err := d.readAll(r)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Instances *[]struct {
			ID            string            `json:"id"`
			NetworkLayers []string          `json:"network_layers"`
			Labels        map[string]string `json:"labels"`
			Attributes    map[string]string `json:"attributes"`
		} `json:"instances"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return nil, d.errf(0, "read topology graph: %w", err)
	}
	if doc.Instances == nil {
		return nil, d.errf(0, "no instances in it; expected the result of Topograph's graph engine")
	}
	t := Topology{Name: event.SourceTopograph, Kind: KindLabels}
	seen := map[string]bool{}
	for i, inst := range *doc.Instances {
		switch {
		case inst.ID == "":
			return nil, d.errf(0, "instances[%d] has no id", i)
		case seen[inst.ID]:
			return nil, d.errf(0, "instances[%d]: %s is listed twice; a node has one place", i, inst.ID)
		case len(inst.NetworkLayers) > maxTreeDepth:
			return nil, d.errf(0, "instances[%d]: %d network layers; this is not a network", i, len(inst.NetworkLayers))
		}
		seen[inst.ID] = true
		n := Node{Name: inst.ID}
		for h := len(inst.NetworkLayers) - 1; h >= 0; h-- {
			if inst.NetworkLayers[h] != "" {
				n.Levels = append(n.Levels, Level{switchLevel(h), inst.NetworkLayers[h]})
			}
		}
		labels := inst.Labels
		if labels == nil {
			labels = inst.Attributes
		}
		n.Levels = append(n.Levels, d.accelerator(inst.ID, labels)...)
		t.Nodes = append(t.Nodes, n)
	}
	return d.result([]Topology{t}), nil
}

// accelerator gives the domain and partition that labels name. Keys of an old and a new release that disagree leave the
// domain unknown: one of them is stale, and nothing says which.
func (d *document) accelerator(node string, labels map[string]string) []Level {
	var levels []Level
	for _, key := range domainLabels {
		v := strings.TrimSpace(labels[key])
		if v == "" {
			continue
		}
		found := fabricLevels(node, v)
		if levels != nil && found[0] != levels[0] {
			d.issuef(0, "%s: label %s says domain %s, label %s says %s; its domain is left out until they agree",
				node, domainLabels[0], levels[0].Value, key, found[0].Value)
			return nil
		}
		if len(found) > len(levels) {
			levels = found
		}
	}
	for _, key := range otherDomainLabels {
		if v := strings.TrimSpace(labels[key]); v != "" && levels == nil {
			levels = fabricLevels(node, v)
		}
	}
	if len(levels) != 1 {
		return levels
	}
	for _, key := range partitionLabels {
		if v := strings.TrimSpace(labels[key]); v != "" {
			return append(levels, Level{event.LevelPartition, partitionName(levels[0].Value, v)})
		}
	}
	return levels
}

// partitionName makes the name of a partition unique: a clique's number repeats in every domain.
func partitionName(domain, partition string) string {
	if isNumber(partition) {
		return domain + "." + partition
	}
	return partition
}

// Instances reads which node each instance id belongs to: a JSON object {id: node}, or the request that Topograph was
// given (docs/api.md), with nodes[].instances of that form.
func Instances(r io.Reader, name string) (map[string]string, error) {
	d := &document{name: name}
	text, err := d.readAll(r)
	if err != nil {
		return nil, err
	}
	var request struct {
		Nodes []struct {
			Instances map[string]string `json:"instances"`
		} `json:"nodes"`
	}
	out := map[string]string{}
	if json.Unmarshal([]byte(text), &request) == nil && len(request.Nodes) > 0 {
		for _, region := range request.Nodes {
			for id, node := range region.Instances {
				out[id] = node
			}
		}
	} else if err := json.Unmarshal([]byte(text), &out); err != nil {
		return nil, d.errf(0, "read instances: %w; expected an object of instance id to node name, or a Topograph request", err)
	}
	if len(out) == 0 {
		return nil, d.errf(0, "no instances in it; expected an object of instance id to node name, or a Topograph request")
	}
	return out, nil
}

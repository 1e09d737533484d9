package kube

import (
	"strconv"
	"strings"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

func (m *model) putNode(o *object) {
	m.removeNode(o.Name)
	m.nodes[o.Name] = o
	if host := o.Labels[labelHostname]; host != "" {
		m.hosts[host] = o.Name
	}
	if n := o.node.capacity.gpus; n > 0 && !m.shares(o) {
		m.sizes[n]++
	}
}

func (m *model) removeNode(name string) {
	m.news[name] = true
	o := m.nodes[name]
	if o == nil {
		return
	}
	delete(m.nodes, name)
	if host := o.Labels[labelHostname]; m.hosts[host] == name {
		delete(m.hosts, host)
	}
	if n := o.node.capacity.gpus; n > 0 && !m.shares(o) {
		if m.sizes[n]--; m.sizes[n] == 0 {
			delete(m.sizes, n)
		}
	}
}

// perNode is how many pods of so many GPUs fit a node; 0 = none, or not the same on all nodes that take one.
func (m *model) perNode(gpus uint32) (per uint32) {
	for size := range m.sizes {
		switch n := size / max(gpus, 1); {
		case n == 0:
		case per != 0 && n != per:
			return 0
		default:
			per = n
		}
	}
	return per
}

// nodeOfHost is the node that has a host name as its label, which is not always the node's own name.
func (m *model) nodeOfHost(host string) string {
	if name, ok := m.hosts[host]; ok {
		return name
	}
	return host
}

// shares says whether what the node calls a GPU is a share of one.
func (m *model) shares(o *object) bool {
	n, ok := amount(o.Labels[labelGPUReplicas])
	return ok && n > 1
}

// tellNode proposes what is known of one node: its capacity, and its place by each source that tells it.
func (m *model) tellNode(b *batch, name string) {
	o := m.nodes[name]
	if r := m.nodeRecord(o, name); r != nil {
		b.tell("node "+name, r)
	} else {
		b.end("node "+name, &event.Node{Cluster: m.cfg.Cluster, Node: name, Source: SourceNodes, Removed: true})
	}
	for _, p := range m.places(o, name) {
		key := "place " + p.source + " " + name
		r := &event.Membership{Cluster: m.cfg.Cluster, Node: name, Source: p.source}
		if len(p.levels) == 0 {
			r.Removed = true
			b.end(key, r)
			continue
		}
		r.Levels = p.levels
		if p.source != event.SourceComputeDomain {
			r.ValidFromMs = m.firstOf(key)
		}
		b.tell(key, r)
	}
}

// firstOf is since when the first record of a name holds; nil = since it was seen.
func (m *model) firstOf(name string) *int64 {
	if _, told := m.told[name]; told {
		return nil
	}
	return m.declared
}

// nodeRecord is the capacity of a node; nil = it is not there, or nothing says that it has GPUs.
func (m *model) nodeRecord(o *object, name string) *event.Node {
	if o == nil {
		return nil
	}
	f := o.node
	r := &event.Node{Cluster: m.cfg.Cluster, Node: name, Source: SourceNodes, GpuModel: o.Labels[labelGPUProduct]}
	present, counted := amount(o.Labels[labelGPUCount])
	dra, product := m.slicesOf(name)
	shared := m.shares(o)
	switch {
	case dra > 0 || counted && present > 0, f.capacityTold && f.capacity.gpus > 0, f.capacity.parts:
	default:
		return nil
	}
	if f.capacityTold && !shared {
		present, counted = max(present, f.capacity.gpus), true
	}
	if dra > 0 {
		present, counted = max(present, dra), true
		if r.GpuModel == "" {
			r.GpuModel = product
		}
	}
	if counted {
		r.GpusPresent = new(present)
	}
	switch { // a device plugin takes GPUs that are not well off what can be allocated
	case shared || f.capacity.parts:
	case f.capacityTold && (f.capacity.gpus > 0 || dra == 0):
		r.GpusAllocatable = new(min(f.allocatable.gpus, present))
		r.GpusHealthy = r.GpusAllocatable
	case dra > 0:
		r.GpusAllocatable = new(dra)
	}
	words, reasons := m.state(o)
	r.StateRaw, r.Reason = strings.Join(words, ","), strings.Join(reasons, "; ")
	r.Schedulable = new(len(reasons) == 0)
	r.ValidFromMs = m.firstOf("node " + name)
	return r
}

// state is what a node says of itself in kubectl's words, and why it takes no jobs.
func (m *model) state(o *object) (words, reasons []string) {
	switch c := o.node.ready; {
	case c.is():
		words = append(words, "Ready")
	case c != nil && c.Status == "False":
		words = append(words, "NotReady")
		reasons = append(reasons, strings.TrimSuffix(c.Reason+": "+c.Message, ": "))
	default:
		words = append(words, "Unknown")
		reason := "NodeStatusUnknown"
		if c != nil && c.Reason != "" {
			reason = c.Reason
		}
		reasons = append(reasons, reason)
	}
	if o.node.unschedulable {
		words = append(words, "SchedulingDisabled")
		reasons = append(reasons, "cordoned")
	}
	for _, t := range o.node.taints {
		if t.Effect != "NoSchedule" && t.Effect != "NoExecute" || !collect.AnyMatch(m.cfg.Taints, t.Key) || len(m.cfg.Taints) == 0 {
			continue
		}
		if t.Key == "node.kubernetes.io/unschedulable" || t.Key == "node.kubernetes.io/not-ready" || t.Key == "node.kubernetes.io/unreachable" {
			if len(reasons) > 0 { // it says again what the node's own words do
				continue
			}
		}
		reasons = append(reasons, "taint "+strings.TrimSuffix(t.Key+"="+t.Value, "=")+":"+t.Effect)
	}
	return words, reasons
}

// slicesOf counts the whole GPUs of a node that its DRA driver tells, of the newest generation of each pool.
func (m *model) slicesOf(node string) (gpus uint32, product string) {
	newest := map[string]int64{}
	for _, o := range m.slicesBy[node] {
		if s := o.slice; s.driver == gpuDriver {
			newest[s.pool] = max(newest[s.pool], s.generation)
		}
	}
	for _, o := range m.slicesBy[node] {
		s := o.slice
		if s.driver != gpuDriver || s.generation != newest[s.pool] {
			continue
		}
		for _, t := range s.gpus {
			if t == "gpu" {
				gpus++
			}
		}
		product = max(product, s.product)
	}
	return gpus, product
}

// place is what one source says of where a node sits; no levels = nothing.
type place struct {
	source string
	levels []*event.Level
}

// places are those of a node by each source.
func (m *model) places(o *object, name string) []place {
	out := []place{{source: event.SourceComputeDomain}, {source: event.SourceGFDLabel}, {source: event.SourceCloudLabel}}
	if o == nil {
		return out
	}
	clique := o.Labels[labelClique]
	domain, partition, ok := splitClique(clique)
	if !ok && clique != "" {
		m.note("clique_unreadable", 1)
	}
	if ok {
		out[1].levels = fabricLevels(domain, partition)
	}
	// What a ComputeDomain says is told where the label does not say the same: a job that starts would else change the
	// source of each of its nodes' places, and with it every answer that is prepared from them.
	if d, p, told := m.cliqueOf(name); told && (!ok || d != domain || p != partition) {
		out[0].levels = fabricLevels(d, p)
	}
	for _, level := range labelLevels {
		for _, key := range m.cfg.Labels[level] {
			if value := o.Labels[key]; value != "" {
				out[2].levels = append(out[2].levels, &event.Level{Level: level, Value: value})
				break
			}
		}
	}
	return out
}

func fabricLevels(domain, partition string) []*event.Level {
	out := []*event.Level{{Level: event.LevelDomain, Value: domain}}
	if partition != "" {
		out = append(out, &event.Level{Level: event.LevelPartition, Value: partition})
	}
	return out
}

// splitClique takes the identity of a partition apart, which is the ClusterUUID, a dot and the CliqueID. A ClusterUUID of
// zeros is a node that shares NVLink with no other, and has no partition.
func splitClique(text string) (domain, partition string, ok bool) {
	i := strings.LastIndexByte(text, '.')
	if i <= 0 {
		return "", "", false
	}
	domain = strings.ToLower(text[:i])
	if _, err := strconv.ParseUint(text[i+1:], 10, 32); err != nil {
		return "", "", false
	}
	if strings.Trim(domain, "0-") == "" {
		return domain, "", true
	}
	return domain, domain + text[i:], true
}

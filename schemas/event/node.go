package event

// RecordTopic implements Record.
func (*Node) RecordTopic() string { return TopicNode }

// RecordKey implements Record: cluster/node.
func (n *Node) RecordKey() string { return n.GetCluster() + "/" + n.GetNode() }

// Validate implements Record.
func (n *Node) Validate() error {
	var c checker
	c.part("cluster", n.GetCluster())
	c.name("node", n.GetNode())
	c.name("source", n.GetSource())
	c.observed(n.GetObservedAtMs())
	c.millis("valid_from_ms", n.ValidFromMs)
	if n.GpusPresent != nil && n.GpusHealthy != nil && n.GetGpusHealthy() > n.GetGpusPresent() {
		c.failf("gpus_healthy %d is more than gpus_present %d", n.GetGpusHealthy(), n.GetGpusPresent())
	}
	return c.err
}

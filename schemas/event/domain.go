package event

// RecordTopic implements Record.
func (*Domain) RecordTopic() string { return TopicDomain }

// RecordKey implements Record: cluster/domain.
func (d *Domain) RecordKey() string { return d.GetCluster() + "/" + d.GetDomain() }

// Validate implements Record.
func (d *Domain) Validate() error {
	var c checker
	c.part("cluster", d.GetCluster())
	c.name("domain", d.GetDomain())
	c.name("source", d.GetSource())
	c.observed(d.GetObservedAtMs())
	return c.err
}

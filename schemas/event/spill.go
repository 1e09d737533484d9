package event

// RecordTopic implements Record.
func (*Spill) RecordTopic() string { return TopicSpill }

// RecordKey implements Record: cluster/job_id.
func (s *Spill) RecordKey() string { return s.GetCluster() + "/" + s.GetJobId() }

// Validate implements Record.
func (s *Spill) Validate() error {
	var c checker
	c.part("cluster", s.GetCluster())
	c.name("job_id", s.GetJobId())
	c.name("attempt", s.GetAttempt())
	c.name("outcome", s.GetOutcome())
	if len(s.GetDomains()) != len(s.GetDomainGpus()) && len(s.GetDomainGpus()) != 0 {
		c.failf("domain_gpus has %d entries for %d domains", len(s.GetDomainGpus()), len(s.GetDomains()))
	}
	return c.err
}

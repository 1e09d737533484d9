package event

// RecordTopic implements Record.
func (*Workload) RecordTopic() string { return TopicWorkload }

// RecordKey implements Record: cluster/job_id.
func (w *Workload) RecordKey() string { return w.GetCluster() + "/" + w.GetJobId() }

// Validate implements Record.
func (w *Workload) Validate() error {
	var c checker
	c.part("cluster", w.GetCluster())
	c.name("job_id", w.GetJobId())
	c.observed(w.GetObservedAtMs())
	return c.err
}

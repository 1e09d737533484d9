package event

// Holding reports whether a run in this state still holds its GPUs: COMPLETING does, although it has ended.
func (s State) Holding() bool {
	return s == State_RUNNING || s == State_SUSPENDED || s == State_COMPLETING
}

// Ended reports whether a run in this state holds nothing any more and never will.
func (s State) Ended() bool { return s >= State_COMPLETED }

// RecordTopic implements Record.
func (*Placement) RecordTopic() string { return TopicPlacement }

// RecordKey implements Record: cluster/job_id, so that all runs of a job stay in order.
func (p *Placement) RecordKey() string { return p.GetCluster() + "/" + p.GetJobId() }

// Validate implements Record. A run that ends before it starts is refused here, so no duration is ever negative.
func (p *Placement) Validate() error {
	var c checker
	c.part("cluster", p.GetCluster())
	c.name("job_id", p.GetJobId())
	c.name("scheduler", p.GetScheduler())
	c.name("source", p.GetSource())
	c.observed(p.GetObservedAtMs())
	for _, t := range []struct {
		field string
		ms    *int64
	}{
		{"submit_ms", p.SubmitMs},
		{"eligible_ms", p.EligibleMs},
		{"start_ms", p.StartMs},
		{"end_ms", p.EndMs},
		{"end_earliest_ms", p.EndEarliestMs},
		{"planned_start_ms", p.PlannedStartMs},
		{"checkpoint_ms", p.CheckpointMs},
		{"preemptible_ms", p.PreemptibleMs},
	} {
		c.millis(t.field, t.ms)
	}
	if p.GetState() == State_STATE_UNSPECIFIED {
		c.failf("state is not set (state_raw %q): the collector must map it", p.GetStateRaw())
	}
	if p.GetState().Holding() && p.StartMs == nil {
		c.failf("state %s without start_ms: a run that holds GPUs has started", p.GetState())
	}
	c.ordered("start_ms", p.StartMs, "end_ms", p.EndMs)
	c.ordered("end_earliest_ms", p.EndEarliestMs, "end_ms", p.EndMs)
	for i, n := range p.GetPlacements() {
		c.name("placements.node", n.GetNode())
		for _, pod := range n.GetPods() {
			c.name("placements.pods", pod)
		}
		if n.Gpus != nil && len(n.GetGpuIndex()) > 0 && int(n.GetGpus()) != len(n.GetGpuIndex()) {
			c.failf("placements[%d] (%s) says %d gpus and lists %d indices", i, n.GetNode(), n.GetGpus(), len(n.GetGpuIndex()))
		}
		c.millis("placements.from_ms", n.FromMs)
		c.millis("placements.to_ms", n.ToMs)
		c.ordered("placements.from_ms", n.FromMs, "placements.to_ms", n.ToMs)
		if c.err != nil {
			break
		}
	}
	return c.err
}

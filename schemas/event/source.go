package event

// RecordTopic implements Record.
func (*Source) RecordTopic() string { return TopicSource }

// RecordKey implements Record: cluster/source.
func (s *Source) RecordKey() string { return s.GetCluster() + "/" + s.GetSource() }

// Validate implements Record.
func (s *Source) Validate() error {
	var c checker
	c.part("cluster", s.GetCluster())
	c.name("source", s.GetSource())
	c.observed(s.GetObservedAtMs())
	c.millis("good_at_ms", s.GoodAtMs)
	for _, t := range s.GetTold() {
		c.name("told.source", t.GetSource())
		c.millis("told.since_ms", &t.SinceMs)
		c.millis("told.good_at_ms", &t.GoodAtMs)
		c.ordered("told.since_ms", &t.SinceMs, "told.good_at_ms", &t.GoodAtMs)
	}
	return c.err
}

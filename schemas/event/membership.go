package event

// Sources of membership, strongest evidence first: what the hardware says of itself, then what software derived.
const (
	SourceNVML          = "nvml"
	SourceDCGM          = "dcgm"
	SourceComputeDomain = "computedomain"
	SourceGFDLabel      = "gfd_label"
	SourceTopograph     = "topograph"
	SourceSlurmTopology = "slurm_topology"
	SourceCloudLabel    = "cloud_label"
	SourceStatic        = "static"
)

// MembershipSources lists them in the default order of precedence.
func MembershipSources() []string {
	return []string{
		SourceNVML, SourceDCGM, SourceComputeDomain, SourceGFDLabel, SourceTopograph, SourceSlurmTopology,
		SourceCloudLabel, SourceStatic,
	}
}

// Levels of the topology, outermost first. LevelDomain is the NVLink domain, LevelPartition its clique.
const (
	LevelSpine      = "spine"
	LevelLeaf       = "leaf"
	LevelRack       = "rack"
	LevelBlockGroup = "block_group" // Slurm's aggregated block
	LevelBlock      = "block"
	LevelDomain     = "domain"
	LevelPartition  = "partition"
	LevelNode       = "node"
)

// RecordTopic implements Record.
func (*Membership) RecordTopic() string { return TopicMembership }

// RecordKey implements Record: cluster/node.
func (m *Membership) RecordKey() string { return m.GetCluster() + "/" + m.GetNode() }

// Validate implements Record.
func (m *Membership) Validate() error {
	var c checker
	c.part("cluster", m.GetCluster())
	c.name("node", m.GetNode())
	c.name("source", m.GetSource())
	c.observed(m.GetObservedAtMs())
	c.millis("valid_from_ms", m.ValidFromMs)
	for _, l := range m.GetLevels() {
		c.name("levels.level", l.GetLevel())
		c.name("levels.value of "+l.GetLevel(), l.GetValue())
	}
	return c.err
}

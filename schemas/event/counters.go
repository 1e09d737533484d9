package event

// RecordTopic implements Record.
func (*Counters) RecordTopic() string { return TopicCounters }

// RecordKey implements Record: cluster/node.
func (x *Counters) RecordKey() string { return x.GetCluster() + "/" + x.GetNode() }

// Validate implements Record: a column is either empty or as long as the entities it describes.
func (x *Counters) Validate() error {
	var c checker
	c.part("cluster", x.GetCluster())
	c.name("node", x.GetNode())
	c.name("source", x.GetSource())
	c.observed(x.GetObservedAtMs())
	gpus, nics := len(x.GetGpuIndex()), len(x.GetNic())
	for _, col := range []struct {
		field      string
		got, wants int
	}{
		{"gpu_uuid", len(x.GetGpuUuid()), gpus},
		{"nvlink_tx_bytes", len(x.GetNvlinkTxBytes()), gpus},
		{"nvlink_rx_bytes", len(x.GetNvlinkRxBytes()), gpus},
		{"nvlink_errors", len(x.GetNvlinkErrors()), gpus},
		{"sm_active", len(x.GetSmActive()), gpus},
		{"tensor_active", len(x.GetTensorActive()), gpus},
		{"nic_tx_bytes", len(x.GetNicTxBytes()), nics},
		{"nic_rx_bytes", len(x.GetNicRxBytes()), nics},
	} {
		if col.got != 0 && col.got != col.wants {
			c.failf("%s has %d entries for %d entities", col.field, col.got, col.wants)
		}
	}
	return c.err
}

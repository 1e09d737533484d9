package event

import "math"

// Sources of counters.
const (
	SourceNodeExporter = "node_exporter"
	SourceSysfs        = "sysfs"
)

// JobMigNone is the job_mig of a job that has a GPU as a whole.
const JobMigNone = -1

// RecordTopic implements Record.
func (*Counters) RecordTopic() string { return TopicCounters }

// RecordKey implements Record: cluster/node.
func (x *Counters) RecordKey() string { return x.GetCluster() + "/" + x.GetNode() }

// Validate implements Record: a column is either empty or as long as the entities it describes, positions point at GPUs
// of the record, and a number is not negative; NaN stands for one that is absent.
func (x *Counters) Validate() error {
	var c checker
	c.part("cluster", x.GetCluster())
	c.name("node", x.GetNode())
	c.name("source", x.GetSource())
	c.observed(x.GetObservedAtMs())
	for _, g := range x.groups() {
		for _, col := range g.columns {
			if col.length != 0 && col.length != g.entities {
				c.failf("%s has %d entries for %d entities", col.field, col.length, g.entities)
			}
			for i, v := range col.numbers {
				if v < 0 || math.IsInf(v, 0) {
					c.failf("%s[%d] is %v: a number that is not known is NaN", col.field, i, v)
				}
			}
			for i, v := range col.positions {
				if int(v) >= len(x.GetGpuIndex()) {
					c.failf("%s[%d] is %d, and there are %d GPUs", col.field, i, v, len(x.GetGpuIndex()))
				}
			}
		}
	}
	return c.err
}

// column is one column of a group as far as Validate looks at it.
type column struct {
	field     string
	length    int
	numbers   []float64
	positions []uint32
}

type group struct {
	entities int
	columns  []column
}

func (x *Counters) groups() []group {
	length := func(field string, n int) column { return column{field: field, length: n} }
	numbers := func(field string, v []float64) column { return column{field: field, length: len(v), numbers: v} }
	positions := func(field string, v []uint32) column { return column{field: field, length: len(v), positions: v} }
	return []group{
		{len(x.GetGpuIndex()), []column{
			length("gpu_uuid", len(x.GetGpuUuid())),
			length("gpu_model", len(x.GetGpuModel())),
			length("gpu_missing", len(x.GetGpuMissing())),
			length("gpu_since_ms", len(x.GetGpuSinceMs())),
			length("gpu_reset", len(x.GetGpuReset())),
			numbers("nvlink_tx_bytes", x.GetNvlinkTxBytes()),
			numbers("nvlink_rx_bytes", x.GetNvlinkRxBytes()),
			numbers("nvlink_bytes_per_second", x.GetNvlinkBytesPerSecond()),
			numbers("nvlink_tx_bytes_per_second", x.GetNvlinkTxBytesPerSecond()),
			numbers("nvlink_rx_bytes_per_second", x.GetNvlinkRxBytesPerSecond()),
			numbers("nvlink_errors", x.GetNvlinkErrors()),
			numbers("nvlink_discards", x.GetNvlinkDiscards()),
			numbers("nvlink_replays", x.GetNvlinkReplays()),
			numbers("nvlink_recoveries", x.GetNvlinkRecoveries()),
			numbers("nvlink_recovery_failures", x.GetNvlinkRecoveryFailures()),
			numbers("nvlink_symbol_errors", x.GetNvlinkSymbolErrors()),
			numbers("nvlink_effective_errors", x.GetNvlinkEffectiveErrors()),
			numbers("nvlink_effective_ber", x.GetNvlinkEffectiveBer()),
			numbers("graphics_active", x.GetGraphicsActive()),
			numbers("sm_active", x.GetSmActive()),
			numbers("tensor_active", x.GetTensorActive()),
			numbers("pcie_tx_bytes_per_second", x.GetPcieTxBytesPerSecond()),
			numbers("pcie_rx_bytes_per_second", x.GetPcieRxBytesPerSecond()),
			numbers("c2c_tx_bytes_per_second", x.GetC2CTxBytesPerSecond()),
			numbers("c2c_rx_bytes_per_second", x.GetC2CRxBytesPerSecond()),
		}},
		{len(x.GetMigGpu()), []column{
			positions("mig_gpu", x.GetMigGpu()),
			length("mig_id", len(x.GetMigId())),
			length("mig_profile", len(x.GetMigProfile())),
			numbers("mig_graphics_active", x.GetMigGraphicsActive()),
			numbers("mig_sm_active", x.GetMigSmActive()),
			numbers("mig_tensor_active", x.GetMigTensorActive()),
		}},
		{len(x.GetLinkGpu()), []column{
			positions("link_gpu", x.GetLinkGpu()),
			length("link", len(x.GetLink())),
			length("link_state", len(x.GetLinkState())),
			numbers("link_tx_bytes", x.GetLinkTxBytes()),
			numbers("link_rx_bytes", x.GetLinkRxBytes()),
			numbers("link_bytes_per_second", x.GetLinkBytesPerSecond()),
			numbers("link_tx_bytes_per_second", x.GetLinkTxBytesPerSecond()),
			numbers("link_rx_bytes_per_second", x.GetLinkRxBytesPerSecond()),
			numbers("link_errors", x.GetLinkErrors()),
			numbers("link_replays", x.GetLinkReplays()),
			numbers("link_recoveries", x.GetLinkRecoveries()),
			numbers("link_downs", x.GetLinkDowns()),
		}},
		{len(x.GetNic()), []column{
			length("nic_port", len(x.GetNicPort())),
			length("nic_gid", len(x.GetNicGid())),
			length("nic_link_layer", len(x.GetNicLinkLayer())),
			length("nic_state", len(x.GetNicState())),
			length("nic_since_ms", len(x.GetNicSinceMs())),
			length("nic_reset", len(x.GetNicReset())),
			numbers("nic_speed_bytes_per_second", x.GetNicSpeedBytesPerSecond()),
			numbers("nic_tx_bytes", x.GetNicTxBytes()),
			numbers("nic_rx_bytes", x.GetNicRxBytes()),
			numbers("nic_tx_wait", x.GetNicTxWait()),
			numbers("nic_recoveries", x.GetNicRecoveries()),
			numbers("nic_downs", x.GetNicDowns()),
		}},
		{len(x.GetJobGpu()), []column{
			positions("job_gpu", x.GetJobGpu()),
			length("job_mig", len(x.GetJobMig())),
			length("job_id", len(x.GetJobId())),
			length("job_namespace", len(x.GetJobNamespace())),
			length("job_pod", len(x.GetJobPod())),
			length("job_container", len(x.GetJobContainer())),
			length("job_pod_uid", len(x.GetJobPodUid())),
		}},
	}
}

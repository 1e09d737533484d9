package dcgm

import "fmt"

// kind is how the numbers of a field behave.
type kind uint8

const (
	counter  kind = iota // cumulative since the driver was loaded
	rate                 // per second, averaged by DCGM over its watch interval
	gauge                // as it is
	bitError             // a bit error rate, packed in an integer
	identity             // of the fabric
)

// The columns of the record that fields feed; 0 feeds none.
type (
	gpuColumn  uint8
	migColumn  uint8
	linkColumn uint8
)

const (
	gpuTxBytes gpuColumn = iota + 1
	gpuRxBytes
	gpuBothRate
	gpuTxRate
	gpuRxRate
	gpuErrors
	gpuDiscards
	gpuReplays
	gpuRecoveries
	gpuRecoveryFailures
	gpuSymbolErrors
	gpuEffectiveErrors
	gpuEffectiveBER
	gpuGraphicsActive
	gpuSMActive
	gpuTensorActive
	gpuPCIeTxRate
	gpuPCIeRxRate
	gpuC2CTxRate
	gpuC2CRxRate
	gpuColumns
)

const (
	migGraphicsActive migColumn = iota + 1
	migSMActive
	migTensorActive
	migColumns
)

const (
	linkTxBytes linkColumn = iota + 1
	linkRxBytes
	linkBothRate
	linkTxRate
	linkRxRate
	linkErrors
	linkReplays
	linkRecoveries
	linkDowns
	linkState
	linkColumns
)

// field is one field of DCGM.
type field struct {
	id    uint16
	names []string // the newest first
	kind  kind
	scale float64 // makes bytes, or bytes per second, of the number; 0 = 1
	// What the field feeds: of a GPU as a whole, of a MIG instance, of a link.
	gpu  gpuColumn
	mig  migColumn
	link linkColumn
	// number is the link that the name itself speaks of; -1 = none.
	number int
	// rank decides between fields that feed the same column: the lowest that has a value.
	rank uint8
}

// kibMilli is the unit of the fields that DCGM derives from NVML's counters in KiB: it divides KiB/s by 1000.
const kibMilli = 1024 * 1000

// table lists the fields that are used, by id, with all names they have had: those before DCGM 4.6, those since, which
// the header dcgm_fields.h of that version maps, and no others. The ids have never changed. 1200-1219 read link 0 alone
// before 4.5.3 and all links since; nothing in an exposition tells which, so the jump is found by its size.
func table() []field {
	list := []field{
		{id: 1201, names: []string{"DEV_NVLINK_TX_BYTES_TOTAL", "DEV_NVLINK_COUNT_TX_BYTES"}, kind: counter, gpu: gpuTxBytes, link: linkTxBytes},
		{id: 1203, names: []string{"DEV_NVLINK_RX_BYTES_TOTAL", "DEV_NVLINK_COUNT_RX_BYTES"}, kind: counter, gpu: gpuRxBytes, link: linkRxBytes},

		{id: 449, names: []string{"DEV_NVLINK_THROUGHPUT_TOTAL", "DEV_NVLINK_BANDWIDTH_TOTAL"}, kind: rate, scale: kibMilli, gpu: gpuBothRate},
		{id: 1011, names: []string{"PROF_NVLINK_TX_BYTES"}, kind: rate, gpu: gpuTxRate},
		{id: 1012, names: []string{"PROF_NVLINK_RX_BYTES"}, kind: rate, gpu: gpuRxRate},
		{id: 843, names: []string{"DEV_NVLINK_TX_THROUGHPUT_TOTAL", "DEV_NVLINK_TX_BANDWIDTH_TOTAL"}, kind: rate, scale: kibMilli, gpu: gpuTxRate, rank: 1},
		{id: 897, names: []string{"DEV_NVLINK_RX_THROUGHPUT_TOTAL", "DEV_NVLINK_RX_BANDWIDTH_TOTAL"}, kind: rate, scale: kibMilli, gpu: gpuRxRate, rank: 1},

		{id: 1206, names: []string{"DEV_NVLINK_RX_ERROR_TOTAL", "DEV_NVLINK_COUNT_RX_ERRORS"}, kind: counter, gpu: gpuErrors, link: linkErrors},
		{id: 497, names: []string{"DEV_NVLINK_CRC_ERROR_TOTAL", "DEV_NVLINK_ERROR_DL_CRC"}, kind: counter, gpu: gpuErrors, rank: 1},
		{id: 419, names: []string{"DEV_NVLINK_CRC_DATA_ERROR_TOTAL", "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"}, kind: counter, gpu: gpuErrors, rank: 2},
		{id: 1210, names: []string{"DEV_NVLINK_COUNT_TX_DISCARDS"}, kind: counter, gpu: gpuDiscards},
		{id: 499, names: []string{"DEV_NVLINK_REPLAY_TOTAL", "DEV_NVLINK_ERROR_DL_REPLAY"}, kind: counter, gpu: gpuReplays},
		{id: 429, names: []string{"DEV_NVLINK_REPLAY_ERROR_TOTAL", "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"}, kind: counter, gpu: gpuReplays, rank: 1},
		{id: 1213, names: []string{"DEV_NVLINK_RECOVERY_EVENT_TOTAL", "DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS"}, kind: counter, gpu: gpuRecoveries, link: linkRecoveries},
		{id: 498, names: []string{"DEV_NVLINK_RECOVERY_TOTAL", "DEV_NVLINK_ERROR_DL_RECOVERY"}, kind: counter, gpu: gpuRecoveries, rank: 1},
		{id: 439, names: []string{"DEV_NVLINK_RECOVERY_ERROR_TOTAL", "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"}, kind: counter, gpu: gpuRecoveries, rank: 2},
		{id: 1212, names: []string{"DEV_NVLINK_RECOVERY_FAILED_TOTAL", "DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS"}, kind: counter, gpu: gpuRecoveryFailures},
		{id: 1214, names: []string{"DEV_NVLINK_RX_SYMBOL_ERROR_TOTAL", "DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS"}, kind: counter, gpu: gpuSymbolErrors},
		{id: 1219, names: []string{"DEV_NVLINK_EFFECTIVE_ERROR_TOTAL", "DEV_NVLINK_COUNT_EFFECTIVE_ERRORS"}, kind: counter, gpu: gpuEffectiveErrors},
		// Of the bit error rate the packed form is read: an exporter prints the other, 1218, with six decimals, so as 0.
		{id: 1217, names: []string{"DEV_NVLINK_EFFECTIVE_BER_RAW", "DEV_NVLINK_COUNT_EFFECTIVE_BER"}, kind: bitError, gpu: gpuEffectiveBER},

		{id: 1001, names: []string{"PROF_GR_ENGINE_UTIL_RATIO", "PROF_GR_ENGINE_ACTIVE"}, kind: gauge, gpu: gpuGraphicsActive, mig: migGraphicsActive},
		{id: 1002, names: []string{"PROF_SM_UTIL_RATIO", "PROF_SM_ACTIVE"}, kind: gauge, gpu: gpuSMActive, mig: migSMActive},
		{id: 1004, names: []string{"PROF_TENSOR_UTIL_RATIO", "PROF_PIPE_TENSOR_ACTIVE"}, kind: gauge, gpu: gpuTensorActive, mig: migTensorActive},
		{id: 1009, names: []string{"PROF_PCIE_TX_BYTES"}, kind: rate, gpu: gpuPCIeTxRate},
		{id: 1010, names: []string{"PROF_PCIE_RX_BYTES"}, kind: rate, gpu: gpuPCIeRxRate},
		{id: 1076, names: []string{"PROF_C2C_TX_ALL_BYTES"}, kind: rate, gpu: gpuC2CTxRate},
		{id: 1078, names: []string{"PROF_C2C_RX_ALL_BYTES"}, kind: rate, gpu: gpuC2CRxRate},

		// Of link entities.
		{id: 1508, names: []string{"DEV_NVLINK_GET_STATE"}, kind: gauge, link: linkState},
		{id: 585, names: []string{"DEV_NVLINK_PPCNT_PHYSICAL_LINK_DOWN_TOTAL", "DEV_NVLINK_PPCNT_PHYSICAL_LINK_DOWN_COUNTER"}, kind: counter, link: linkDowns},
		{id: 1532, names: []string{"PROF_NVLINK_TX_BYTES_PER_LINK"}, kind: rate, link: linkTxRate},
		{id: 1533, names: []string{"PROF_NVLINK_RX_BYTES_PER_LINK"}, kind: rate, link: linkRxRate},
		{id: 1529, names: []string{"DEV_NVLINK_THROUGHPUT_PER_LINK"}, kind: rate, scale: kibMilli, link: linkBothRate},
		{id: 1530, names: []string{"DEV_NVLINK_TX_THROUGHPUT_PER_LINK"}, kind: rate, scale: kibMilli, link: linkTxRate, rank: 1},
		{id: 1531, names: []string{"DEV_NVLINK_RX_THROUGHPUT_PER_LINK"}, kind: rate, scale: kibMilli, link: linkRxRate, rank: 1},
		{id: 1526, names: []string{"DEV_NVLINK_CRC_DATA_ERROR_PER_LINK_TOTAL"}, kind: counter, link: linkErrors, rank: 1},
		{id: 1527, names: []string{"DEV_NVLINK_REPLAY_ERROR_PER_LINK_TOTAL"}, kind: counter, link: linkReplays},
		{id: 1528, names: []string{"DEV_NVLINK_RECOVERY_ERROR_PER_LINK_TOTAL"}, kind: counter, link: linkRecoveries, rank: 1},

		{id: fabricManagerStatus, names: []string{"DEV_FABRIC_MANAGER_STATUS"}, kind: identity},
		{id: fabricManagerError, names: []string{"DEV_FABRIC_MANAGER_ERROR", "DEV_FABRIC_MANAGER_ERROR_CODE"}, kind: identity},
		{id: fabricCliqueID, names: []string{"DEV_FABRIC_CLIQUE_ID"}, kind: identity},
		{id: fabricHealthMask, names: []string{"DEV_FABRIC_HEALTH_MASK"}, kind: identity},
		// 175, the summary of the health, comes from the structure that the mask comes from and says less: it is not read.
	}
	for i := range list {
		list[i].number = -1
	}

	// Fields with the link in their name. The ids of one quantity lie apart, with those of others between.
	for link := range 18 {
		each := func(ids [18]uint16, f field, names ...string) {
			f.id, f.number = ids[link], link
			for _, name := range names {
				f.names = append(f.names, fmt.Sprintf(name, link))
			}
			list = append(list, f)
		}
		each(run(1040, 2), field{kind: rate, link: linkTxRate}, "PROF_NVLINK_L%d_TX_BYTES")
		each(run(1041, 2), field{kind: rate, link: linkRxRate}, "PROF_NVLINK_L%d_RX_BYTES")
		each(run(825, 1), field{kind: rate, scale: kibMilli, link: linkTxRate, rank: 2},
			"DEV_NVLINK_TX_THROUGHPUT_L%d", "DEV_NVLINK_TX_BANDWIDTH_L%d")
		each(run(879, 1), field{kind: rate, scale: kibMilli, link: linkRxRate, rank: 2},
			"DEV_NVLINK_RX_THROUGHPUT_L%d", "DEV_NVLINK_RX_BANDWIDTH_L%d")
		each([18]uint16{440, 441, 442, 443, 444, 445, 475, 476, 477, 478, 479, 480, 446, 447, 448, 494, 495, 496},
			field{kind: rate, scale: kibMilli, link: linkBothRate, rank: 1},
			"DEV_NVLINK_THROUGHPUT_L%d", "DEV_NVLINK_BANDWIDTH_L%d")
		each([18]uint16{410, 411, 412, 413, 414, 415, 457, 458, 459, 460, 461, 462, 416, 417, 418, 484, 485, 486},
			field{kind: counter, link: linkErrors, rank: 2},
			"DEV_NVLINK_CRC_DATA_ERROR_L%d_TOTAL", "DEV_NVLINK_CRC_DATA_ERROR_COUNT_L%d")
		each([18]uint16{420, 421, 422, 423, 424, 425, 463, 464, 465, 466, 467, 468, 426, 427, 428, 487, 488, 489},
			field{kind: counter, link: linkReplays, rank: 1},
			"DEV_NVLINK_REPLAY_ERROR_L%d_TOTAL", "DEV_NVLINK_REPLAY_ERROR_COUNT_L%d")
		each([18]uint16{430, 431, 432, 433, 434, 435, 469, 470, 471, 472, 473, 474, 436, 437, 438, 491, 492, 493},
			field{kind: counter, link: linkRecoveries, rank: 2},
			"DEV_NVLINK_RECOVERY_ERROR_L%d_TOTAL", "DEV_NVLINK_RECOVERY_ERROR_COUNT_L%d")
	}
	return list
}

// run is ids at equal distances.
func run(first, step uint16) (ids [18]uint16) {
	for i := range ids {
		ids[i] = first + uint16(i)*step
	}
	return ids
}

// byName maps metric names to fields: those of the table, with the prefix they all have, and those an operator chose.
func byName(chosen map[string]uint16) (map[string]*field, error) {
	list := table()
	names := make(map[string]*field, 2*len(list))
	ids := make(map[uint16]*field, len(list))
	for i := range list {
		f := &list[i]
		ids[f.id] = f
		for _, name := range f.names {
			names["DCGM_FI_"+name] = f
		}
	}
	for name, id := range chosen {
		f := ids[id]
		if f == nil {
			return nil, fmt.Errorf("%s is said to be field %d, of which nothing is recorded; take it out", name, id)
		}
		names[name] = f
	}
	return names, nil
}

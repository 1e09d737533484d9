package dcgm

import (
	"math"
	"strconv"

	"github.com/spillway-io/spillway/schemas/event"
)

// Ids of the fields that tell the fabric.
const (
	fabricManagerStatus = 170
	fabricManagerError  = 171
	fabricClusterUUID   = 172
	fabricCliqueID      = 173
	fabricHealthMask    = 174
)

// fabric is what an exporter tells of the fabric of one GPU.
type fabric struct {
	has         uint8 // bit 0-4: status, error, clique, mask, cluster UUID
	status      int64
	errorCode   int64
	clique      uint32
	mask        uint32
	clusterUUID string
}

const (
	hasStatus = 1 << iota
	hasError
	hasClique
	hasMask
	hasClusterUUID
)

// take notes the value of one field. A number that does not fit its field is none.
func (f *fabric) take(id uint16, v float64) {
	if v != math.Trunc(v) || math.Abs(v) > math.MaxUint32 {
		return
	}
	switch {
	case id == fabricManagerStatus:
		f.status, f.has = int64(v), f.has|hasStatus
	case id == fabricManagerError:
		f.errorCode, f.has = int64(v), f.has|hasError
	case id == fabricCliqueID && v >= 0:
		f.clique, f.has = uint32(v), f.has|hasClique
	case id == fabricHealthMask && v >= 0:
		f.mask, f.has = uint32(v), f.has|hasMask
	}
}

// merge adds what other tells.
func (f *fabric) merge(other *fabric) {
	if other.has&hasStatus != 0 {
		f.status = other.status
	}
	if other.has&hasError != 0 {
		f.errorCode = other.errorCode
	}
	if other.has&hasClique != 0 {
		f.clique = other.clique
	}
	if other.has&hasMask != 0 {
		f.mask = other.mask
	}
	if other.has&hasClusterUUID != 0 {
		f.clusterUUID = other.clusterUUID
	}
	f.has |= other.has
}

// words are state and status of dcgmFabricManagerStatus_t in the words of the contract. On an error DCGM stores its code,
// which is negative, in place of the status.
func (f *fabric) words() (state, status string) {
	if f.has&hasStatus == 0 {
		return "", ""
	}
	switch f.status {
	case 0:
		return event.FabricNotSupported, ""
	case 1:
		return event.FabricNotStarted, ""
	case 2:
		return event.FabricInProgress, ""
	case 3:
		return event.FabricCompleted, event.FabricSuccess
	case 4:
		if f.has&hasError != 0 && f.errorCode != 0 {
			return event.FabricCompleted, event.FabricFailure + "_" + strconv.FormatInt(f.errorCode, 10)
		}
		return event.FabricCompleted, event.FabricFailure
	case 5:
		return "", "unrecognized"
	case 6:
		return "", "nvml_too_old"
	}
	return "", "dcgm_error_" + strconv.FormatInt(f.status, 10)
}

// record is the fabric as the contract has it; it shares no memory with f.
func (f *fabric) record(index uint32, uuid string) *event.GpuFabric {
	g := &event.GpuFabric{Index: index, Uuid: uuid, ClusterUuid: f.clusterUUID}
	g.State, g.Status = f.words()
	if clique := f.clique; f.has&hasClique != 0 {
		g.CliqueId = &clique
	}
	if mask := f.mask; f.has&hasMask != 0 {
		g.HealthMask = &mask
	}
	return g
}

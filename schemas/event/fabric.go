package event

// Words of GpuFabric.state. A source that cannot tell leaves it empty.
const (
	FabricNotSupported = "not_supported"
	FabricNotStarted   = "not_started"
	FabricInProgress   = "in_progress"
	FabricCompleted    = "completed"
)

// Words of GpuFabric.status; other failures are named as their source names them, in lower case with underscores.
const (
	FabricSuccess = "success"
	FabricFailure = "failure"
)

// HealthBit is the answer of one sub-field of a health mask to whether something is wrong.
type HealthBit uint8

const (
	HealthNotTold HealthBit = iota
	HealthBad
	HealthGood
)

// FabricHealth is a decoded GpuFabric.health_mask. The mask is packed sub-fields, and healthy is not zero: 0xaa has
// four of them saying no to "is something wrong?". A mask of zero means that the driver tells nothing. Layout:
// NVML_GPU_FABRIC_HEALTH_MASK_* of nvml.h.
type FabricHealth struct {
	DegradedBandwidth     HealthBit // bits 0-1
	RouteRecovery         HealthBit // bits 2-3: a recovery goes on
	RouteUnhealthy        HealthBit // bits 4-5
	AccessTimeoutRecovery HealthBit // bits 6-7
	Configuration         HealthBit // bits 8-11
	Misconfigured         string    // what is wrong with the configuration; empty when Configuration is not HealthBad
	PartitionAssigned     HealthBit // bits 12-13; HealthBad = the GPU has no partition
	ManagerConnected      HealthBit // bits 14-15; HealthBad = the global fabric manager is not connected
}

// misconfigured names the values of the configuration sub-field from 2 on; 1 is none.
var misconfigured = [...]string{
	2: "system_guid", 3: "chassis_serial_number", 4: "no_partition", 5: "insufficient_nvlinks", 6: "gpu_firmware",
	7: "invalid_location", 8: "gpu_state",
}

// DecodeFabricHealth takes a health mask apart. Values that no documented driver writes are not told.
func DecodeFabricHealth(mask uint32) FabricHealth {
	// The first four ask "is it bad?": 1 = yes, 2 = no. The later ones ask "is it good?".
	bad := func(shift uint) HealthBit {
		switch mask >> shift & 3 {
		case 1:
			return HealthBad
		case 2:
			return HealthGood
		}
		return HealthNotTold
	}
	good := func(shift uint) HealthBit {
		switch mask >> shift & 3 {
		case 1:
			return HealthGood
		case 2:
			return HealthBad
		}
		return HealthNotTold
	}
	h := FabricHealth{
		DegradedBandwidth: bad(0), RouteRecovery: bad(2), RouteUnhealthy: bad(4), AccessTimeoutRecovery: bad(6),
		PartitionAssigned: good(12), ManagerConnected: good(14),
	}
	switch v := mask >> 8 & 0xf; {
	case v == 1:
		h.Configuration = HealthGood
	case v >= 2 && int(v) < len(misconfigured):
		h.Configuration, h.Misconfigured = HealthBad, misconfigured[v]
	}
	return h
}

// Mask is the opposite of DecodeFabricHealth.
func (h FabricHealth) Mask() uint32 {
	m := uint32(h.DegradedBandwidth) | uint32(h.RouteRecovery)<<2 | uint32(h.RouteUnhealthy)<<4 |
		uint32(h.AccessTimeoutRecovery)<<6
	flip := [...]uint32{HealthNotTold: 0, HealthBad: 2, HealthGood: 1}
	m |= flip[h.PartitionAssigned]<<12 | flip[h.ManagerConnected]<<14
	if h.Configuration == HealthGood {
		return m | 1<<8
	}
	for v, name := range misconfigured {
		if name != "" && name == h.Misconfigured && h.Configuration == HealthBad {
			m |= uint32(v) << 8
		}
	}
	return m
}

// FabricFaultBits are bits of a health mask of which every mask with a fault has one, and no healthy mask has any.
func FabricFaultBits() uint32 {
	faulty := FabricHealth{HealthBad, HealthBad, HealthBad, HealthBad, HealthNotTold, "", HealthBad, HealthBad}.Mask()
	for _, what := range misconfigured {
		faulty |= FabricHealth{Configuration: HealthBad, Misconfigured: what}.Mask()
	}
	healthy := FabricHealth{HealthGood, HealthGood, HealthGood, HealthGood, HealthGood, "", HealthGood, HealthGood}.Mask()
	return faulty &^ healthy
}

// Faults names what is wrong, in the order of the mask; empty = nothing that the driver tells.
func (h FabricHealth) Faults() []string {
	var out []string
	for _, f := range []struct {
		bit  HealthBit
		name string
	}{
		{h.DegradedBandwidth, "degraded_bandwidth"},
		{h.RouteRecovery, "route_recovery"},
		{h.RouteUnhealthy, "route_unhealthy"},
		{h.AccessTimeoutRecovery, "access_timeout_recovery"},
		{h.Configuration, "incorrect_configuration:" + h.Misconfigured},
		{h.PartitionAssigned, "no_partition_assigned"},
		{h.ManagerConnected, "fabric_manager_disconnected"},
	} {
		if f.bit == HealthBad {
			out = append(out, f.name)
		}
	}
	return out
}

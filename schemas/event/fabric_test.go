package event

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestFabricHealth(t *testing.T) {
	for name, c := range map[string]struct {
		mask   uint32
		faults []string
	}{
		"zero tells nothing":                                   {0, nil},
		"0xaa is healthy though no bit pattern is zero":        {0xaa, nil},
		"0x1aa is healthy with a good configuration":           {0x1aa, nil},
		"0x11aa is healthy with a partition":                   {0x11aa, nil},
		"0x51aa is healthy with a connected manager":           {0x51aa, nil},
		"degraded bandwidth":                                   {0xa9, []string{"degraded_bandwidth"}},
		"an unhealthy route and a recovery":                    {0x96, []string{"route_recovery", "route_unhealthy"}},
		"an access timeout":                                    {0x6a, []string{"access_timeout_recovery"}},
		"a wrong chassis serial number":                        {0x3aa, []string{"incorrect_configuration:chassis_serial_number"}},
		"no partition and no manager":                          {0xa1aa, []string{"no_partition_assigned", "fabric_manager_disconnected"}},
		"values that no driver documents are no fault":         {0xff, nil},
		"a configuration that no driver documents is no fault": {0xfaa, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := DecodeFabricHealth(c.mask).Faults(); !slices.Equal(got, c.faults) {
				t.Errorf("faults of %#x: %v, want %v", c.mask, got, c.faults)
			}
		})
	}
}

func TestFabricHealthSurvivesTheWayThere(t *testing.T) {
	for range 1000 {
		mask := rand.Uint32()
		h := DecodeFabricHealth(mask)
		if again := DecodeFabricHealth(h.Mask()); again != h {
			t.Fatalf("%#x decodes to %+v, and its mask %#x to %+v", mask, h, h.Mask(), again)
		}
	}
}

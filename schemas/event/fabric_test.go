package event

import (
	"math/rand/v2"
	"testing"
)

func TestFabricHealth(t *testing.T) {
	const quiet, bad, good = HealthNotTold, HealthBad, HealthGood
	for name, c := range map[string]struct {
		mask uint32
		want FabricHealth
	}{
		"zero tells nothing":                                   {0, FabricHealth{}},
		"0xaa is healthy though no bit pattern is zero":        {0xaa, FabricHealth{good, good, good, good, quiet, "", quiet, quiet}},
		"0x1aa is healthy with a good configuration":           {0x1aa, FabricHealth{good, good, good, good, good, "", quiet, quiet}},
		"0x11aa is healthy with a partition":                   {0x11aa, FabricHealth{good, good, good, good, good, "", good, quiet}},
		"0x51aa is healthy with a connected manager":           {0x51aa, FabricHealth{good, good, good, good, good, "", good, good}},
		"degraded bandwidth":                                   {0xa9, FabricHealth{bad, good, good, good, quiet, "", quiet, quiet}},
		"an unhealthy route and a recovery":                    {0x96, FabricHealth{good, bad, bad, good, quiet, "", quiet, quiet}},
		"an access timeout":                                    {0x6a, FabricHealth{good, good, good, bad, quiet, "", quiet, quiet}},
		"a wrong chassis serial number":                        {0x3aa, FabricHealth{good, good, good, good, bad, "chassis_serial_number", quiet, quiet}},
		"no partition and no manager":                          {0xa1aa, FabricHealth{good, good, good, good, good, "", bad, bad}},
		"values that no driver documents are no fault":         {0xff, FabricHealth{}},
		"a configuration that no driver documents is no fault": {0xfaa, FabricHealth{good, good, good, good, quiet, "", quiet, quiet}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := DecodeFabricHealth(c.mask); got != c.want {
				t.Errorf("%#x is %+v, want %+v", c.mask, got, c.want)
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

func TestFaultBitsPassEveryFaultAndNoHealth(t *testing.T) {
	bits := FabricFaultBits()
	for mask := range uint32(1 << 16) {
		if len(DecodeFabricHealth(mask).Faults()) > 0 && mask&bits == 0 {
			t.Fatalf("%#x has faults and none of the bits %#x", mask, bits)
		}
	}
	for _, healthy := range []uint32{0, 0xaa, 0x1aa, 0x11aa, 0x51aa} {
		if healthy&bits != 0 {
			t.Errorf("%#x is healthy and has some of the bits %#x", healthy, bits)
		}
	}
}

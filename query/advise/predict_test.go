package advise

import (
	"math"
	"math/rand/v2"
	"testing"
)

func parts(gpus ...int32) []Part {
	out := make([]Part, len(gpus))
	for i, n := range gpus {
		out[i] = Part{Domain: int32(i), Nodes: n}
	}
	return out
}

// TestPredictWorkedExample: 16 GPUs on links of 900 and 50 GB/s, split in the ways an NVL72 user meets.
func TestPredictWorkedExample(t *testing.T) {
	for name, c := range map[string]struct {
		parts     []Part
		traffic   Traffic
		low, high float64
	}{
		"whole":                         {parts(16), Traffic{Pattern: AllToAll, Share: 0.1}, 1, 1},
		"15+1 ring of 3 %":              {parts(15, 1), Traffic{Pattern: AllReduce, Share: 0.03}, 1, 1.51},
		"15+1 ring of 10 %":             {parts(15, 1), Traffic{Pattern: AllReduce, Share: 0.1}, 1.8, 2.70},
		"12+4 ring of 10 %":             {parts(12, 4), Traffic{Pattern: AllReduce, Share: 0.1}, 1, 1.35},
		"8+8 ring of 3 %":               {parts(8, 8), Traffic{Pattern: AllReduce, Share: 0.03}, 1, 1.04},
		"8+8 all-to-all of 10 %":        {parts(8, 8), Traffic{Pattern: AllToAll, Share: 0.1}, 1, 1.86},
		"15+1 ring measured at 120":     {parts(15, 1), Traffic{Pattern: AllReduce, Rate: 120}, 2.40, 3.27},
		"8+8 ring measured at 120":      {parts(8, 8), Traffic{Pattern: AllReduce, Rate: 120}, 1, 1.17},
		"8+8 all-to-all at 120":         {parts(8, 8), Traffic{Pattern: AllToAll, Rate: 120}, 1.28, 2.15},
		"unknown pattern spans both":    {parts(8, 8), Traffic{Rate: 120}, 1, 2.15},
		"measured wins over assumed":    {parts(8, 8), Traffic{Pattern: AllToAll, Rate: 120, Share: 0.9}, 1.28, 2.15},
		"a class that does not care":    {parts(15, 1), Traffic{Pattern: PatternNone, Share: -1}, 1, 1},
		"a share of nothing is nothing": {parts(15, 1), Traffic{Pattern: AllToAll}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := DefaultLinks().Predict(nil, c.parts, 1, 16, c.traffic)
			if !got.Known || math.Abs(got.Low-c.low) > 0.01 || math.Abs(got.High-c.high) > 0.01 {
				t.Errorf("got %+v, want %.2f to %.2f", got, c.low, c.high)
			}
		})
	}
	if got := DefaultLinks().Predict(nil, parts(8, 8), 1, 16, Traffic{Pattern: AllToAll, Share: -1}); got.Known {
		t.Errorf("predicted %+v without a basis", got)
	}
	// 128 GPUs must cross: only skew counts.
	if got := DefaultLinks().Predict(nil, parts(64, 64), 1, 64, Traffic{Pattern: AllToAll, Share: 0.03}); got.High != 1 {
		t.Errorf("an even split of a job of two domains loses %+v", got)
	}
	if got := DefaultLinks().Predict(nil, parts(112, 16), 1, 64, Traffic{Pattern: AllReduce, Share: 0.03}); math.Abs(got.High-1.09) > 1e-9 {
		t.Errorf("112+16 instead of 64+64 gives %+v, want 1.09", got)
	}
}

// TestLinksComeFromTheNarrowestLevel: two racks of one block may have faster links than two of one spine.
func TestLinksComeFromTheNarrowestLevel(t *testing.T) {
	topo := cluster(t, make18(8), 4) // blocks of four
	l := Links{Domain: 900, Cluster: 25, Levels: map[string]float64{"block": 100, "spine": 50}}
	for name, c := range map[string]struct {
		parts []Part
		want  float64
	}{
		"one domain": {[]Part{{0, 4}}, 1}, "one block": {[]Part{{0, 4}, {3, 4}}, 9}, "two blocks": {[]Part{{0, 4}, {4, 4}}, 18},
	} {
		if got := l.LinkRatio(topo, c.parts); got != c.want {
			t.Errorf("%s: ratio %v, want %v", name, got, c.want)
		}
	}
	delete(l.Levels, "spine")
	if got := l.LinkRatio(topo, []Part{{0, 4}, {4, 4}}); got != 36 {
		t.Errorf("a level without a speed: ratio %v, want the cluster's 36", got)
	}
}

// TestCalibrateFindsTheSpeed: outcomes made on a slower network bring the calibration to it, and coverage up.
func TestCalibrateFindsTheSpeed(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	truth := Links{Domain: 900, Cluster: 30}
	var seen []Seen
	for range 200 {
		k := 1 + rng.Int32N(8)
		s := Seen{Parts: []int32{16 - k, k}, Ideal: 16, Traffic: Traffic{Pattern: AllToAll, Rate: 60 + 200*rng.Float64()}}
		i := truth.predictSeen(s)
		s.Slowdown = i.Low + (i.High-i.Low)*(0.7+0.3*rng.Float64()) // mostly not overlapped
		seen = append(seen, s)
	}
	seen = append(seen, Seen{Parts: []int32{8, 8}, Ideal: 16, Traffic: Traffic{Pattern: AllToAll, Share: -1}, Slowdown: 9}) // no basis
	c := Calibrate(DefaultLinks(), seen)
	if c.Jobs != 200 || c.After < 0.8 || c.After <= c.Before || c.Cluster >= 50 {
		t.Errorf("calibration %+v: want 200 jobs, coverage of at least 0.8 and above before, and a slower network than 50", c)
	}
	if none := Calibrate(DefaultLinks(), nil); none.Jobs != 0 || none.Cluster != 50 {
		t.Errorf("calibration from nothing changed something: %+v", none)
	}
}

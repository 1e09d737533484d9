package simulate

import "time"

// size is one row of a job mix: jobs of this many GPUs, how common they are and how long they run on average.
type size struct {
	gpus  int
	share float64
	mean  time.Duration
}

// mixes holds what jobs look like, by name.
//
// seren, helios and kalos are figures, not job records: shares read off the vector curves of the cumulative job-size plot
// (figure/cdf_job_gpunum.pdf) of InternLM/AcmeTrace at 6d6ac9cd, which is published under CC BY 4.0
// (https://creativecommons.org/licenses/by/4.0/) with "Characterization of Large Language Model Development in the
// Datacenter" (Hu et al., NSDI '24); the mean run time of a size is total GPU-time x its share of GPU-time / (its share
// of jobs x its GPUs), total from that repository's data/cluster_summary.csv. Changes: sizes rounded to 1, 2, 4 or
// multiples of 8, shares to 1e-4; rare sizes are noisy. nvl72 is assumed: what an NVL72 fleet might run, sizes by whole
// trays and racks.
var mixes = map[string][]size{
	"nvl72": {
		{1, .22, seconds(3600)},
		{2, .05, seconds(3600)},
		{4, .20, seconds(5400)},
		{8, .18, seconds(7200)},
		{16, .13, seconds(9000)},
		{24, .02, seconds(9000)},
		{32, .08, seconds(12000)},
		{48, .02, seconds(12000)},
		{64, .05, seconds(14400)},
		{72, .02, seconds(14400)},
		{128, .02, seconds(18000)},
		{144, .005, seconds(18000)},
		{256, .005, seconds(20000)},
	},
	"seren": {
		{1, .5404, seconds(809)},
		{2, .1139, seconds(626)},
		{3, .0012, seconds(900)},
		{4, .0240, seconds(1924)},
		{7, .0004, seconds(2314)},
		{8, .2876, seconds(1342)},
		{16, .0111, seconds(2244)},
		{32, .0096, seconds(6296)},
		{48, .0007, seconds(1157)},
		{64, .0043, seconds(10842)},
		{128, .0023, seconds(14570)},
		{256, .0018, seconds(12388)},
		{512, .0013, seconds(5052)},
		{768, .0008, seconds(8337)},
		{1024, .0006, seconds(7646)},
	},
	"helios": {
		{1, .7219, seconds(3719)},
		{2, .0256, seconds(16579)},
		{3, .0009, seconds(21934)},
		{4, .0563, seconds(10650)},
		{5, .0003, seconds(9870)},
		{7, .0018, seconds(14100)},
		{8, .1401, seconds(12686)},
		{16, .0303, seconds(20522)},
		{24, .0036, seconds(10624)},
		{32, .0127, seconds(28258)},
		{40, .0010, seconds(15052)},
		{48, .0010, seconds(19843)},
		{56, .0006, seconds(9841)},
		{64, .0012, seconds(25254)},
		{80, .0008, seconds(13494)},
		{120, .0007, seconds(7931)},
		{152, .0005, seconds(15909)},
	},
	"kalos": {
		{1, .8628, seconds(435)},
		{2, .0208, seconds(60)},
		{8, .0556, seconds(2891)},
		{16, .0034, seconds(60)},
		{32, .0039, seconds(28765)},
		{64, .0065, seconds(8372)},
		{128, .0038, seconds(2699)},
		{256, .0122, seconds(18211)},
		{496, .0012, seconds(8147)},
		{504, .0018, seconds(29324)},
		{512, .0174, seconds(8246)},
		{1024, .0106, seconds(8851)},
	},
}

// Mixes gives the mixes by name: GPUs, share of the jobs and mean run time of each size.
func Mixes() map[string][]Size {
	out := map[string][]Size{}
	for name, mix := range mixes {
		for _, z := range mix {
			out[name] = append(out[name], Size{z.gpus, z.share, z.mean})
		}
	}
	return out
}

// Size is one row of a job mix, as Mixes gives it.
type Size struct {
	GPUs  int
	Share float64
	Mean  time.Duration
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// sizeTable draws sizes of a mix by their shares, leaving out those too large for a partition.
type sizeTable struct {
	sizes []size
	sums  []float64 // running sums of the shares kept
	work  float64   // mean GPU-milliseconds of a job
}

func newSizeTable(mix []size, largest int) sizeTable {
	var t sizeTable
	sum, work := 0.0, 0.0
	for _, z := range mix {
		if z.gpus > largest {
			continue
		}
		sum += z.share
		work += z.share * float64(z.gpus) * float64(z.mean.Milliseconds())
		t.sizes = append(t.sizes, z)
		t.sums = append(t.sums, sum)
	}
	t.work = work / sum
	return t
}

// pick gives the size at u in [0, 1).
func (t sizeTable) pick(u float64) size {
	u *= t.sums[len(t.sums)-1]
	for i, sum := range t.sums {
		if u < sum {
			return t.sizes[i]
		}
	}
	return t.sizes[len(t.sizes)-1]
}

package advise

import (
	"math"
	"slices"
)

// Seen is a prediction and what came of it: a job that was observed both whole and split.
type Seen struct {
	// Parts are the GPUs of each part of the split; Ideal is the smallest part of its best shape, all its GPUs where a
	// domain could hold it.
	Parts   []int32
	Ideal   int32
	Traffic Traffic
	// Slowdown is the measured step time split over the measured step time whole.
	Slowdown float64
}

// Calibration is the speed between domains that explains the outcomes best, and how well.
type Calibration struct {
	Cluster float64 `json:"cluster_GBps"`
	// Jobs are the outcomes that had a basis.
	Jobs int `json:"jobs"`
	// Before and After are the shares of outcomes inside the predicted interval, with the configured speed and this one.
	Before float64 `json:"coverage_before"`
	After  float64 `json:"coverage_after"`
	// Error is the median of |ln(actual / middle of the interval)| with this speed.
	Error float64 `json:"median_log_error"`
}

// Slack widens an interval on both sides when an outcome is compared with it: step times are not exact to a percent.
const Slack = 0.02

// Coverage is the share of outcomes inside the predicted interval, of those with a basis.
func Coverage(l Links, seen []Seen) (share float64, jobs int) {
	inside := 0
	for _, s := range seen {
		i := l.predictSeen(s)
		if !i.Known {
			continue
		}
		jobs++
		if s.Slowdown >= i.Low-Slack && s.Slowdown <= i.High+Slack {
			inside++
		}
	}
	if jobs == 0 {
		return 0, 0
	}
	return float64(inside) / float64(jobs), jobs
}

// Calibrate looks for the speed between domains, from a quarter of the configured one to four times it, under which most
// outcomes lie inside their interval and, among those, the middle of the interval is nearest.
func Calibrate(l Links, seen []Seen) Calibration {
	before, jobs := Coverage(l, seen)
	best := Calibration{Cluster: l.Cluster, Jobs: jobs, Before: before, After: before, Error: l.logError(seen)}
	if jobs == 0 {
		return best
	}
	const steps = 40
	for k := -steps; k <= steps; k++ {
		try := l
		try.Cluster = l.Cluster * math.Pow(4, float64(k)/steps)
		after, _ := Coverage(try, seen)
		if e := try.logError(seen); after > best.After || after == best.After && e < best.Error {
			best.Cluster, best.After, best.Error = try.Cluster, after, e
		}
	}
	return best
}

func (l Links) logError(seen []Seen) float64 {
	var errs []float64
	for _, s := range seen {
		if i := l.predictSeen(s); i.Known && s.Slowdown > 0 {
			errs = append(errs, math.Abs(math.Log(s.Slowdown/((i.Low+i.High)/2))))
		}
	}
	if len(errs) == 0 {
		return 0
	}
	slices.Sort(errs)
	return errs[len(errs)/2]
}

// predictSeen predicts with the cluster's speed: outcomes do not carry levels.
func (l Links) predictSeen(s Seen) Interval {
	parts := make([]Part, len(s.Parts))
	for i, n := range s.Parts {
		parts[i] = Part{Domain: int32(i), Nodes: n}
	}
	l.Levels = nil
	return l.Predict(nil, parts, 1, s.Ideal, s.Traffic)
}

package live

import "slices"

// history is how long runs of one user and name took, ascending, in seconds.
type history []int32

// The fewest past runs that an estimate rests on, those that a 90th percentile does, and the most that are kept.
const (
	enoughRuns  = 3
	enoughOfP90 = 10
	mostRuns    = 100
)

// add remembers a run.
func (h history) add(seconds int32) history {
	if len(h) >= mostRuns {
		h = slices.Delete(slices.Clone(h), len(h)/2, len(h)/2+1)
	}
	at, _ := slices.BinarySearch(h, seconds)
	return slices.Insert(h, at, seconds)
}

// end estimates, as Unix seconds, when a run that began at start ends: the median of the past runs that lasted longer than
// this one has, and never beyond the limit (0 for none). Without enough such runs it is the limit; 0 = nobody can say.
func (h history) end(start, limit, now int64) int64 {
	longer := h.longer(now - start)
	if len(longer) < enoughRuns {
		return bounded(start, 0, limit)
	}
	return bounded(start, int64(longer[len(longer)/2]), limit)
}

// late is end at the 90th percentile, by nearest rank: nine of ten runs that lasted as long as this one has had ended by then.
// Without enough of them it is the limit, which no run passes; 0 = there is no basis.
func (h history) late(start, limit, now int64) int64 {
	longer := h.longer(now - start)
	if len(longer) < enoughOfP90 {
		return bounded(start, 0, limit)
	}
	return bounded(start, int64(longer[(9*len(longer)+9)/10-1]), limit)
}

// longer are the runs that lasted longer than that.
func (h history) longer(elapsed int64) history {
	at, _ := slices.BinarySearch(h, int32(min(max(0, elapsed), 1<<31-2))+1)
	return h[at:]
}

// bounded is when a run ends that takes so long, and never longer than its limit; 0 is not known of either.
func bounded(start, seconds, limit int64) int64 {
	switch {
	case seconds == 0 && limit <= 0:
		return 0
	case seconds == 0 || limit > 0 && limit < seconds:
		return start + limit
	}
	return start + seconds
}

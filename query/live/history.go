package live

import "slices"

// history is how long runs of one user and name took, ascending, in seconds.
type history []int32

// The fewest past runs that an estimate rests on, and the most that are kept.
const (
	enoughRuns = 3
	mostRuns   = 100
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
	elapsed := int32(min(max(0, now-start), 1<<31-1))
	at, _ := slices.BinarySearch(h, elapsed+1)
	longer := h[at:]
	if len(longer) < enoughRuns {
		if limit > 0 {
			return start + limit
		}
		return 0
	}
	end := start + int64(longer[len(longer)/2])
	if limit > 0 {
		end = min(end, start+limit)
	}
	return end
}

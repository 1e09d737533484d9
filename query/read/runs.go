package read

import (
	"context"
	"time"
)

// Run is one run that ended, as the simulator of policies wants it.
type Run struct {
	Cluster      string     `json:"cluster" ch:"cluster"`
	JobID        string     `json:"job_id" ch:"job_id"`
	Attempt      uint32     `json:"attempt" ch:"number"`
	User         string     `json:"user" ch:"user"`
	Name         string     `json:"name" ch:"name"`
	ServiceClass string     `json:"service_class" ch:"service_class"`
	Submit       time.Time  `json:"submit" ch:"submit"`
	Start        time.Time  `json:"start" ch:"start"`
	End          time.Time  `json:"end" ch:"end"`
	GPUs         uint32     `json:"gpus" ch:"gpus"`
	ExpectedEnd  *time.Time `json:"expected_end" ch:"expected_end" doc:"By its time limit; null when it had none."`
}

// Runs lists the runs that started within a time and have ended, at most limit, in order of submission.
type Runs struct {
	Since     time.Time `json:"since"`
	Until     time.Time `json:"until"`
	Runs      []Run     `json:"runs"`
	Complete  bool      `json:"complete" doc:"False when there are more than the limit."`
	Freshness Freshness `json:"freshness"`
}

// Runs gives the runs of a cluster (empty = all) that started in [since, until) and have ended. Those without a known
// number of GPUs and probe jobs are left out.
func (r *Reader) Runs(ctx context.Context, cluster string, since, until time.Time, limit uint64) (*Runs, error) {
	got, err := rows[Run](ctx, r, "runs", params{"cluster": cluster}.time("since", since).time("until", until).uint("limit", limit+1))
	if err != nil {
		return nil, err
	}
	out := &Runs{Since: since, Until: until, Runs: got, Complete: uint64(len(got)) <= limit}
	out.Runs = append([]Run{}, got[:min(uint64(len(got)), limit)]...)
	out.Freshness, err = r.freshness(ctx, cluster)
	return out, err
}

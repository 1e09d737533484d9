package read

import (
	"context"
	"time"
)

// SpillFilter narrows Spills; a zero field does not.
type SpillFilter struct {
	Cluster, User, Account, ServiceClass, Cause string
	Traffic                                     string // only those of which their traffic says so, see Traffic.Evidence
	Running                                     bool   // only those that hold their GPUs now
	Since, Until                                time.Time
	BySeverity                                  bool // most excess domains, then most GPUs first; else newest first
	Limit, Offset                               uint32
}

// Spills is one page of spilled placements.
type Spills struct {
	Spills    []Spill   `json:"spills"`
	Total     uint64    `json:"total" doc:"Matches over all pages."`
	Freshness Freshness `json:"freshness"`
}

// Spill is one placement that spilled. Probe jobs are left out: any real job may evict them.
type Spill struct {
	Cluster      string  `json:"cluster"`
	JobID        string  `json:"job_id"`
	Attempt      uint32  `json:"attempt"`
	Name         string  `json:"name"`
	User         string  `json:"user"`
	Account      string  `json:"account"`
	ServiceClass string  `json:"service_class"`
	State        string  `json:"state"`
	Verdict      Verdict `json:"verdict"`
}

// Spills gives placements judged a spill that held GPUs at some time in [Since, Until). With Traffic "silent_fallback" it
// gives those that are none by where they sit, and whose traffic goes over the scale-out network all the same.
func (r *Reader) Spills(ctx context.Context, f SpillFilter) (*Spills, error) {
	type row struct {
		verdictRow
		evidenceRow
		Cluster      string `ch:"cluster"`
		JobID        string `ch:"job_id"`
		Number       uint32 `ch:"number"`
		Name         string `ch:"name"`
		User         string `ch:"user"`
		Account      string `ch:"account"`
		ServiceClass string `ch:"service_class"`
		State        string `ch:"state"`
		Total        uint64 `ch:"total"`
	}
	p := params{
		"cluster": f.Cluster, "user": f.User, "account": f.Account, "service_class": f.ServiceClass, "cause": f.Cause, "traffic": f.Traffic,
	}.flag("fallbacks", f.Traffic == fallback).flag("running", f.Running).flag("by_severity", f.BySeverity).time("since", f.Since).time("until", f.Until).
		time("now", r.now()).uint("limit", uint64(f.Limit)).uint("offset", uint64(f.Offset))
	got, err := rows[row](ctx, r, "spills", p)
	if err != nil {
		return nil, err
	}
	names, err := r.freshLabels(ctx)
	if err != nil {
		return nil, err
	}
	out := &Spills{Spills: make([]Spill, len(got))}
	for i, s := range got {
		v := s.verdict(s.Cluster, names)
		v.Traffic = s.traffic(v)
		out.Total = s.Total
		out.Spills[i] = Spill{
			Cluster: s.Cluster, JobID: s.JobID, Attempt: s.Number, Name: s.Name, User: s.User, Account: s.Account,
			ServiceClass: s.ServiceClass, State: s.State, Verdict: v,
		}
	}
	out.Freshness, err = r.freshness(ctx, f.Cluster)
	return out, err
}

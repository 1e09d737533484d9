package read

import (
	"context"
	"time"
)

// Outcome is one attempt and its verdict in one flat object: what `spillway replay` prints. A null is unknown.
type Outcome struct {
	Cluster        string             `json:"cluster"`
	Scheduler      string             `json:"scheduler"`
	JobID          string             `json:"job_id"`
	Attempt        uint32             `json:"attempt"`
	Start          *time.Time         `json:"start"`
	End            *time.Time         `json:"end"`
	GPUs           *uint32            `json:"gpus"`
	Nodes          []string           `json:"nodes"`
	Shape          map[string]*uint32 `json:"shape"`
	DomainsUsed    *uint32            `json:"domains_used"`
	DomainsMin     *uint32            `json:"domains_min"`
	ExcessDomains  *int32             `json:"excess_domains"`
	PartitionsUsed *uint32            `json:"partitions_used"`
	UnknownNodes   *uint32            `json:"unknown_nodes"`
	Outcome        *string            `json:"outcome"`
	Cause          *string            `json:"cause"`
	Intent         *string            `json:"intent"`
	IntentMet      *bool              `json:"intent_met"`
}

// Outcomes gives every attempt that started, by cluster, job and attempt, at most limit. It reads whole tables: it is
// for a replay's throw-away store and for exports, not for a page.
func (r *Reader) Outcomes(ctx context.Context, limit uint64) ([]Outcome, error) {
	type row struct {
		Cluster        string     `ch:"cluster"`
		Scheduler      string     `ch:"scheduler"`
		JobID          string     `ch:"job_id"`
		Number         uint32     `ch:"number"`
		Start          *time.Time `ch:"start"`
		End            *time.Time `ch:"end"`
		GPUs           *uint32    `ch:"gpus"`
		Nodes          []string   `ch:"nodes"`
		Domains        []string   `ch:"domains"`
		DomainGPUs     []*uint32  `ch:"domain_gpus"`
		DomainsUsed    *uint32    `ch:"domains_used"`
		DomainsMin     *uint32    `ch:"domains_min"`
		ExcessDomains  *int32     `ch:"excess_domains"`
		PartitionsUsed *uint32    `ch:"partitions_used"`
		UnknownNodes   *uint32    `ch:"unknown_nodes"`
		Outcome        *string    `ch:"outcome"`
		Cause          *string    `ch:"cause"`
		Intent         *string    `ch:"intent"`
		IntentMet      *bool      `ch:"intent_met"`
	}
	got, err := rows[row](ctx, r, "attempts_all", params{}.uint("limit", limit))
	if err != nil {
		return nil, err
	}
	out := make([]Outcome, len(got))
	for i, a := range got {
		out[i] = Outcome{
			Cluster: a.Cluster, Scheduler: a.Scheduler, JobID: a.JobID, Attempt: a.Number, Start: a.Start, End: a.End,
			GPUs: a.GPUs, Nodes: orEmpty(a.Nodes), Shape: map[string]*uint32{}, DomainsUsed: a.DomainsUsed,
			DomainsMin: a.DomainsMin, ExcessDomains: a.ExcessDomains, PartitionsUsed: a.PartitionsUsed,
			UnknownNodes: a.UnknownNodes, Outcome: a.Outcome, Intent: a.Intent, IntentMet: a.IntentMet,
		}
		if a.Intent != nil && *a.Intent == "unknown" {
			out[i].Intent = nil
		}
		if a.Cause != nil {
			out[i].Cause = text(*a.Cause)
		}
		for d, name := range a.Domains {
			out[i].Shape[name] = a.DomainGPUs[d]
		}
	}
	return out, nil
}

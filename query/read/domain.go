package read

import (
	"context"
	"fmt"
	"time"
)

// DomainAt is one domain at a moment: its capacity, its nodes and who held GPUs there.
type DomainAt struct {
	At        time.Time    `json:"at"`
	Capacity  *Domain      `json:"capacity" doc:"null when nothing was recorded of it by then"`
	Nodes     []DomainNode `json:"nodes"`
	Jobs      []DomainJob  `json:"jobs" doc:"Most GPUs here first."`
	Freshness Freshness    `json:"freshness"`
}

// DomainNode is one node of a domain. Nulls are unknown.
type DomainNode struct {
	Node        string            `json:"node" ch:"node"`
	Partition   string            `json:"partition" ch:"partition" doc:"Empty when not known."`
	Levels      map[string]string `json:"levels" ch:"levels"`
	Source      string            `json:"source" ch:"source"`
	Since       time.Time         `json:"since" ch:"valid_from"`
	GPUsPresent *uint16           `json:"gpus_present" ch:"gpus_present"`
	GPUsUsable  *uint16           `json:"gpus_usable" ch:"gpus_usable"`
	Schedulable *bool             `json:"schedulable" ch:"schedulable"`
	State       *string           `json:"state" ch:"state_raw"`
	Reason      *string           `json:"reason" ch:"reason"`
}

// DomainJob is one attempt that holds GPUs of a domain.
type DomainJob struct {
	JobID        string     `json:"job_id" ch:"job_id"`
	Attempt      uint32     `json:"attempt" ch:"number"`
	Name         string     `json:"name" ch:"name"`
	User         string     `json:"user" ch:"user"`
	Account      string     `json:"account" ch:"account"`
	ServiceClass string     `json:"service_class" ch:"service_class"`
	Probe        bool       `json:"probe" ch:"probe"`
	State        string     `json:"state" ch:"state"`
	From         time.Time  `json:"from" ch:"valid_from"`
	ExpectedEnd  *time.Time `json:"expected_end" ch:"expected_end"`
	Outcome      string     `json:"outcome" ch:"outcome"`
	GPUs         *uint32    `json:"gpus" ch:"gpus"`
	GPUsHere     *uint32    `json:"gpus_here" ch:"gpus_here"`
	DomainsUsed  uint64     `json:"domains_used" ch:"domains_used"`
}

// DomainAt gives one domain at a moment, by its id or by its label. A domain never heard of wraps ErrNotFound; one id in
// several clusters wraps ErrAmbiguous.
func (r *Reader) DomainAt(ctx context.Context, cluster, domain string, at time.Time) (*DomainAt, error) {
	names, err := r.freshLabels(ctx)
	if err != nil {
		return nil, err
	}
	if named := names.named(cluster, domain); len(named) == 1 {
		cluster, domain = named[0][0], named[0][1]
	}
	capacity, err := rows[capacityRow](ctx, r, "domains_at", params{"cluster": cluster, "domain": domain}.time("at", at))
	if err != nil {
		return nil, err
	}
	if len(capacity) > 1 {
		return nil, fmt.Errorf("domain %s is known in %s and %s: %w: say which with cluster", domain,
			capacity[0].Cluster, capacity[1].Cluster, ErrAmbiguous)
	}
	out := &DomainAt{At: at, Nodes: []DomainNode{}, Jobs: []DomainJob{}}
	if len(capacity) == 1 {
		d := capacity[0].domain(names)
		out.Capacity, cluster = &d, d.Cluster
	}
	if cluster == "" {
		return nil, fmt.Errorf("domain %s at %s: %w: `spillway domains` lists those there are", domain,
			at.UTC().Format(time.RFC3339), ErrNotFound)
	}
	p := params{"cluster": cluster, "domain": domain}.time("at", at)
	if out.Nodes, err = rows[DomainNode](ctx, r, "domain_nodes_at", p); err != nil {
		return nil, err
	}
	if out.Jobs, err = rows[DomainJob](ctx, r, "domain_jobs_at", p); err != nil {
		return nil, err
	}
	if out.Capacity == nil && len(out.Nodes) == 0 {
		return nil, fmt.Errorf("domain %s of %s at %s: %w: `spillway domains` lists those there are", domain, cluster,
			at.UTC().Format(time.RFC3339), ErrNotFound)
	}
	out.Freshness, err = r.freshness(ctx, cluster)
	return out, err
}

package read

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
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

// find gives the domain of a name, which is its id or its label, and its capacity at a moment, nil where nothing was recorded
// by then. Where a cluster is named its id comes before labels; else a name of several domains wraps ErrAmbiguous and names
// them. Without a cluster a name that nobody bears wraps ErrNotFound.
func (r *Reader) find(ctx context.Context, cluster, name string, at time.Time) (key [2]string, capacity *capacityRow, err error) {
	names, err := r.freshLabels(ctx)
	if err != nil {
		return key, nil, err
	}
	ask := func(cluster, domain string) ([]capacityRow, error) {
		return rows[capacityRow](ctx, r, "domains_at", params{"cluster": cluster, "domain": domain}.time("at", at))
	}
	got, err := ask(cluster, name)
	if err != nil {
		return key, nil, err
	}
	if cluster != "" && len(got) == 1 {
		return [2]string{cluster, name}, &got[0], nil
	}
	found := names.named(cluster, name)
	for _, c := range got {
		found = append(found, [2]string{c.Cluster, c.Domain})
	}
	switch {
	case len(found) > 1:
		slices.SortFunc(found, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
		each := make([]string, len(found))
		for i, key := range found {
			each[i] = key[1] + " of " + key[0]
		}
		return key, nil, fmt.Errorf("domain %s is one of %s: %w: say which with cluster, and by its id", name, strings.Join(each, ", "), ErrAmbiguous)
	case len(found) == 0 && cluster == "":
		return key, nil, fmt.Errorf("domain %s at %s: %w: `spillway domains` lists those there are", name, at.UTC().Format(time.RFC3339), ErrNotFound)
	case len(found) == 0:
		return [2]string{cluster, name}, nil, nil // it may have nodes
	case len(got) == 0:
		if got, err = ask(found[0][0], found[0][1]); err != nil || len(got) == 0 {
			return found[0], nil, err
		}
	}
	return found[0], &got[0], nil
}

// DomainAt gives one domain at a moment, by its id or by its label. A domain never heard of wraps ErrNotFound; a name that
// several bear wraps ErrAmbiguous.
func (r *Reader) DomainAt(ctx context.Context, cluster, domain string, at time.Time) (*DomainAt, error) {
	key, capacity, err := r.find(ctx, cluster, domain, at)
	if err != nil {
		return nil, err
	}
	return r.domainAt(ctx, key, capacity, at)
}

func (r *Reader) domainAt(ctx context.Context, key [2]string, capacity *capacityRow, at time.Time) (_ *DomainAt, err error) {
	cluster, domain := key[0], key[1]
	out := &DomainAt{At: at, Nodes: []DomainNode{}, Jobs: []DomainJob{}}
	if capacity != nil {
		d := capacity.domain(r.labels)
		out.Capacity = &d
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

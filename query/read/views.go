package read

import (
	"context"
	"time"
)

// Views is where the scheduler's view of the nodes and Spillway's differ.
type Views struct {
	At          time.Time    `json:"at"`
	Differences []Difference `json:"differences" doc:"At most 5000."`
	NotCompared []string     `json:"not_compared" doc:"Clusters whose scheduler tells no topology (Slurm's, topograph's or node labels): whether it places their nodes in the same domains is not known."`
	Freshness   Freshness    `json:"freshness"`
}

// Difference is one node that both see in another way.
type Difference struct {
	Cluster   string     `json:"cluster" ch:"cluster"`
	Kind      string     `json:"kind" ch:"kind" enum:"domain,kept_out,planned,not_in_scheduler,not_in_topology" doc:"domain: another domain by its topology than by the hardware; kept_out: it gives the node to nobody, so no slot counts it; planned: free here, kept for a job that waits, so a slot that is counted may be gone; the other two: only one of both knows the node."`
	Node      string     `json:"node" ch:"node"`
	Domain    string     `json:"domain" ch:"domain" doc:"As Spillway has it; empty = not known."`
	Label     *string    `json:"label" ch:"-"`
	Scheduler string     `json:"scheduler" ch:"scheduler" doc:"What the scheduler says."`
	Spillway  string     `json:"spillway" ch:"ours" doc:"What Spillway goes by."`
	Since     *time.Time `json:"since" ch:"since"`
}

// Views compares both views of the nodes of a cluster (empty = all) as they are now.
func (r *Reader) Views(ctx context.Context, cluster string) (*Views, error) {
	out := &Views{At: r.now()}
	got, err := rows[Difference](ctx, r, "views", params{"cluster": cluster}.time("now", out.At))
	if err != nil {
		return nil, err
	}
	names, err := r.freshLabels(ctx)
	if err != nil {
		return nil, err
	}
	out.Differences, out.NotCompared = []Difference{}, []string{}
	for _, d := range got {
		if d.Kind == "not_compared" {
			out.NotCompared = append(out.NotCompared, d.Cluster)
			continue
		}
		d.Label = names.label(d.Cluster, d.Domain)
		out.Differences = append(out.Differences, d)
	}
	out.Freshness, err = r.freshness(ctx, cluster)
	return out, err
}

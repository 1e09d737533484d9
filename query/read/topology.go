package read

import (
	"context"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// TopologyHealth says how much of the fleet has a known NVLink domain, from which source, and what disagrees.
type TopologyHealth struct {
	Coverage  []Coverage    `json:"coverage"`
	Conflicts []Conflict    `json:"conflicts" doc:"At most 1000."`
	Missing   []ClusterNode `json:"missing" doc:"Nodes with capacity but no membership at all; at most 1000."`
	Faults    []FabricFault `json:"faults" doc:"GPUs whose NVLink fabric says that something is wrong, as told in the last three hours; at most 1000."`
	Sources   []Source      `json:"sources"`
	Freshness Freshness     `json:"freshness"`
}

// Coverage counts nodes by the source that decided their domain and, where unknown, by reason.
type Coverage struct {
	Cluster    string    `json:"cluster" ch:"cluster"`
	Source     string    `json:"source" ch:"source"`
	Reason     string    `json:"reason" ch:"reason" doc:"Why unknown: no_source, in_progress, unhealthy, conflict, removed; empty = known."`
	Nodes      uint64    `json:"nodes" ch:"nodes"`
	Known      uint64    `json:"known" ch:"known"`
	Domains    uint64    `json:"domains" ch:"domains"`
	Generation uint64    `json:"generation" ch:"generation"`
	ChangedAt  time.Time `json:"changed_at" ch:"changed_at"`
}

// Conflict is one node on whose domain two sources disagree.
type Conflict struct {
	Cluster string    `json:"cluster" ch:"cluster"`
	Node    string    `json:"node" ch:"node"`
	SourceA string    `json:"source_a" ch:"source_a" doc:"The one that won by precedence."`
	DomainA string    `json:"domain_a" ch:"domain_a"`
	SourceB string    `json:"source_b" ch:"source_b"`
	DomainB string    `json:"domain_b" ch:"domain_b"`
	Detail  string    `json:"detail" ch:"detail"`
	Since   time.Time `json:"since" ch:"valid_from"`
}

// FabricFault is one GPU whose NVLink fabric is not well.
type FabricFault struct {
	Cluster    string    `json:"cluster"`
	Node       string    `json:"node"`
	GPU        uint16    `json:"gpu"`
	UUID       string    `json:"uuid"`
	Source     string    `json:"source"`
	Faults     []string  `json:"faults" doc:"degraded_bandwidth, route_recovery, route_unhealthy, access_timeout_recovery, incorrect_configuration:WHAT, no_partition_assigned, fabric_manager_disconnected."`
	ObservedAt time.Time `json:"observed_at"`
}

// faultsSince is how far back a fabric was told of that counts: collectors tell each again every hour.
const faultsSince = 3 * time.Hour

// faults reads what is wrong with the fabrics of GPUs.
func (r *Reader) faults(ctx context.Context, cluster string) ([]FabricFault, error) {
	got, err := rows[struct {
		Cluster    string    `ch:"cluster"`
		Node       string    `ch:"node"`
		Source     string    `ch:"source"`
		ObservedAt time.Time `ch:"observed_at"`
		GPU        uint16    `ch:"gpu"`
		UUID       string    `ch:"uuid"`
		Mask       uint32    `ch:"mask"`
	}](ctx, r, "fabric_faults", params{"cluster": cluster}.time("since", r.now().Add(-faultsSince)).
		uint("fault_bits", uint64(event.FabricFaultBits())))
	if err != nil {
		return nil, err
	}
	out := []FabricFault{}
	for _, g := range got {
		if wrong := event.DecodeFabricHealth(g.Mask).Faults(); len(wrong) > 0 {
			out = append(out, FabricFault{g.Cluster, g.Node, g.GPU, g.UUID, g.Source, wrong, g.ObservedAt})
		}
	}
	return out, nil
}

// ClusterNode names a node; names are unique only inside a cluster.
type ClusterNode struct {
	Cluster string `json:"cluster" ch:"cluster"`
	Node    string `json:"node" ch:"node"`
}

// TopologyHealth answers for one cluster, or all when it is empty.
func (r *Reader) TopologyHealth(ctx context.Context, cluster string) (*TopologyHealth, error) {
	p := params{"cluster": cluster}.time("at", r.now())
	out := &TopologyHealth{}
	var err error
	if out.Coverage, err = rows[Coverage](ctx, r, "membership_health", p); err != nil {
		return nil, err
	}
	if out.Conflicts, err = rows[Conflict](ctx, r, "conflicts", p); err != nil {
		return nil, err
	}
	if out.Missing, err = rows[ClusterNode](ctx, r, "unplaced_nodes", p); err != nil {
		return nil, err
	}
	if out.Faults, err = r.faults(ctx, cluster); err != nil {
		return nil, err
	}
	told, err := r.reports(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range told.sources {
		if event.Covers(cluster, s.Cluster) {
			out.Sources = append(out.Sources, s)
		}
	}
	out.Freshness = told.freshness(cluster, r.now())
	for _, c := range out.Coverage {
		if c.Reason != "" {
			out.Freshness.Gap("%d nodes of %s have no known domain: %s", c.Nodes, c.Cluster, c.Reason)
		}
	}
	if len(out.Missing) > 0 {
		out.Freshness.Gap("%d nodes have no membership record: check the topology collector", len(out.Missing))
	}
	out.Coverage, out.Conflicts, out.Missing = orEmpty(out.Coverage), orEmpty(out.Conflicts), orEmpty(out.Missing)
	out.Sources = orEmpty(out.Sources)
	return out, nil
}

// orEmpty makes an empty list print as [] and not null: "none" is an answer, null would be "cannot say".
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

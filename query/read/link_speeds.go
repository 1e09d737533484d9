package read

import (
	"context"
	"time"
)

// LinkSpeed is what communication tests measured over the links of one level. Rates are bytes per second.
type LinkSpeed struct {
	Cluster string `json:"cluster" ch:"cluster"`
	Level   string `json:"level" ch:"level" doc:"Innermost level that held all nodes of the runs: node, domain, block, block_group, rack, leaf, spine, cluster; or unknown."`
	// Joined is nil where NCCL did not say, and for runs on one node.
	Joined *bool `json:"multi_node_nvlink" ch:"joined" doc:"Whether NCCL joined the nodes by NVLink; null when it does not say."`
	// WholeLevel rows sum up the others of their level; they have no domains, operation or model.
	WholeLevel bool      `json:"whole_level" ch:"whole_level"`
	Domains    []string  `json:"domains" ch:"domains" doc:"The domains the runs were in then; an empty one stands for nodes whose domain is not known."`
	Operation  string    `json:"operation" ch:"operation"`
	GPUModel   string    `json:"gpu_model" ch:"gpu_model"`
	Runs       uint64    `json:"runs" ch:"runs"`
	Newest     time.Time `json:"newest" ch:"newest"`
	BusP10     float64   `json:"bus_p10" ch:"bus_p10"`
	BusP50     float64   `json:"bus_p50" ch:"bus_p50" doc:"Bus bandwidth of the largest message, as nccl-tests computes it."`
	BusP90     float64   `json:"bus_p90" ch:"bus_p90"`
	// PerGPU are of RunsPerGPU of the runs; nil where none of them tells.
	RunsPerGPU uint64   `json:"runs_per_gpu" ch:"runs_per_gpu"`
	PerGPUP10  *float64 `json:"per_gpu_p10" ch:"per_gpu_p10"`
	PerGPUP50  *float64 `json:"per_gpu_p50" ch:"per_gpu_p50" doc:"What one GPU carried in one direction over the links of the level; null when it cannot be told."`
	PerGPUP90  *float64 `json:"per_gpu_p90" ch:"per_gpu_p90"`
}

// largeMessage is the smallest largest message of a run that tells the speed of links: below it latency counts too.
const largeMessage = 64 << 20

// LinkSpeeds gives the measured speeds of a cluster's links (empty = all clusters) in the time from since to until, each
// run with the domains its nodes were in at its time.
func (r *Reader) LinkSpeeds(ctx context.Context, cluster string, since, until time.Time) ([]LinkSpeed, error) {
	return rows[LinkSpeed](ctx, r, "link_speeds", params{"cluster": cluster}.time("since", since).time("until", until).uint("min_bytes", largeMessage))
}

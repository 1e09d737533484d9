package read

import "context"

// Running counts the placements that hold GPUs now and share these properties. Probe jobs are left out.
type Running struct {
	Cluster      string `ch:"cluster"`
	Queue        string `ch:"queue"`
	Account      string `ch:"account"`
	ServiceClass string `ch:"service_class"`
	Outcome      string `ch:"outcome"`
	Cause        string `ch:"cause"` // of a spill; empty = not known
	Broken       bool   `ch:"broken"`
	Level        string `ch:"level"` // of the required level or segment contract that was not met; empty = none
	Placements   uint64 `ch:"placements"`
	GPUs         uint64 `ch:"gpus"` // of those whose number is known
}

// RunningTraffic counts the placements that hold GPUs now and whose traffic says the same of their verdict.
type RunningTraffic struct {
	Cluster      string `ch:"cluster"`
	ServiceClass string `ch:"service_class"`
	Evidence     string `ch:"evidence"` // as of Traffic
	Placements   uint64 `ch:"placements"`
}

// RunningTraffic counts what runs now and whose counters are read, by cluster, class and evidence.
func (r *Reader) RunningTraffic(ctx context.Context) ([]RunningTraffic, error) {
	return rows[RunningTraffic](ctx, r, "running_traffic", params{}.time("now", r.now()))
}

// Running counts what runs now by cluster, queue, account, class and verdict.
func (r *Reader) Running(ctx context.Context) ([]Running, error) {
	return rows[Running](ctx, r, "running", params{}.time("now", r.now()))
}

package read

import (
	"context"
	"time"
)

// Queue is how the gangs of one queue fared: runs of more than one node.
type Queue struct {
	Cluster  string  `json:"cluster" ch:"cluster"`
	Queue    string  `json:"queue" ch:"queue"`
	Gangs    uint64  `json:"gangs" ch:"gangs"`
	Spilled  uint64  `json:"spilled" ch:"spilled"`
	Unknown  uint64  `json:"unknown" ch:"unknown" doc:"Of gangs: those that cannot be judged."`
	MeanWait float64 `json:"mean_wait_seconds" ch:"mean_wait_seconds"`
}

// Queues compares the queues of a cluster (empty = all) by the gangs that began since a time.
func (r *Reader) Queues(ctx context.Context, cluster string, since time.Time) ([]Queue, error) {
	return rows[Queue](ctx, r, "queues", params{"cluster": cluster}.time("since", since))
}

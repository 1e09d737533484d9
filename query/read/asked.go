package read

import (
	"context"
	"math"
	"time"
)

// Asked is what jobs asked of the topology, and got, by queue. The API calls it outcomes.
type Asked struct {
	Since     time.Time  `json:"since"`
	Until     time.Time  `json:"until"`
	Rows      []AskedRow `json:"outcomes"`
	Freshness Freshness  `json:"freshness"`
}

// AskedRow counts the placements of one queue that asked the same.
type AskedRow struct {
	Cluster    string   `json:"cluster"`
	Queue      string   `json:"queue"`
	Asked      string   `json:"asked" doc:"Mode and level, such as 'preferred domain'; segment = segments of any size; none = nothing; unknown = not told."`
	Placements uint64   `json:"placements"`
	Kept       uint64   `json:"kept" doc:"In as few domains as their size allows, or in whole segments as asked."`
	BySize     uint64   `json:"spread_by_size" doc:"Of kept: in more than one domain because of their size or segments."`
	Wider      uint64   `json:"wider" doc:"In more domains than needed, or a promise was broken."`
	Broken     uint64   `json:"broken" doc:"Of all: what was required or promised as a segment was not given."`
	Unknown    uint64   `json:"unknown" doc:"Cannot be judged: in neither kept nor wider."`
	Excess     *float64 `json:"mean_excess_domains" doc:"Of those that ended wider; null when none did or it is not known."`
}

// Asked counts the placements of a cluster (empty = all) that began in [since, until). Probe jobs are left out.
func (r *Reader) Asked(ctx context.Context, cluster string, since, until time.Time) (*Asked, error) {
	got, err := rows[struct {
		Cluster    string   `ch:"cluster"`
		Queue      string   `ch:"queue"`
		Asked      string   `ch:"asked"`
		Placements uint64   `ch:"placements"`
		Unknown    uint64   `ch:"unknown"`
		Kept       uint64   `ch:"kept"`
		Wider      uint64   `ch:"wider"`
		Broken     uint64   `ch:"broken"`
		Excess     *float64 `ch:"excess"`
		BySize     uint64   `ch:"spread_by_size"`
	}](ctx, r, "asked", params{"cluster": cluster}.time("since", since).time("until", until))
	if err != nil {
		return nil, err
	}
	out := &Asked{Since: since, Until: until, Rows: []AskedRow{}}
	for _, g := range got {
		o := AskedRow{Cluster: g.Cluster, Queue: g.Queue, Asked: g.Asked, Placements: g.Placements, Kept: g.Kept, BySize: g.BySize, Wider: g.Wider, Broken: g.Broken, Unknown: g.Unknown}
		if g.Excess != nil && !math.IsNaN(*g.Excess) {
			o.Excess = g.Excess
		}
		out.Rows = append(out.Rows, o)
	}
	out.Freshness, err = r.freshness(ctx, cluster)
	return out, err
}

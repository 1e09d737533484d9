package live

import (
	"context"
	"fmt"
	"time"
)

// Past reads one cluster as it is known today to have been at an instant: a picture of its own, that nothing follows. It asks
// ClickHouse, so it is for whoever can wait. Where nodes sat, what they could give, who held them and how long runs had taken
// are kept as they were; a run's time limit, priority and price of moving only as last told, and a checkpoint later than the
// instant counts as not known. What reserved nodes and which GPUs they have is what sources said in the two hours before. The
// error wraps ErrUnknown where no node of the cluster had a place then.
func (f *Feed) Past(ctx context.Context, name string, at time.Time) (*View, error) {
	s := &session{feed: f, clusters: map[string]*cluster{}}
	if err := s.read(ctx, f.deps.Conn, moment{now: at, open: at}); err != nil {
		return nil, err
	}
	c := s.clusters[name]
	if c == nil || c.state == nil {
		return nil, fmt.Errorf("cluster %s at %s: %w", name, at.UTC().Format(time.RFC3339), ErrUnknown)
	}
	snap := c.state.Publish(at.Unix())
	snap.Seq = 0 // it is none of those that were published
	return &View{Cluster: name, Snapshot: snap, past: at, session: s}, nil
}

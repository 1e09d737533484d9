package read

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// labels remembers what people call each domain: a ClusterUUID tells nobody which rack to walk to.
type labels struct {
	mu      sync.Mutex
	asked   time.Time
	domains bool                 // any was known then
	names   map[[2]string]string // by cluster and domain
}

// labelsEvery bounds how long a new name takes to show, firstLabelsEvery how long the first one does where domains are
// known. Before any is, each call asks: it would be the first to show one, by an id that tells nobody where to walk.
const (
	labelsEvery      = 30 * time.Second
	firstLabelsEvery = time.Second
)

// label gives the rack's or block's name of a domain, nil when its own id is all there is.
func (l *labels) label(cluster, domain string) *string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name, ok := l.names[[2]string{cluster, domain}]; ok {
		return &name
	}
	return nil
}

// named gives the domains that carry a label, as (cluster, domain).
func (l *labels) named(cluster, label string) (out [][2]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, name := range l.names {
		if name == label && event.Covers(cluster, key[0]) {
			out = append(out, key)
		}
	}
	return out
}

// freshLabels reads the names again when they are old.
func (r *Reader) freshLabels(ctx context.Context) (*labels, error) {
	l := r.labels
	l.mu.Lock()
	defer l.mu.Unlock()
	every := labelsEvery
	switch {
	case !l.domains:
		every = 0
	case len(l.names) == 0:
		every = firstLabelsEvery
	}
	if now := r.now(); now.Sub(l.asked) >= every {
		got, err := rows[struct {
			Cluster string `ch:"cluster"`
			Domain  string `ch:"domain"`
			Label   string `ch:"label"`
		}](ctx, r, "domain_labels", nil)
		if err != nil {
			return nil, err
		}
		l.names = make(map[[2]string]string, len(got))
		for _, row := range got {
			if row.Label != "" {
				l.names[[2]string{row.Cluster, row.Domain}] = row.Label
			}
		}
		l.asked, l.domains = now, len(got) > 0
	}
	return l, nil
}

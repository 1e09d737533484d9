package advise

import (
	"fmt"
	"slices"
)

// Changed is a snapshot in which some domains are drained and some jobs have ended; the snapshot itself stays as it is.
// Drained is an index into Topology.Domains. It returns the jobs that hold nodes of the drained domains.
func (s *Snapshot) Changed(drained []int32, ended []string) (after *Snapshot, stranded []string, err error) {
	next := NewState(s.Topology)
	for n := range s.Topology.Nodes {
		k := int32(n)
		usable := int32(s.usable[n])
		if slices.Contains(drained, s.Topology.Nodes[n].Domain) {
			usable = 0
		}
		if usable != s.Topology.Nodes[n].GPUs {
			next.SetUsable(k, usable)
		}
		if s.tenant[n] != 0 {
			next.Reserve(k, s.tenants[s.tenant[n]])
		}
	}
	seen := map[string]bool{}
	for d, holds := range s.byDom {
		for _, h := range holds {
			if slices.Contains(drained, int32(d)) && !h.Probe && !slices.Contains(ended, h.Job) {
				stranded = append(stranded, h.Job)
			}
			if seen[h.Key] || slices.Contains(ended, h.Job) {
				continue
			}
			seen[h.Key] = true
			hold := *h
			hold.parts = nil
			if err := next.Hold(&hold); err != nil {
				return nil, nil, fmt.Errorf("imagining the change: %w", err)
			}
		}
	}
	after = next.Publish(s.At)
	after.Seq = s.Seq
	slices.Sort(stranded)
	return after, slices.Compact(stranded), nil
}

// Holds reports whether a job holds nodes.
func (s *Snapshot) Holds(job string) bool {
	return slices.ContainsFunc(s.byDom, func(holds []*Hold) bool {
		return slices.ContainsFunc(holds, func(h *Hold) bool { return h.Job == job })
	})
}

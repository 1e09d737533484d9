package advise

import "slices"

// ViewFor shows the snapshot as one tenant may use it: the free nodes that are reserved for it are its own. "" is anybody.
func (s *Snapshot) ViewFor(tenant string) View {
	v := s.View()
	if i := slices.Index(s.tenants, tenant); i > 0 {
		v.Free, v.barred = slices.Clone(s.free), make([]int32, len(s.free))
		s.grant(&v, int32(i))
	}
	return v
}

// grant gives a tenant, by its index, the free nodes that are reserved for it, but for those of closed domains.
func (s *Snapshot) grant(v *View, tenant int32) {
	for _, n := range s.reserved {
		d := s.Topology.Nodes[n].Domain
		if s.tenant[n] == tenant && s.whole(s.Topology, n) && s.used[n] == 0 && (v.closed == nil || !v.closed[d]) {
			v.Free[d]++
			v.barred[d]--
		}
	}
}

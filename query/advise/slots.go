package advise

import "slices"

// DomainSlots is one NVLink domain's part of a count of slots; its partitions are counted apart and summed.
type DomainSlots struct {
	ID     string
	Model  string // "" where it is not known, or the partitions differ
	Slots  int32  // of the size asked for, each inside one partition
	Free   int32  // GPUs usable and held by no real job
	Probe  int32  // of Free: held by probe jobs, which any real job may evict
	Usable int32
}

// Slots counts, for each domain, how many slots of that many GPUs are free: whole free nodes from the GPUs of one node on,
// and shares of single nodes below. Reserved nodes count for the tenant they are reserved for and nobody else, and domains that
// it may have no nodes of are left out; "" is anybody.
func (c *Config) Slots(s *Snapshot, gpus int32, cluster, tenant string) []DomainSlots {
	own, v := int32(slices.Index(s.tenants, tenant)), c.ViewFor(s, cluster, tenant)
	var out []DomainSlots
	for i := range s.Topology.Domains {
		d := &s.Topology.Domains[i]
		if v.closed != nil && v.closed[i] {
			continue
		}
		if n := len(out); n == 0 || out[n-1].ID != d.ID {
			out = append(out, DomainSlots{ID: d.ID, Model: d.Model})
		}
		o := &out[len(out)-1]
		if o.Model != d.Model {
			o.Model = ""
		}
		whole := int32(0)
		for n := d.First; n < d.First+d.Count; n++ {
			o.Usable += int32(s.usable[n])
			left := max(0, s.left(n))
			o.Free += left
			o.Probe += min(left, int32(s.probes[n]))
			if s.tenant[n] != 0 && s.tenant[n] != own {
				continue
			}
			if gpus <= d.GPUsPerNode {
				o.Slots += left / gpus
			} else if left == d.GPUsPerNode {
				whole++
			}
		}
		if gpus > d.GPUsPerNode {
			o.Slots += whole / ((gpus + d.GPUsPerNode - 1) / d.GPUsPerNode)
		}
	}
	return out
}

// Probed is how many of the free nodes probe jobs are on, which any real job may evict.
func (s *Snapshot) Probed() int32 {
	sum := int32(0)
	for n, gpus := range s.probes {
		if gpus > 0 && s.used[n] == 0 && s.tenant[n] == 0 && s.whole(s.Topology, int32(n)) {
			sum++
		}
	}
	return sum
}

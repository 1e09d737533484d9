package read

import (
	"context"
	"time"

	"github.com/spillway-io/spillway/query/advise"
)

// FragmentedAt is how useful the free GPUs of all domains asked for were at a moment.
type FragmentedAt struct {
	At       time.Time `json:"at"`
	GPUsFree uint32    `json:"gpus_free"`
	Slots    uint32    `json:"slots" doc:"Slots of the size asked for, each inside one domain."`
	Ideal    uint32    `json:"ideal_slots" doc:"How many there would be without domains: all free GPUs over the size."`
	Stranded uint32    `json:"gpus_stranded" doc:"Free, but in no slot of the size."`

	RacksWhole  uint32 `json:"racks_whole" doc:"Domains with every node usable."`
	RacksNearly uint32 `json:"racks_nearly" doc:"Domains short of nodes, with at least 16 of 18 usable: NVL64 class."`
	RacksFewer  uint32 `json:"racks_fewer" doc:"Domains with fewer."`

	advise.Measures
}

// historyPoints is how many moments a history has.
const historyPoints = 96

// FragmentationSince tells how slots of n GPUs developed over a time, at historyPoints evenly spaced moments; those before
// anything was known are left out. A size that capacity was not counted for is an error wrapping ErrNotFound that lists the
// sizes there are. mix weighs gang sizes.
func (r *Reader) FragmentationSince(ctx context.Context, cluster string, since, until time.Time, n uint32, mix []advise.Gang) ([]FragmentedAt, error) {
	first, err := rows[capacityRow](ctx, r, "domains_at", params{"cluster": cluster, "domain": ""}.time("at", since))
	if err != nil {
		return nil, err
	}
	changes, err := rows[capacityRow](ctx, r, "fragmentation_changes", params{"cluster": cluster}.time("since", since).time("until", until))
	if err != nil {
		return nil, err
	}
	now := map[[2]string]capacityRow{}
	for _, row := range first {
		now[[2]string{row.Cluster, row.Domain}] = row
	}
	out := make([]FragmentedAt, 0, historyPoints)
	step := until.Sub(since) / historyPoints
	for i := 1; i <= historyPoints; i++ {
		p := FragmentedAt{At: since.Add(time.Duration(i) * step)}
		for len(changes) > 0 && !changes[0].Minute.After(p.At) {
			now[[2]string{changes[0].Cluster, changes[0].Domain}] = changes[0]
			changes = changes[1:]
		}
		if len(now) == 0 {
			continue // not known yet, which is not none
		}
		free, size := make([]int32, 0, len(now)), int32(0)
		for _, row := range now {
			free, size = append(free, int32(row.NodesFree)), max(size, int32(row.Nodes))
			d := row.domain(r.labels)
			slots, err := d.slots(n)
			if err != nil {
				return nil, err
			}
			p.GPUsFree += d.GPUsFree
			p.Slots += slots
			p.Stranded += d.GPUsFree - min(d.GPUsFree, slots*n)
			switch {
			case d.Nodes == 0: // its nodes were taken away
			case d.NodesUsable >= d.Nodes:
				p.RacksWhole++
			case 18*uint32(d.NodesUsable) >= 16*uint32(d.Nodes):
				p.RacksNearly++
			default:
				p.RacksFewer++
			}
		}
		p.Ideal, p.Measures = p.GPUsFree/n, advise.Measure(free, size, mix)
		out = append(out, p)
	}
	return out, nil
}

// Label is what people call a domain, as last read; nil when its own id is all there is, or nothing has been read yet.
func (r *Reader) Label(cluster, domain string) *string { return r.labels.label(cluster, domain) }

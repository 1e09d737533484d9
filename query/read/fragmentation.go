package read

import (
	"context"
	"time"

	"github.com/spillway-io/spillway/query/advise"
)

// FragmentedAt is how useful the free GPUs of all domains asked for were at a moment.
type FragmentedAt struct {
	At time.Time `json:"at"`
	Fragmented
	Models []ModelFragmented `json:"models" doc:"The same of each GPU model, by name and the unknown last: a slot is of one model, so that they are counted of each and summed."`
}

// ModelFragmented is the part of the domains of one GPU model.
type ModelFragmented struct {
	Model *string `json:"gpu_model" doc:"Null when not known: nobody had told it by then, or the nodes of a domain disagreed. Such domains are counted as if they were of one model."`
	Fragmented
}

// Fragmented is how useful the free GPUs of some domains were.
type Fragmented struct {
	GPUsFree uint32 `json:"gpus_free"`
	Slots    uint32 `json:"slots" doc:"Slots of the size asked for, each inside one domain."`
	Ideal    uint32 `json:"ideal_slots" doc:"How many there would be without domains: all free GPUs of each model over the size."`
	Stranded uint32 `json:"gpus_stranded" doc:"Free, but in no slot of the size."`

	RacksWhole  uint32 `json:"racks_whole" doc:"Domains with every node usable."`
	RacksNearly uint32 `json:"racks_nearly" doc:"Domains short of nodes, with at least 16 of 18 usable: NVL64 class."`
	RacksFewer  uint32 `json:"racks_fewer" doc:"Domains with fewer."`

	advise.Measures

	Drain []int64 `json:"drain" doc:"Unix time at which some domain would first have had one node free, two, and so on, by the time limits of who held them: 0 = it had, -1 = no limit reached it. Null where the ends of some domain's nodes were not kept: they are from schema step 34 on."`
}

// FragmentedBasis is said with every history, since now rests on more.
const FragmentedBasis = "drain: time limits as last told, not corrected by past runs; free: reserved nodes too, whoever they are for"

// historyPoints is how many moments a history has.
const historyPoints = 96

// FragmentationSince tells how slots of n GPUs developed over a time, at historyPoints evenly spaced moments; those before
// anything was known are left out. A size that capacity was not counted for is an error wrapping ErrNotFound that lists the
// sizes there are. mix weighs gang sizes; only domains that the asker may use count, nil = all.
func (r *Reader) FragmentationSince(ctx context.Context, cluster string, since, until time.Time, n uint32, mix []advise.Gang,
	may func(cluster, domain string) bool) ([]FragmentedAt, error) {
	first, err := rows[capacityRow](ctx, r, "domains_at", params{"cluster": cluster, "domain": ""}.time("at", since))
	if err != nil {
		return nil, err
	}
	since = since.Truncate(time.Millisecond) // what the store tells apart
	step := (until.Sub(since) / historyPoints).Truncate(time.Millisecond)
	changes, err := rows[capacityRow](ctx, r, "fragmentation_changes",
		params{"cluster": cluster}.time("since", since).time("until", until).uint("step", uint64(max(1, step.Milliseconds()))))
	if err != nil {
		return nil, err
	}
	models, err := r.domainModels(ctx, cluster, since, until)
	if err != nil {
		return nil, err
	}
	now := map[[2]string]capacityRow{}
	for _, row := range first {
		now[[2]string{row.Cluster, row.Domain}] = row
	}
	out := make([]FragmentedAt, 0, historyPoints)
	for i := 1; i <= historyPoints; i++ {
		at := since.Add(time.Duration(i) * step)
		for len(changes) > 0 && !changes[0].Minute.After(at) {
			now[[2]string{changes[0].Cluster, changes[0].Domain}] = changes[0]
			changes = changes[1:]
		}
		if len(now) == 0 {
			continue // not known yet, which is not none
		}
		p, err := r.fragmentedAt(at, now, models, n, mix, may)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// fragmentedAt measures the domains as they stood at a moment.
func (r *Reader) fragmentedAt(at time.Time, domains map[[2]string]capacityRow, models domainModels, n uint32, mix []advise.Gang,
	may func(cluster, domain string) bool) (FragmentedAt, error) {
	byModel := map[string]*fleet{}
	for key, row := range domains {
		if row.Nodes == 0 || may != nil && !may(row.Cluster, row.Domain) {
			continue // they were taken away, or are for others
		}
		model := models.at(key, at)
		if byModel[model] == nil {
			byModel[model] = &fleet{}
		}
		if err := byModel[model].add(row, row.domain(r.labels), n); err != nil {
			return FragmentedAt{}, err
		}
	}
	p := FragmentedAt{At: at, Models: []ModelFragmented{}}
	var measures []advise.Measures
	drains := make([][]int64, 0, len(byModel))
	for _, model := range advise.ModelNames(byModel) {
		f := byModel[model]
		m := ModelFragmented{Model: text(model), Fragmented: f.sums}
		m.Ideal, m.Measures, m.Drain = m.GPUsFree/n, advise.Measure(f.free, f.size, mix), f.drain(at)
		p.GPUsFree += m.GPUsFree
		p.Slots += m.Slots
		p.Ideal += m.Ideal
		p.Stranded += m.Stranded
		p.RacksWhole += m.RacksWhole
		p.RacksNearly += m.RacksNearly
		p.RacksFewer += m.RacksFewer
		p.Models, measures, drains = append(p.Models, m), append(measures, m.Measures), append(drains, m.Drain)
	}
	p.Measures, p.Drain = advise.Together(measures), soonest(drains)
	return p, nil
}

// fleet is the domains of one GPU model at a moment.
type fleet struct {
	sums Fragmented
	free []int32 // nodes, by domain
	size int32   // of the largest domain
	ends [][]uint32
	gaps bool // a domain whose ends are not known
}

func (f *fleet) add(row capacityRow, d Domain, n uint32) error {
	slots, err := d.slots(n)
	if err != nil {
		return err
	}
	f.free, f.size = append(f.free, int32(row.NodesFree)), max(f.size, int32(row.Nodes))
	f.ends, f.gaps = append(f.ends, row.NodeEnds), f.gaps || len(row.NodeEnds) != int(row.Nodes)-int(row.NodesFree)
	f.sums.GPUsFree += d.GPUsFree
	f.sums.Slots += slots
	f.sums.Stranded += d.GPUsFree - min(d.GPUsFree, slots*n)
	switch {
	case d.NodesUsable >= d.Nodes:
		f.sums.RacksWhole++
	case 18*uint32(d.NodesUsable) >= 16*uint32(d.Nodes):
		f.sums.RacksNearly++
	default:
		f.sums.RacksFewer++
	}
	return nil
}

// drain is when a domain would first have had each number of nodes free; nil where that is not known.
func (f *fleet) drain(at time.Time) []int64 {
	if f.gaps {
		return nil
	}
	out := make([]int64, f.size)
	for i := range out {
		out[i] = -1
	}
	for d, ends := range f.ends {
		free := int(f.free[d])
		for i := range free {
			out[i] = 0
		}
		for k, end := range ends {
			if end == 0 {
				break // no limit ends it, nor those after it
			}
			t := int64(end)
			if t <= at.Unix() {
				t = at.Unix() + advise.OverdueGrace
			}
			if i := free + k; out[i] < 0 || t < out[i] {
				out[i] = t
			}
		}
	}
	return out
}

// soonest combines the drains of several models; nil where one is not known.
func soonest(drains [][]int64) []int64 {
	out := []int64{}
	for _, of := range drains {
		if of == nil {
			return nil
		}
		for i, t := range of {
			switch {
			case i == len(out):
				out = append(out, t)
			case t >= 0 && (out[i] < 0 || t < out[i]):
				out[i] = t
			}
		}
	}
	return out
}

// domainModels is what GPU models the nodes of each domain were told to have, and when.
type domainModels map[[2]string][]modelRow

type modelRow struct {
	Cluster string    `ch:"cluster"`
	Domain  string    `ch:"domain"`
	Model   string    `ch:"model"` // "" = nobody tells
	Since   time.Time `ch:"since"`
	Until   time.Time `ch:"until"`
}

func (r *Reader) domainModels(ctx context.Context, cluster string, since, until time.Time) (domainModels, error) {
	got, err := rows[modelRow](ctx, r, "domain_models", params{"cluster": cluster}.time("since", since).time("until", until))
	out := domainModels{}
	for _, row := range got {
		key := [2]string{row.Cluster, row.Domain}
		out[key] = append(out[key], row)
	}
	return out, err
}

// at is the one model of a domain at a moment; "" where it is not known or the nodes disagree.
func (m domainModels) at(domain [2]string, at time.Time) string {
	model := ""
	for _, row := range m[domain] {
		if at.Before(row.Since) || !at.Before(row.Until) {
			continue
		}
		if row.Model == "" || model != "" {
			return ""
		}
		model = row.Model
	}
	return model
}

// Label is what people call a domain, as last read; nil when its own id is all there is, or nothing has been read yet.
func (r *Reader) Label(cluster, domain string) *string { return r.labels.label(cluster, domain) }

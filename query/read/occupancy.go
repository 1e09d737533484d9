package read

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Occupancy is who held GPUs of one domain over a time.
type Occupancy struct {
	Cluster   string     `json:"cluster"`
	Domain    string     `json:"domain"`
	Label     *string    `json:"label"`
	Since     time.Time  `json:"since"`
	Until     time.Time  `json:"until"`
	Stays     []Stay     `json:"stays" doc:"Newest first."`
	Total     uint64     `json:"total" doc:"More than there are stays when the limit cut the list."`
	Accounts  []Occupier `json:"accounts" doc:"Over the stays listed, most GPU-hours here first; probe jobs are left out."`
	Freshness Freshness  `json:"freshness"`
}

// Stay is one placement in the domain.
type Stay struct {
	JobID       string     `json:"job_id"`
	Attempt     uint32     `json:"attempt"`
	Seq         uint16     `json:"seq"`
	Name        string     `json:"name"`
	User        string     `json:"user"`
	Account     string     `json:"account"`
	Queue       string     `json:"queue"`
	Probe       bool       `json:"probe"`
	State       string     `json:"state"`
	From        time.Time  `json:"from"`
	To          *time.Time `json:"to" doc:"null = still there"`
	Outcome     string     `json:"outcome"`
	GPUs        *uint32    `json:"gpus"`
	GPUsHere    *uint32    `json:"gpus_here" doc:"null = how many is not known"`
	NodesHere   uint32     `json:"nodes_here"`
	DomainsUsed uint64     `json:"domains_used"`
}

// Occupier is one account's part of it.
type Occupier struct {
	Account      string  `json:"account"`
	Jobs         uint64  `json:"jobs"`
	GPUHours     float64 `json:"gpu_hours" doc:"In this domain, within the time asked for."`
	UnknownStays uint64  `json:"unknown_stays" doc:"Stays of which the number of GPUs here is not known: not in gpu_hours."`
}

// Occupancy gives who held GPUs of a domain, named by id or label, at some time in [since, until), at most limit
// placements. A domain nobody knew by until wraps ErrNotFound; a name that several bear wraps ErrAmbiguous.
func (r *Reader) Occupancy(ctx context.Context, cluster, domain string, since, until time.Time, limit uint64) (*Occupancy, error) {
	key, capacity, err := r.find(ctx, cluster, domain, until)
	if err != nil {
		return nil, err
	}
	at, err := r.domainAt(ctx, key, capacity, until)
	if err != nil {
		return nil, err
	}
	out := &Occupancy{
		Cluster: key[0], Domain: key[1], Label: r.labels.label(key[0], key[1]), Since: since, Until: until, Stays: []Stay{}, Accounts: []Occupier{},
		Freshness: at.Freshness,
	}
	got, err := rows[struct {
		JobID       string    `ch:"job_id"`
		Number      uint32    `ch:"number"`
		Seq         uint16    `ch:"seq"`
		Name        string    `ch:"name"`
		User        string    `ch:"user"`
		Account     string    `ch:"account"`
		Queue       string    `ch:"queue"`
		Probe       bool      `ch:"probe"`
		State       string    `ch:"state"`
		From        time.Time `ch:"valid_from"`
		To          time.Time `ch:"valid_to"`
		Outcome     string    `ch:"outcome"`
		GPUs        *uint32   `ch:"gpus"`
		GPUsHere    *uint32   `ch:"gpus_here"`
		NodesHere   uint32    `ch:"nodes_here"`
		DomainsUsed uint64    `ch:"domains_used"`
		Total       uint64    `ch:"total"`
	}](ctx, r, "occupancy", params{"cluster": out.Cluster, "domain": out.Domain}.time("since", since).time("until", until).uint("limit", limit))
	if err != nil {
		return nil, err
	}
	now := r.now()
	for _, s := range got {
		out.Total = s.Total
		stay := Stay{
			JobID: s.JobID, Attempt: s.Number, Seq: s.Seq, Name: s.Name, User: s.User, Account: s.Account, Queue: s.Queue, Probe: s.Probe, State: s.State,
			From: s.From, To: closed(s.To), Outcome: s.Outcome, GPUs: s.GPUs, GPUsHere: s.GPUsHere, NodesHere: s.NodesHere, DomainsUsed: s.DomainsUsed,
		}
		out.Stays = append(out.Stays, stay)
		if !stay.Probe {
			out.count(stay, now)
		}
	}
	slices.SortFunc(out.Accounts, func(a, b Occupier) int {
		return cmp.Or(cmp.Compare(b.GPUHours, a.GPUHours), cmp.Compare(a.Account, b.Account))
	})
	return out, nil
}

func (o *Occupancy) count(s Stay, now time.Time) {
	i := 0
	for i < len(o.Accounts) && o.Accounts[i].Account != s.Account {
		i++
	}
	if i == len(o.Accounts) {
		o.Accounts = append(o.Accounts, Occupier{Account: s.Account})
	}
	a := &o.Accounts[i]
	a.Jobs++
	if s.GPUsHere == nil {
		a.UnknownStays++
		return
	}
	from, to := s.From, o.Until
	if from.Before(o.Since) {
		from = o.Since
	}
	if s.To != nil && s.To.Before(to) {
		to = *s.To
	}
	if now.Before(to) {
		to = now // what is to come is not used yet
	}
	a.GPUHours += max(0, to.Sub(from).Hours()) * float64(*s.GPUsHere)
}

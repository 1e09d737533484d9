package api

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/live"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/event"
)

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

type whatIfBody struct {
	Cluster      string          `json:"cluster,omitempty" maxLength:"1024"`
	DrainDomains []string        `json:"drain_domains,omitempty" maxItems:"1000" doc:"Domains that would take nothing new."`
	EndJobs      []string        `json:"end_jobs,omitempty" maxItems:"1000" doc:"Jobs that would have ended now."`
	Ask          *advise.Request `json:"ask,omitempty" doc:"What to ask before and after."`
}

// Change is what a change would do.
type Change struct {
	Cluster string         `json:"cluster"`
	AsOf    time.Time      `json:"as_of"`
	Before  Useful         `json:"before"`
	After   Useful         `json:"after"`
	Affects []string       `json:"affects" doc:"Jobs that hold nodes of the drained domains."`
	DrainBy *time.Time     `json:"drained_by" doc:"When the drained domains are empty by the end estimates; null when no estimate says, or none is drained."`
	Asked   *WhatIfAnswers `json:"asked,omitempty" doc:"Absent when nothing was asked."`

	Freshness read.Freshness `json:"freshness"`
}

// WhatIfAnswers are the answers before and after; a refusal stands in problem.
type WhatIfAnswers struct {
	Before WhatIfAnswer `json:"before"`
	After  WhatIfAnswer `json:"after"`
}

// WhatIfAnswer is advice or the reason why there is none.
type WhatIfAnswer struct {
	Advice  *advise.Response `json:"advice,omitempty"`
	Problem *advise.Refusal  `json:"problem,omitempty"`
}

// Useful is how far the free nodes of a cluster are of use to gangs.
type Useful struct {
	GPUsPerNode int `json:"gpus_per_node"`
	advise.Fragmentation
	Models []advise.ModelFragmentation `json:"models" doc:"The same of each GPU model, by name and the unknown last: a gang is of one model, so that slots are counted of each and summed."`
}

func (s *Server) useful(v advise.View, now time.Time) Useful {
	out := Useful{GPUsPerNode: v.Topology.GPUsPerNode}
	out.Fragmentation, out.Models = advise.Fragment(&v, s.advisor.cfg.Mix, now.Unix())
	return out
}

func (s *Server) whatIf(_ context.Context, in *struct{ Body whatIfBody }) (*Change, error) {
	v, refusal := s.advisor.view(in.Body.Cluster)
	if refusal != nil {
		return nil, noAdvice(refusal)
	}
	now := s.deps.Now()
	var drained []int32
	for _, id := range in.Body.DrainDomains {
		found := v.Snapshot.Topology.Domain(id)
		if len(found) == 0 {
			return nil, fmt.Errorf("domain %s: %w: `spillway domains` lists those there are", id, read.ErrNotFound)
		}
		drained = append(drained, found...)
	}
	for _, job := range in.Body.EndJobs {
		if !v.Snapshot.Holds(job) {
			return nil, fmt.Errorf("job %s holds no node now: %w", job, read.ErrNotFound)
		}
	}
	after, affected, err := v.Snapshot.Changed(drained, in.Body.EndJobs)
	if err != nil {
		return nil, err
	}
	out := &Change{
		Cluster: v.Cluster, AsOf: v.AsOf(), Before: s.useful(v.Snapshot.View(), now), After: s.useful(after.View(), now),
		Affects: append([]string{}, affected...), DrainBy: drainedBy(after, drained, now),
		Freshness: liveFreshness(s.advisor.feed.Sources(), []*live.View{v}, v.Cluster, now),
	}
	if r := in.Body.Ask; r != nil {
		changed := *v
		changed.Snapshot = after
		if r.HoldS != 0 || r.AsOf != nil {
			return nil, noAdvice(&advise.Refusal{Code: advise.InvalidRequest, Detail: "hold_s or as_of in what is asked before and after", Remedy: "leave them out"})
		}
		out.Asked = &WhatIfAnswers{Before: s.answerFor(v, r, now), After: s.answerFor(&changed, r, now)}
	}
	return out, nil
}

func (s *Server) answerFor(v *live.View, r *advise.Request, now time.Time) WhatIfAnswer {
	resp, refusal := s.advisor.advise(v, r, now)
	return WhatIfAnswer{Advice: resp, Problem: refusal}
}

// drainedBy is when the last holder of the domains ends by its estimate.
func drainedBy(snap *advise.Snapshot, drained []int32, now time.Time) *time.Time {
	if len(drained) == 0 {
		return nil
	}
	last := now.Unix()
	for _, d := range drained {
		for _, h := range snap.Holders(d) {
			switch {
			case h.Probe:
			case h.End == 0:
				return nil
			default:
				last = max(last, h.End)
			}
		}
	}
	t := time.Unix(last, 0).UTC()
	return &t
}

type fragmentationParam struct {
	ClusterParam
	Tenant string    `query:"tenant" maxLength:"1024" doc:"Account or reservation: only what it may use counts (advise.tenants), and now what is reserved for it, too."`
	Since  time.Time `query:"since" doc:"RFC 3339: history from then on; empty = none."`
	GPUs   uint32    `query:"gpus" minimum:"1" maximum:"65535" default:"64" doc:"Slot size of the history; one that capacity is counted for, or above one node's GPUs."`
}

// FragmentationNow is Useful of each cluster, with history.
type FragmentationNow struct {
	AsOf     time.Time              `json:"as_of"`
	Clusters []ClusterFragmentation `json:"clusters"`
	History  []read.FragmentedAt    `json:"history" doc:"Oldest first, from when something was known; empty unless since is given."`
	Basis    string                 `json:"history_basis" doc:"What the history rests on where that is not what now does."`

	Freshness read.Freshness `json:"freshness"`
}

// ClusterFragmentation is one cluster of it.
type ClusterFragmentation struct {
	Cluster   string   `json:"cluster"`
	AgeS      *float64 `json:"age_seconds" doc:"Of the picture; null when it is not known."`
	UsefulNow Useful   `json:"now"`
	Entropy   float64  `json:"entropy" doc:"How evenly free nodes are spread over the domains that have any, 0 to 1. For a chart only."`
	Domains   int      `json:"domains"`
	Probed    int32    `json:"probed_nodes" doc:"Of the free nodes: those that probe jobs are on, which any real job may evict."`
	Estimates float64  `json:"estimates" doc:"Share of held nodes whose end has an estimate: what drain rests on."`
}

func (s *Server) fragmentation(ctx context.Context, in *fragmentationParam) (*FragmentationNow, error) {
	now := s.deps.Now()
	if !in.Since.IsZero() {
		if _, _, err := s.span(SpanParam{Since: in.Since, Until: now}); err != nil {
			return nil, err
		}
	}
	out := &FragmentationNow{AsOf: now, Clusters: []ClusterFragmentation{}, History: []read.FragmentedAt{}, Basis: read.FragmentedBasis}
	if s.advisor.feed == nil || s.advisor.feed.Clusters("") == nil {
		_, refusal := s.advisor.view(in.Cluster)
		return nil, noAdvice(refusal)
	}
	var used []*live.View
	for name, v := range s.advisor.feed.Clusters(in.Cluster) {
		if s.advisor.cfg.Tenants.Hides(in.Tenant, name) != nil {
			continue
		}
		used = append(used, v)
		if at := v.AsOf(); at.Before(out.AsOf) {
			out.AsOf = at
		}
		view := s.advisor.cfg.ViewFor(v.Snapshot, name, in.Tenant)
		c := ClusterFragmentation{Cluster: name, UsefulNow: s.useful(view, now), Domains: len(v.Snapshot.Topology.Domains), Probed: v.Snapshot.Probed(), Estimates: 1}
		if age, known := v.Age(now); known {
			seconds := age.Seconds()
			c.AgeS = &seconds
		}
		c.Entropy = advise.Entropy(view.Free)
		if v.Snapshot.Held > 0 {
			c.Estimates = float64(v.Snapshot.Estimated) / float64(v.Snapshot.Held)
		}
		out.Clusters = append(out.Clusters, c)
	}
	if len(out.Clusters) == 0 && in.Cluster != "" {
		_, refusal := s.advisor.view(in.Cluster)
		if refusal == nil {
			refusal = s.advisor.cfg.Tenants.Hides(in.Tenant, in.Cluster)
		}
		return nil, noAdvice(refusal)
	}
	out.Freshness = liveFreshness(s.advisor.feed.Sources(), used, in.Cluster, now)
	slices.SortFunc(out.Clusters, func(a, b ClusterFragmentation) int {
		if a.Cluster < b.Cluster {
			return -1
		}
		return 1
	})
	if in.Since.IsZero() {
		return out, nil
	}
	var err error
	out.History, err = s.deps.Reader.FragmentationSince(ctx, in.Cluster, in.Since, now, in.GPUs, s.advisor.cfg.Mix, func(cluster, domain string) bool {
		return s.advisor.cfg.Tenants.May(in.Tenant, cluster, domain)
	})
	return out, err
}

// liveSlots counts slots from the advisor's picture; nil where there is none that is fresh enough.
func (s *Server) liveSlots(in *slotsParam) *read.Slots {
	if s.advisor.feed == nil {
		return nil
	}
	now := s.deps.Now()
	out := &read.Slots{GPUs: in.GPUs, Domains: []read.DomainSlot{}, Basis: read.SlotBasis}
	var used []*live.View
	for name, v := range s.advisor.feed.Clusters(in.Cluster) {
		age, known := v.Age(now)
		if !known || age > s.advisor.cfg.StaleAfter {
			return nil
		}
		used = append(used, v)
		for _, d := range s.advisor.cfg.Slots(v.Snapshot, int32(in.GPUs), name, in.Tenant) {
			if in.GPUModel != "" && d.Model != in.GPUModel {
				continue
			}
			var model, label *string
			if d.Model != "" {
				model = &d.Model
			}
			if s.deps.Reader != nil {
				label = s.deps.Reader.Label(name, d.ID)
			}
			out.Total += uint32(d.Slots)
			out.Domains = append(out.Domains, read.DomainSlot{
				Cluster: name, Domain: d.ID, Label: label, Model: model, Slots: uint32(d.Slots), GPUsFree: uint32(d.Free), Probe: uint32(d.Probe),
				Stranded: uint32(max(0, d.Free-d.Slots*int32(in.GPUs))), Usable: uint32(d.Usable),
			})
		}
	}
	if len(used) == 0 || len(out.Domains) == 0 && in.GPUModel == "" && in.Tenant == "" {
		return nil
	}
	slices.SortStableFunc(out.Domains, func(a, b read.DomainSlot) int {
		switch {
		case a.Slots != b.Slots:
			return int(b.Slots) - int(a.Slots)
		case a.Cluster+"/"+a.Domain < b.Cluster+"/"+b.Domain:
			return -1
		}
		return 1
	})
	out.Freshness = liveFreshness(s.advisor.feed.Sources(), used, in.Cluster, now)
	return out
}

// liveFreshness is what an answer from the advisor's picture of one cluster (empty = all) says of itself. What jobs hold is
// in the picture at once; where nodes sit waits for the passes.
func liveFreshness(reports []*event.Source, used []*live.View, cluster string, now time.Time) read.Freshness {
	sources := make([]read.Source, len(reports))
	for i, r := range reports {
		reported := event.Time(&r.ObservedAtMs)
		s := read.Source{Cluster: r.GetCluster(), Source: r.GetSource(), ReportedAt: reported, Overdue: read.Overdue(reported, r.IntervalMs, now)}
		if r.GoodAtMs != nil {
			s.GoodAt = new(event.Time(r.GoodAtMs))
		}
		if r.Problem != "" {
			s.Problem = &r.Problem
		}
		sources[i] = s
	}
	out := read.Summarize(sources, cluster, now)
	for _, v := range used {
		if lag := v.TopologyLag(now); lag > read.Grace {
			out.Gap("where nodes of %s sit has changed since %s, and no pass has judged it: does `spillway enrich` run?", v.Cluster,
				now.Add(-lag).UTC().Format(time.RFC3339))
		}
		if at := v.AsOf(); out.AsOf != nil && at.Before(*out.AsOf) {
			out.AsOf, out.AgeS = &at, new(now.Sub(at).Seconds())
		}
	}
	slices.Sort(out.Gaps)
	return out
}

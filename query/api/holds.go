package api

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/live"
)

// HoldsConfig bounds short holds.
type HoldsConfig struct {
	Longest     time.Duration `yaml:"longest"`      // of one; 0 = there are none
	Most        int           `yaml:"most"`         // at once in a cluster
	TenantMost  int           `yaml:"tenant_most"`  // of them of one tenant
	TenantShare float64       `yaml:"tenant_share"` // of a cluster's nodes that one tenant's may keep together
}

func (c HoldsConfig) validate() error {
	if c.Longest < 0 || c.Most < 1 || c.TenantMost < 1 || !(c.TenantShare > 0 && c.TenantShare <= 1) {
		return fmt.Errorf("advise.holds: longest %s must not be negative, most %d and tenant_most %d must be positive, tenant_share %g in (0, 1]",
			c.Longest, c.Most, c.TenantMost, c.TenantShare)
	}
	return nil
}

// Hold is a short hold: nodes that other askers are not advised to use until a time.
type Hold struct {
	ID    string    `json:"id" doc:"Of the advice that it was given with: POST /v1/holds/{id}/release ends it, and feedback tells which job it is for."`
	Until time.Time `json:"until"`
	Nodes []string  `json:"nodes"`
}

// held is a hold as it is kept: until it runs out also where it keeps nothing any more, so that its request is known again.
type held struct {
	Hold
	request advise.Request
	job     string  // it is for, where that is known
	advice  *Advice // what was answered and is answered again
	over    string  // why it keeps nothing any more; "" = it does
}

// holds are the short holds of this process: in memory alone, so that they end with it. The answers to other askers follow
// from them, the snapshot and the request.
type holds struct {
	cfg    HoldsConfig
	total  *prometheus.CounterVec
	taking sync.Mutex // of whoever takes one, from looking at what is free to having it

	mu        sync.Mutex
	byCluster map[string][]*held
}

func newHolds(cfg HoldsConfig, registry *prometheus.Registry) *holds {
	h := &holds{cfg: cfg, byCluster: map[string][]*held{}, total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_advise_holds_total", Help: "Short holds, by what became of them: taken, and then expired, placed, released or lost; or refused.",
	}, []string{"what"})}
	if registry != nil {
		registry.MustRegister(h.total)
	}
	return h
}

// allowed says why a request may not hold anything; nil where it may.
func (h *holds) allowed(r *advise.Request) *advise.Refusal {
	longest := int64(h.cfg.Longest.Seconds())
	switch {
	case longest == 0:
		return &advise.Refusal{Code: advise.InvalidRequest, Detail: "short holds are turned off", Remedy: "ask without hold_s, or have advise.holds.longest set"}
	case r.HoldS < 0 || r.HoldS > longest:
		return &advise.Refusal{Code: advise.InvalidRequest, Detail: fmt.Sprintf("hold_s %d is longer than a hold may be", r.HoldS), Remedy: fmt.Sprintf("give 1 to %d", longest)}
	case r.RequestID == "":
		return &advise.Refusal{Code: advise.InvalidRequest, Detail: "hold_s without a request_id", Remedy: "name the request, so that asking again does not hold twice"}
	}
	return nil
}

// current gives the holds of a cluster that have not run out, after ending those whose job is there. The caller has the lock.
func (h *holds) current(v *live.View, now time.Time) []*held {
	all := h.byCluster[v.Cluster]
	all = slices.DeleteFunc(all, func(k *held) bool {
		if k.Until.After(now) {
			return false
		}
		if k.over == "" {
			h.total.WithLabelValues("expired").Inc()
		}
		return true
	})
	h.byCluster[v.Cluster] = all
	for _, k := range all {
		if k.over == "" && k.placed(v.Snapshot) {
			h.end(k, "placed")
		}
	}
	return all
}

// end lets a hold's nodes go. The caller has the lock.
func (h *holds) end(k *held, why string) {
	k.over = why
	h.total.WithLabelValues(why).Inc()
}

// placed reports whether the hold's job runs in one of the domains that it has nodes of.
func (k *held) placed(s *advise.Snapshot) bool {
	return k.job != "" && slices.ContainsFunc(k.Nodes, func(name string) bool {
		n, ok := s.Topology.Node(name)
		return ok && slices.ContainsFunc(s.Holders(s.Topology.Nodes[n].Domain), func(running *advise.Hold) bool { return running.Job == k.job })
	})
}

// kept are the nodes that an asker may not be advised to use, as AdviseAged wants them: those of all holds but its own job's.
func (h *holds) kept(v *live.View, r *advise.Request, now time.Time) (out []advise.Kept) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.byCluster[v.Cluster]) == 0 {
		return nil
	}
	for _, k := range h.current(v, now) {
		if k.over != "" || r.Job != "" && r.Job == k.job {
			continue
		}
		for _, name := range k.Nodes {
			if n, ok := v.Snapshot.Topology.Node(name); ok {
				out = append(out, advise.Kept{Node: n, Until: k.Until.Unix()})
			}
		}
	}
	slices.SortFunc(out, func(a, b advise.Kept) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(b.Until, a.Until)) })
	return slices.CompactFunc(out, func(a, b advise.Kept) bool { return a.Node == b.Node })
}

// asked gives the answer that a request had before, or why it cannot be given again; neither where it is new.
func (h *holds) asked(v *live.View, r *advise.Request, now time.Time) (*Advice, *advise.Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.current(v, now)
	at := slices.IndexFunc(all, func(k *held) bool { return k.request.Tenant == r.Tenant && k.request.RequestID == r.RequestID })
	if at < 0 {
		return nil, nil
	}
	k := all[at]
	if !reflect.DeepEqual(k.request, *r) {
		return nil, conflict(fmt.Sprintf("request_id %q holds nodes for another question", r.RequestID), "ask with another request_id")
	}
	for _, name := range k.Nodes {
		n, ok := v.Snapshot.Topology.Node(name)
		if k.over == "" && (!ok || v.Snapshot.Used(n) > 0 || v.Snapshot.Usable(n) == 0) {
			h.end(k, "lost")
		}
	}
	if k.over != "" {
		why := map[string]string{"placed": "its job runs there", "released": "it was released", "lost": "not all of its nodes are free any more"}[k.over]
		return nil, conflict(fmt.Sprintf("the hold of request_id %q is over: %s", r.RequestID, why), "ask with another request_id")
	}
	return k.advice, nil
}

func conflict(detail, remedy string) *advise.Refusal {
	return &advise.Refusal{Code: codeHoldConflict, Detail: detail, Remedy: remedy}
}

// take keeps the nodes of an answer that says to start now, and says so in it. Other answers hold nothing.
func (h *holds) take(v *live.View, r *advise.Request, out *Advice, now time.Time) *advise.Refusal {
	first := &out.Candidates[0]
	t := v.Snapshot.Topology
	whole := !slices.ContainsFunc(first.Nodes, func(name string) bool { n, _ := t.Node(name); return int(t.Nodes[n].GPUs) > r.GPUs })
	if out.Recommendation != "start rank 1" || !whole || out.Snapshot.Stale {
		out.Why = append(out.Why, "nothing is held: only a start now on whole nodes is, and not by a stale picture")
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.current(v, now)
	active, mine, nodes, next := 0, 0, len(first.Nodes), time.Time{}
	for _, k := range all {
		if k.over != "" {
			continue
		}
		active++
		if next.IsZero() || k.Until.Before(next) {
			next = k.Until
		}
		if k.request.Tenant == r.Tenant {
			mine++
			nodes += len(k.Nodes)
		}
	}
	refuse := func(detail string) *advise.Refusal {
		h.total.WithLabelValues("refused").Inc()
		remedy := "ask without hold_s"
		if active > 0 {
			remedy += fmt.Sprintf(", release a hold, or ask again at %s when one ends", next.UTC().Format(time.RFC3339))
		}
		return conflict(detail, remedy)
	}
	switch most := int(h.cfg.TenantShare * float64(len(t.Nodes))); {
	case active >= h.cfg.Most:
		return refuse(fmt.Sprintf("%d holds are kept in %s, as many as may be", active, v.Cluster))
	case mine >= h.cfg.TenantMost:
		return refuse(fmt.Sprintf("tenant %q has %d holds, as many as it may", r.Tenant, mine))
	case nodes > most:
		return refuse(fmt.Sprintf("tenant %q would hold %d nodes of the %d that it may", r.Tenant, nodes, most))
	}
	if len(all) >= 4*h.cfg.Most { // requests that are over are forgotten before there are too many
		at := slices.IndexFunc(all, func(k *held) bool { return k.over != "" })
		all = slices.Delete(all, at, at+1)
	}
	out.Hold = &Hold{ID: out.AdviceID, Until: now.Add(time.Duration(r.HoldS) * time.Second).UTC().Truncate(time.Second), Nodes: first.Nodes}
	h.byCluster[v.Cluster] = append(all, &held{Hold: *out.Hold, request: *r, job: r.Job, advice: out})
	h.total.WithLabelValues("taken").Inc()
	return nil
}

// find gives a hold that keeps nodes; nil where there is none. The caller has the lock.
func (h *holds) find(id string) *held {
	for _, all := range h.byCluster {
		for _, k := range all {
			if k.ID == id && k.over == "" {
				return k
			}
		}
	}
	return nil
}

// tell follows feedback: a hold whose advice was not taken is released, and otherwise it ends when the job is placed there.
func (h *holds) tell(id, job string, chosen *uint8) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch k := h.find(id); {
	case k == nil:
	case chosen != nil && *chosen != 1:
		h.end(k, "released")
	case job != "":
		k.job = job
	}
}

// release ends a hold, and reports whether it kept anything.
func (h *holds) release(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.find(id)
	if k != nil {
		h.end(k, "released")
	}
	return k != nil
}

// HeldNow are the short holds of a process.
type HeldNow struct {
	AsOf  time.Time  `json:"as_of"`
	Holds []HoldItem `json:"holds" doc:"The one that ends first comes first."`
}

// HoldItem is one of them.
type HoldItem struct {
	Hold
	Cluster string `json:"cluster"`
	Tenant  string `json:"tenant,omitempty"`
	Job     string `json:"job,omitempty" doc:"The hold ends when it is placed there; absent when it is not known."`
}

func (s *Server) listHolds(_ context.Context, in *ClusterParam) (*HeldNow, error) {
	a := s.advisor
	out := &HeldNow{AsOf: a.now(), Holds: []HoldItem{}}
	if a.feed == nil {
		return out, nil
	}
	a.holds.mu.Lock()
	defer a.holds.mu.Unlock()
	for _, v := range a.feed.Clusters(in.Cluster) {
		for _, k := range a.holds.current(v, out.AsOf) {
			if k.over == "" {
				out.Holds = append(out.Holds, HoldItem{Hold: k.Hold, Cluster: v.Cluster, Tenant: k.request.Tenant, Job: k.job})
			}
		}
	}
	slices.SortFunc(out.Holds, func(a, b HoldItem) int { return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

type holdParam struct {
	ID string `path:"id" minLength:"1" maxLength:"64"`
}

func (s *Server) releaseHold(_ context.Context, in *holdParam) (*accepted, error) {
	if !s.advisor.holds.release(in.ID) {
		return nil, noAdvice(&advise.Refusal{Code: codeUnknownHold, Detail: fmt.Sprintf("no hold %q keeps nodes here", in.ID),
			Remedy: "it is over, or was given by another process: GET /v1/holds lists those of this one"})
	}
	return &accepted{Accepted: true}, nil
}

package advise

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Request asks where a job should go. Zero values mean that nothing was said: the class and the configuration fill in.
type Request struct {
	RequestID string `json:"request_id,omitempty"`
	Tenant    string `json:"tenant,omitempty"`
	Cluster   string `json:"cluster,omitempty"`
	// Queue is where the job is to be submitted: a queue or a partition of Slurm, or several with commas between. It matters for
	// tenants that may not use all.
	Queue string `json:"queue,omitempty"`
	// Job, User and Name say whose job it is, where the caller knows: earlier runs of the same user and name tell how
	// long it takes and how much it talks, and the answer is graded by what becomes of it.
	Job         string `json:"job,omitempty"`
	User        string `json:"user,omitempty"`
	Name        string `json:"name,omitempty"`
	GPUs        int    `json:"gpus"`
	GPUsPerNode int    `json:"gpus_per_node,omitempty"`
	GPUModel    string `json:"gpu_model,omitempty"`
	// Mode is required, preferred or unconstrained.
	Mode Mode `json:"mode,omitempty"`
	// Class names one of the configured classes, or a service class that one of them stands for.
	Class string `json:"class,omitempty" doc:"One of advise.classes, or a service class that one of them stands for."`
	// Pattern and MeasuredGBps override the class: measured is the mean one-way NVLink traffic of a GPU of this job, or
	// of earlier runs of it, while in one domain.
	Pattern      Pattern `json:"pattern,omitempty"`
	MeasuredGBps float64 `json:"measured_GBps,omitempty"`
	SegmentNodes int     `json:"segment_nodes,omitempty"`
	MaxDomains   int     `json:"max_domains,omitempty"`
	// DurationS is the expected run time and DurationBasis where it comes from: limit, history.
	DurationS     int64      `json:"duration_s,omitempty"`
	DurationBasis string     `json:"duration_basis,omitempty"`
	Deadline      *time.Time `json:"deadline,omitempty" nullable:"true"`
	// WaitedS is how long the job has waited already, and MaxWaitS the longest it is to wait for a better shape.
	WaitedS  int64  `json:"waited_s,omitempty"`
	MaxWaitS *int64 `json:"max_wait_s,omitempty"`
	// ExcludeNodes are never used; RequirePartition is a domain or a partition of one to stay in.
	ExcludeNodes     []string `json:"exclude_nodes,omitempty"`
	RequirePartition string   `json:"require_partition,omitempty"`
	// ExclusiveDomain wants domains that nobody else holds GPUs of.
	ExclusiveDomain bool `json:"exclusive_domain,omitempty"`
	SparesPerDomain *int `json:"spares_per_domain,omitempty"`
	// Preempt is "plan" to be told who would have to make room.
	Preempt string `json:"preempt,omitempty"`
	// Priority is the job's own: those of a higher one, or of one that nobody tells, are not asked to make room. Absent = not
	// said: then all may be.
	Priority *int64 `json:"priority,omitempty"`
	// Candidates is the most to answer with; 0 for 3.
	Candidates int `json:"candidates,omitempty"`
	// AllowStale wants an answer from an old snapshot too, marked as such.
	AllowStale bool `json:"allow_stale,omitempty"`
	// HoldS is for how many seconds the nodes of a start now are to be kept for this request, which RequestID then names: asked
	// again with the same, the answer is the same.
	HoldS int64 `json:"hold_s,omitempty"`
	// AsOf asks where the job would have gone at a past instant, as far as is known of it today. For people, not for schedulers.
	AsOf *time.Time `json:"as_of,omitempty" nullable:"true"`
}

// Class is what a name of a kind of job stands for.
type Class struct {
	// ServiceClasses are the names that jobs of this kind go by at the site, as in the configuration of collect.slurm.
	ServiceClasses []string `json:"service_classes,omitempty" yaml:"service_classes"`
	Mode           Mode     `json:"mode,omitempty" yaml:"mode"`
	Pattern        Pattern  `json:"pattern,omitempty" yaml:"pattern"`
	// Share is the assumed exposed communication, 0 to 1, of a step in one domain; negative where nobody says.
	Share float64 `json:"share" yaml:"share"`
	// Spares are the nodes of a domain that gangs of the class plan without: 2 of 18 plans with 16.
	Spares int `json:"spares_per_domain" yaml:"spares_per_domain"`
}

// Refusal is why there is no advice. Each has a code that does not change, counted reasons and what to do.
type Refusal struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
	// Remedy says what to do next.
	Remedy string `json:"remedy"`
	// Legal are the nearest sizes, in GPUs, or segments, in nodes, that would be answered.
	Legal []int `json:"legal,omitempty"`
	// Counts say how many nodes each reason excludes.
	Counts []Count `json:"counts,omitempty"`
	// MakeRoom is the plan that was asked for, where nothing else helps.
	MakeRoom *MakeRoom `json:"make_room,omitempty"`
}

// Count is one counted reason.
type Count struct {
	Reason string `json:"reason"`
	Nodes  int32  `json:"nodes"`
}

// Error is the refusal in one line.
func (r *Refusal) Error() string { return r.Code + ": " + r.Detail + ": " + r.Remedy }

// The codes of refusals.
const (
	InvalidShape    = "invalid_shape"
	InvalidRequest  = "invalid_request"
	NeverFits       = "never_fits"
	NoCapacityNow   = "no_capacity_now"
	NoEstimates     = "no_estimates" // as NoCapacityNow, and jobs without an end estimate keep a start from being told
	TopologyUnknown = "topology_unknown"
	StaleSnapshot   = "stale_snapshot"
	TenantForbidden = "tenant_forbidden"
)

// ask turns a request into a strategy's ask, with the class's and the configuration's defaults.
func (c *Config) ask(t *Topology, r *Request) (Ask, error) {
	class, known := c.class(r.Class)
	if r.Class != "" && !known {
		return Ask{}, &Refusal{Code: InvalidRequest, Detail: fmt.Sprintf("no class %q", r.Class),
			Remedy: "name one of the configured classes: " + strings.Join(c.classNames(), ", ")}
	}
	if !known {
		class = Class{Share: -1}
	}
	if refusal := r.counts(); refusal != nil {
		return Ask{}, refusal
	}
	if r.Preempt != "" && r.Preempt != "plan" {
		return Ask{}, &Refusal{Code: InvalidRequest, Detail: fmt.Sprintf("preempt %q", r.Preempt), Remedy: "use plan, or leave it out"}
	}
	usual, most, refusal := r.nodes(t)
	if refusal != nil {
		return Ask{}, refusal
	}
	g := r.GPUsPerNode
	if g == 0 {
		g = usual
		if r.GPUs > usual && r.GPUs < most && r.GPUs%usual != 0 {
			g = most // a part of a larger node
		}
	}
	a := Ask{
		GPUsPerNode: int32(g), Mode: firstOf(r.Mode, class.Mode, Preferred), MaxDomains: int32(r.MaxDomains),
		Segment: int32(r.SegmentNodes), Spares: int32(class.Spares), Waited: r.WaitedS, Duration: r.DurationS, MaxWait: -1,
		Traffic: Traffic{Pattern: firstOf(r.Pattern, class.Pattern), Share: class.Share, Rate: r.MeasuredGBps},
	}
	if r.SparesPerDomain != nil {
		a.Spares = int32(*r.SparesPerDomain)
	}
	if r.MaxWaitS != nil {
		a.MaxWait = *r.MaxWaitS
	}
	if !slices.Contains([]Mode{Required, Preferred, Unconstrained}, a.Mode) {
		return a, &Refusal{Code: InvalidRequest, Detail: fmt.Sprintf("mode %q", a.Mode), Remedy: "use required, preferred or unconstrained"}
	}
	if !slices.Contains([]Pattern{AllReduce, AllToAll, PatternNone, PatternUnknown}, a.Traffic.Pattern) {
		return a, &Refusal{Code: InvalidRequest, Detail: fmt.Sprintf("pattern %q", a.Traffic.Pattern), Remedy: "use allreduce, alltoall or none"}
	}
	for _, name := range r.ExcludeNodes {
		if name == "" || strings.ContainsFunc(name, notInName) {
			return a, &Refusal{Code: InvalidRequest, Detail: fmt.Sprintf("excluded node %q", name), Remedy: "give plain node names, one an entry, not lists"}
		}
	}
	return a, r.shape(&a, g, most)
}

// nodes tells how many GPUs those nodes of the model and the partition asked for have that hold most of the GPUs, and how many
// the largest of them, or why there is no such node.
func (r *Request) nodes(t *Topology) (usual, most int, refusal *Refusal) {
	if t.uniform && r.GPUModel == "" && r.RequirePartition == "" {
		return t.GPUsPerNode, t.GPUsPerNode, nil
	}
	var gpus [maxGPUs + 1]int32 // by how many a node has
	ofModel, models := false, map[string]bool{}
	for i := range t.Domains {
		d := &t.Domains[i]
		if d.Model != "" {
			models[d.Model] = true
		}
		if r.GPUModel != "" && d.Model != r.GPUModel {
			continue
		}
		ofModel = true
		if r.RequirePartition == "" || d.ID == r.RequirePartition || d.Partition == r.RequirePartition {
			most = max(most, int(d.GPUsPerNode))
			gpus[d.GPUsPerNode] += d.Count * d.GPUsPerNode
		}
	}
	for n := range gpus {
		if gpus[n] >= gpus[usual] {
			usual = n
		}
	}
	switch {
	case !ofModel:
		return 0, 0, &Refusal{Code: NeverFits, Detail: fmt.Sprintf("no domain has GPUs of model %q", r.GPUModel),
			Remedy: "name a model that the cluster has: " + strings.Join(slices.Sorted(maps.Keys(models)), ", ")}
	case most == 0 && r.GPUModel != "":
		return 0, 0, &Refusal{Code: NeverFits, Detail: fmt.Sprintf("no domain or partition %q of GPU model %q", r.RequirePartition, r.GPUModel),
			Remedy: "name one that GET /v1/domains lists, or leave it out"}
	case most == 0:
		return 0, 0, &Refusal{Code: NeverFits, Detail: fmt.Sprintf("no domain or partition %q", r.RequirePartition),
			Remedy: "name one that GET /v1/domains lists, or leave it out"}
	}
	return usual, most, nil
}

// counts checks the numbers before anything narrower holds them.
func (r *Request) counts() *Refusal {
	spares := 0
	if r.SparesPerDomain != nil {
		spares = *r.SparesPerDomain
	}
	for _, n := range [...]struct {
		name        string
		value, most int64
	}{
		{"segment_nodes", int64(r.SegmentNodes), math.MaxInt32}, {"max_domains", int64(r.MaxDomains), math.MaxInt32},
		{"spares_per_domain", int64(spares), math.MaxInt32}, {"candidates", int64(r.Candidates), math.MaxInt32},
		{"waited_s", r.WaitedS, 1 << 40}, {"duration_s", r.DurationS, 1 << 40}, {"hold_s", r.HoldS, 1 << 40},
	} {
		if n.value < 0 || n.value > n.most {
			return &Refusal{Code: InvalidRequest, Detail: fmt.Sprintf("%s %d is no count or time in seconds", n.name, n.value),
				Remedy: fmt.Sprintf("give 0 to %d, or leave it out", n.most)}
		}
	}
	if !(r.MeasuredGBps >= 0 && r.MeasuredGBps <= 1<<40) {
		return &Refusal{Code: InvalidRequest, Detail: fmt.Sprintf("measured_GBps %g is no rate", r.MeasuredGBps), Remedy: "give 0 or more, or leave it out"}
	}
	return nil
}

// notInName keeps out of flags what a shell or a scheduler would read as more than a name.
func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
}

// shape checks the size against nodes, which have most GPUs, and segments.
func (r *Request) shape(a *Ask, g, most int) error {
	if g < 1 || g > most || r.GPUs < 1 || r.GPUs > 1<<24 {
		return &Refusal{Code: InvalidShape, Detail: fmt.Sprintf("%d GPUs at %d a node, where nodes have %d", r.GPUs, g, most),
			Remedy: fmt.Sprintf("ask for at least 1 GPU and at most %d a node", most)}
	}
	if r.GPUs < g {
		a.Nodes, a.Shared, a.Segment = 1, int32(r.GPUs), 0
		return nil
	}
	if r.GPUs%g != 0 {
		return &Refusal{Code: InvalidShape, Detail: fmt.Sprintf("%d GPUs are not whole nodes of %d", r.GPUs, g),
			Remedy: "ask for a multiple of the GPUs of a node", Legal: []int{r.GPUs - r.GPUs%g, r.GPUs + g - r.GPUs%g}}
	}
	a.Nodes = int32(r.GPUs / g)
	if a.Segment > a.Nodes {
		a.Segment = 0 // no effect, as in Slurm
	}
	if a.Segment > 0 && a.Nodes%a.Segment != 0 {
		legal := []int{}
		for s := a.Segment - 1; s > 0 && len(legal) == 0; s-- {
			if a.Nodes%s == 0 {
				legal = append(legal, int(s))
			}
		}
		for s := a.Segment + 1; s <= a.Nodes && len(legal) < 2; s++ {
			if a.Nodes%s == 0 {
				legal = append(legal, int(s))
			}
		}
		return &Refusal{Code: InvalidShape, Detail: fmt.Sprintf("segments of %d nodes do not divide %d nodes", a.Segment, a.Nodes),
			Remedy: "choose a segment that divides the node count", Legal: legal}
	}
	return nil
}

// class finds a class by its own name, or else by a service class that it stands for.
func (c *Config) class(name string) (Class, bool) {
	if class, ok := c.Classes[name]; ok || name == "" {
		return class, ok
	}
	for _, class := range c.Classes {
		if slices.Contains(class.ServiceClasses, name) {
			return class, true
		}
	}
	return Class{}, false
}

// classNames are the names that a request may give.
func (c *Config) classNames() []string {
	names := make([]string, 0, 2*len(c.Classes))
	for n, class := range c.Classes {
		names = append(append(names, n), class.ServiceClasses...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func firstOf[T comparable](values ...T) T {
	var zero T
	for _, v := range values {
		if v != zero {
			return v
		}
	}
	return zero
}

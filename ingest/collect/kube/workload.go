package kube

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/spillway-io/spillway/schemas/event"
)

// workloadFacts are what is used of a Workload of Kueue, v1beta1 and v1beta2.
type workloadFacts struct {
	queue, clusterQueue string
	priority            *int64
	class               string // of priority
	limit               time.Duration
	sets                []podSet
	conditions          []condition
	evictions           int // -1 = not counted by this Kueue
	checks              []admissionCheck
	hosts               []string // the kubernetes.io/hostname of each node that it was assigned
	hostsTold           bool     // it was assigned nodes
}

// podSet is one of a Workload's sets of pods that are alike.
type podSet struct {
	count uint32
	request
	claims bool // its pods claim devices: how many GPUs that is is not known here
	topologyRequest
}

type topologyRequest struct {
	Required      string `json:"required"`
	Preferred     string `json:"preferred"`
	Unconstrained bool   `json:"unconstrained"`
	SliceTopology string `json:"podSetSliceRequiredTopology"`
	SliceSize     uint32 `json:"podSetSliceSize"`
}

type admissionCheck struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Message string `json:"message"`
}

func (d *decoder) workloadOf(raw []byte, o *object) error {
	var w struct {
		Metadata *header `json:"metadata"`
		Spec     struct {
			Queue    string `json:"queueName"`
			Priority *int64 `json:"priority"`
			Class    string `json:"priorityClassName"` // before v1beta2
			ClassRef struct {
				Name string `json:"name"`
			} `json:"priorityClassRef"`
			MaxSeconds int64 `json:"maximumExecutionTimeSeconds"`
			PodSets    []struct {
				Count    uint32 `json:"count"`
				Template struct {
					Spec podSpec `json:"spec"`
				} `json:"template"`
				Topology topologyRequest `json:"topologyRequest"`
			} `json:"podSets"`
		} `json:"spec"`
		Status struct {
			Conditions []condition `json:"conditions"`
			Admission  struct {
				ClusterQueue string `json:"clusterQueue"`
				PodSets      []struct {
					Topology *topologyAssignment `json:"topologyAssignment"`
				} `json:"podSetAssignments"`
			} `json:"admission"`
			Checks []admissionCheck `json:"admissionChecks"`
			Stats  *struct {
				Evictions []struct {
					Count int `json:"count"`
				} `json:"evictions"`
			} `json:"schedulingStats"`
		} `json:"status"`
	}
	w.Metadata = &o.header
	if err := json.Unmarshal(raw, &w, d.opts); err != nil {
		return err
	}
	f := &workloadFacts{
		queue: w.Spec.Queue, clusterQueue: w.Status.Admission.ClusterQueue, priority: w.Spec.Priority, class: w.Spec.Class,
		limit:      time.Duration(max(0, min(w.Spec.MaxSeconds, maxSeconds))) * time.Second,
		conditions: w.Status.Conditions, checks: w.Status.Checks,
	}
	if name := w.Spec.ClassRef.Name; name != "" {
		f.class = name
	}
	for i := range w.Spec.PodSets {
		s := &w.Spec.PodSets[i]
		f.sets = append(f.sets, podSet{
			count: min(s.Count, maxAmount), request: d.request(&s.Template.Spec), claims: len(s.Template.Spec.Claims) > 0,
			topologyRequest: s.Topology,
		})
	}
	switch {
	case w.Status.Stats != nil:
		for _, e := range w.Status.Stats.Evictions {
			f.evictions += max(0, min(e.Count, maxAmount))
		}
	case find(f.conditions, "Evicted") != nil:
		f.evictions = -1
	}
	for _, s := range w.Status.Admission.PodSets {
		if s.Topology == nil {
			continue
		}
		domains, err := s.Topology.decode()
		if err != nil {
			return err
		}
		host := slices.Index(s.Topology.Levels, labelHostname)
		for _, a := range domains {
			if host >= 0 {
				f.hosts, f.hostsTold = append(f.hosts, a.values[host]), true
			}
		}
	}
	slices.Sort(f.hosts)
	f.hosts = slices.Compact(f.hosts)
	o.workload = f
	return nil
}

// topologyAssignment is where Kueue wants pods to be: one entry a domain in v1beta1, packed in v1beta2.
type topologyAssignment struct {
	Levels  []string `json:"levels"`
	Domains []struct {
		Values []string `json:"values"`
		Count  uint32   `json:"count"`
	} `json:"domains"`
	Slices []struct {
		Domains int `json:"domainCount"`
		Values  []struct {
			Universal  *string `json:"universal"`
			Individual *struct {
				Prefix string   `json:"prefix"`
				Suffix string   `json:"suffix"`
				Roots  []string `json:"roots"`
			} `json:"individual"`
		} `json:"valuesPerLevel"`
		Pods struct {
			Universal  *uint32  `json:"universal"`
			Individual []uint32 `json:"individual"`
		} `json:"podCounts"`
	} `json:"slices"`
}

// assigned is one domain of an assignment: its value on each level, and how many pods it takes.
type assigned struct {
	values []string
	pods   uint32
}

// maxAssigned is more nodes than a job can have.
const maxAssigned = 1 << 20

// decode unpacks an assignment, in its order.
func (t *topologyAssignment) decode() ([]assigned, error) {
	var out []assigned
	for _, d := range t.Domains {
		if len(d.Values) != len(t.Levels) {
			return nil, fmt.Errorf("a topology assignment has %d levels and %d values", len(t.Levels), len(d.Values))
		}
		out = append(out, assigned{d.Values, d.Count})
	}
	for _, s := range t.Slices {
		if s.Domains < 0 || s.Domains+len(out) > maxAssigned || len(s.Values) != len(t.Levels) {
			return nil, fmt.Errorf("a topology assignment has %d levels, and a slice with %d of them for %d domains",
				len(t.Levels), len(s.Values), s.Domains)
		}
		for i := range s.Domains {
			a := assigned{values: make([]string, len(t.Levels))}
			for l, v := range s.Values {
				switch {
				case v.Universal != nil:
					a.values[l] = *v.Universal
				case v.Individual != nil && i < len(v.Individual.Roots):
					a.values[l] = v.Individual.Prefix + v.Individual.Roots[i] + v.Individual.Suffix
				default:
					return nil, fmt.Errorf("a topology assignment has no value on level %s for domain %d of %d", t.Levels[l], i, s.Domains)
				}
			}
			switch {
			case s.Pods.Universal != nil:
				a.pods = *s.Pods.Universal
			case i < len(s.Pods.Individual):
				a.pods = s.Pods.Individual[i]
			default:
				return nil, fmt.Errorf("a topology assignment has no count of pods for domain %d of %d", i, s.Domains)
			}
			out = append(out, a)
		}
	}
	return out, nil
}

// uses says whether a Workload asks for GPUs by name.
func (w *workloadFacts) uses() bool {
	return slices.ContainsFunc(w.sets, func(s podSet) bool { return s.request.gpus > 0 || s.parts })
}

// gpus is how many a Workload asks for; nil = not known.
func (w *workloadFacts) gpus() *uint32 {
	var sum uint64
	for _, s := range w.sets {
		if s.parts || s.claims && s.gpus == 0 {
			return nil
		}
		sum += uint64(s.count) * uint64(s.request.gpus)
	}
	if sum > maxAmount {
		return nil
	}
	return new(uint32(sum))
}

// reason says why a Workload waits, in Kueue's words.
func (w *workloadFacts) reason() string {
	for _, of := range []string{"QuotaReserved", "Admitted"} {
		c := find(w.conditions, of)
		if c == nil || c.is() {
			continue
		}
		out := strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
		for _, check := range w.checks {
			if of == "Admitted" && check.State != "Ready" {
				out += "; " + strings.TrimSuffix(check.Name+": "+check.State+": "+check.Message, ": ")
			}
		}
		return out
	}
	return ""
}

// words are the conditions that hold, as Kueue calls them.
func (w *workloadFacts) words() string {
	var out []string
	for _, c := range w.conditions {
		switch {
		case !c.is():
		case c.Type == "Evicted" || c.Type == "Finished" || c.Type == "Preempted":
			out = append(out, c.Type+":"+c.Reason)
		default:
			out = append(out, c.Type)
		}
	}
	return strings.Join(out, ",")
}

// finished is the state that a Finished condition ends a run with; how is how its pods ended.
func finished(c *condition, how event.State) event.State {
	switch c.Reason {
	case "Succeeded":
		return event.State_COMPLETED
	case "Failed":
		if how == event.State_TIMEOUT || how == event.State_NODE_FAIL {
			return how
		}
		return event.State_FAILED
	case "OutOfSync", "OwnerNotFound":
		return event.State_CANCELLED
	}
	if how.Ended() {
		return how
	}
	return event.State_COMPLETED
}

// evicted is the state that an Evicted condition ends a run with.
func evicted(c *condition) event.State {
	switch {
	case strings.Contains(c.Reason, "MaximumExecutionTimeExceeded"), strings.Contains(c.Message, "maximum execution time"):
		return event.State_TIMEOUT
	case strings.HasPrefix(c.Reason, "Preempted"):
		return event.State_PREEMPTED
	case strings.HasPrefix(c.Reason, "NodeFailures"):
		return event.State_NODE_FAIL
	case strings.HasPrefix(c.Reason, "Deactivated"), c.Reason == "InactiveWorkload":
		return event.State_CANCELLED
	}
	return event.State_REQUEUED
}

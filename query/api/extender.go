package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-io/spillway/query/advise"
)

// The kube-scheduler's extender protocol: ExtenderArgs in, ExtenderFilterResult or a list of HostPriority out, as
// k8s.io/kube-scheduler/extender/v1 writes them. Only what is used here is read; nodes come back as they came.

type extenderArgs struct {
	Pod       extenderPod
	Nodes     *nodeList
	NodeNames *[]string
}

type extenderPod struct {
	Metadata struct {
		Name, Namespace     string
		Labels, Annotations map[string]string
		OwnerReferences     []struct {
			UID, Kind, Name string
			Controller      bool
		}
	}
	Spec struct {
		SchedulingGroup struct{ PodGroupName string }
		Containers      []struct {
			Resources struct{ Requests, Limits map[string]any }
		}
		ResourceClaims []json.RawMessage
	}
}

type nodeList struct {
	Metadata   json.RawMessage   `json:"metadata,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	APIVersion string            `json:"apiVersion,omitempty"`
	Items      []json.RawMessage `json:"items"`
}

type filterResult struct {
	Nodes                      *nodeList
	NodeNames                  *[]string
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	Error                      string
}

type hostPriority struct {
	Host  string
	Score int64
}

// The best score of an extender; the largest body taken, of which a list of five thousand whole nodes is about 40 MB; and the
// memory of all calls at once. A call takes up to four times its body: as it grows while it is read, or taken apart, answered,
// and the answer as it grows. One that does not tell its length is taken for the largest. kube-scheduler's calls tell it, and
// with names alone (nodeCacheCapable) are a few hundred KB.
const (
	bestScore      = 10
	maxExtender    = 64 << 20
	extenderMemory = 256 << 20
	timesBody      = extenderMemory / maxExtender
)

// names gives the candidates' names, in order.
func (a *extenderArgs) names() ([]string, error) {
	if a.NodeNames != nil {
		return *a.NodeNames, nil
	}
	if a.Nodes == nil {
		return nil, nil
	}
	out := make([]string, len(a.Nodes.Items))
	for i, raw := range a.Nodes.Items {
		var n struct{ Metadata struct{ Name string } }
		if err := json.Unmarshal(raw, &n); err != nil {
			return nil, fmt.Errorf("decode node %d: %w", i, err)
		}
		out[i] = n.Metadata.Name
	}
	return out, nil
}

// The names by which a pod's gang may be told, first that is there: Kueue's workload, a pod group, a JobSet, a Job.
var gangAnnotations = []string{"kueue.x-k8s.io/workload"}
var gangLabels = []string{
	"kueue.x-k8s.io/pod-group-name", "scheduling.x-k8s.io/pod-group", "jobset.sigs.k8s.io/jobset-uid", "leaderworkerset.sigs.k8s.io/group-key",
	"batch.kubernetes.io/controller-uid", "controller-uid",
}

// job is the name of the pod's job, by which the kubernetes collector calls it too: so advice is graded against what became of
// it. Replicas that know nothing of each other are jobs of their own.
func (p *extenderPod) job() string {
	m := &p.Metadata
	l := m.Labels
	leader := l["leaderworkerset.sigs.k8s.io/name"]
	if leader != "" {
		leader += "-" + l["leaderworkerset.sigs.k8s.io/group-index"]
	}
	owner := ""
	for _, o := range m.OwnerReferences {
		switch o.Kind {
		case "ReplicaSet", "ReplicationController", "DaemonSet", "Node":
		default:
			if o.Controller {
				owner = o.Name
			}
		}
	}
	return cmp.Or(l["kueue.x-k8s.io/pod-group-name"], l["scheduling.x-k8s.io/pod-group"], p.Spec.SchedulingGroup.PodGroupName,
		l["jobset.sigs.k8s.io/jobset-name"], leader, l["batch.kubernetes.io/job-name"], l["job-name"], owner, m.Name)
}

// gang is what all pods of one gang have in common.
func (p *extenderPod) gang() (key, job string) {
	m := &p.Metadata
	job = p.job()
	for _, k := range gangAnnotations {
		if v := m.Annotations[k]; v != "" {
			return m.Namespace + "/" + v, job
		}
	}
	for _, k := range gangLabels {
		if v := m.Labels[k]; v != "" {
			return m.Namespace + "/" + v, job
		}
	}
	if len(m.OwnerReferences) > 0 {
		return m.Namespace + "/" + m.OwnerReferences[0].UID, job
	}
	return m.Namespace + "/" + m.Name, job
}

// mostGPUs bounds what a pod and its gang are taken to ask for: the advisor answers for less, and products stay numbers.
const mostGPUs = 1 << 24

// gpus is how many GPUs the pod asks for; -1 where it claims devices in a way that does not say.
func (p *extenderPod) gpus() int {
	n := 0
	for _, c := range p.Spec.Containers {
		v, ok := c.Resources.Requests["nvidia.com/gpu"]
		if !ok {
			v, ok = c.Resources.Limits["nvidia.com/gpu"]
		}
		if !ok {
			continue
		}
		k, err := strconv.Atoi(fmt.Sprint(v))
		if err != nil || k < 0 {
			return -1
		}
		n += min(k, mostGPUs)
	}
	if n == 0 && len(p.Spec.ResourceClaims) > 0 {
		return -1
	}
	return n
}

// request is the question for the pod's whole gang. How many pods a gang has is told by an annotation of ours, for a pod
// does not know it; without one each pod is asked for alone, and the gang's later pods follow its first. Nodes have most GPUs
// each, 0 where that is not known or they differ; where several pods have room on one, the question is for the nodes they fill.
func (p *extenderPod) request(cluster, job string, most int) *advise.Request {
	a := p.Metadata.Annotations
	pods, err := strconv.Atoi(a["spillway.io/gang-pods"])
	if err != nil || pods < 1 {
		pods = 1
	}
	g := p.gpus()
	r := &advise.Request{
		Cluster: cluster, GPUs: min(pods, mostGPUs) * min(g, mostGPUs), GPUsPerNode: g, Class: a["spillway.io/class"], User: p.Metadata.Namespace, Name: job,
		Job: p.Metadata.Namespace + "/" + job, Tenant: p.Metadata.Namespace, Queue: p.Metadata.Labels["kueue.x-k8s.io/queue-name"],
	}
	switch {
	case a["kueue.x-k8s.io/podset-required-topology"] != "":
		r.Mode = advise.Required
	case a["kueue.x-k8s.io/podset-preferred-topology"] != "":
		r.Mode = advise.Preferred
	case a["kueue.x-k8s.io/podset-unconstrained-topology"] == "true":
		r.Mode = advise.Unconstrained
	}
	if n, err := strconv.Atoi(a["kueue.x-k8s.io/podset-slice-size"]); err == nil && n > 0 {
		r.SegmentNodes = n
	}
	if g < 1 || g >= most {
		return r
	}
	per := most / g
	switch {
	case pods == 1 || pods < per: // a part of a node
		r.GPUs, r.GPUsPerNode = pods*g, most
	case per > 1:
		r.GPUs, r.GPUsPerNode = (min(pods, mostGPUs)+per-1)/per*most, most
	default:
		return r
	}
	if r.SegmentNodes%per == 0 {
		r.SegmentNodes /= per
	} else {
		r.SegmentNodes = 0
	}
	return r
}

// gangs remembers where each gang was sent, so that its pods, which are asked for one by one, go to the same place.
type gangs struct {
	mu    sync.Mutex
	known map[string]*gangPlan
}

type gangPlan struct {
	used    time.Time
	domains []string
	now     bool // the advice is to start there now
}

// A gang is forgotten this long after its last pod was asked for; more than so many are not remembered.
const (
	gangMemory = 10 * time.Minute
	mostGangs  = 20_000
)

func newGangs() *gangs { return &gangs{known: map[string]*gangPlan{}} }

func (g *gangs) get(key string, now time.Time) *gangPlan {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.known[key]
	if p == nil || now.Sub(p.used) > gangMemory {
		return nil
	}
	p.used = now
	return p
}

func (g *gangs) put(key string, p *gangPlan, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= mostGangs {
		for k, old := range g.known {
			if now.Sub(old.used) > gangMemory {
				delete(g.known, k)
			}
		}
		if len(g.known) >= mostGangs {
			return
		}
	}
	p.used = now
	g.known[key] = p
}

// plan is where the pod's gang is to go; nil = no opinion.
func (a *advisor) plan(cluster string, args *extenderArgs, candidates []string) *gangPlan {
	if len(candidates) < 2 || args.Pod.gpus() == 0 {
		return nil // pinned already, or nothing to do with GPUs
	}
	key, job := args.Pod.gang()
	key = cluster + "/" + key
	now := a.now()
	if p := a.gangs.get(key, now); p != nil && a.reachable(cluster, p, candidates) {
		return p
	}
	most := a.gpusOf(cluster, candidates)
	r := args.Pod.request(cluster, job, most)
	if r.GPUs <= 0 {
		if most == 0 {
			return nil
		}
		r.GPUs, r.GPUsPerNode = most, most // claims that do not say how many take a node
	}
	advice, none := a.ask("extender", r)
	if none != nil || len(advice.Candidates) == 0 {
		return nil
	}
	c := &advice.Candidates[0]
	p := &gangPlan{now: c.Start == "now"}
	for _, d := range c.Domains {
		p.domains = append(p.domains, cmp.Or(d.Partition, d.ID)) // NVLink does not cross partitions
	}
	a.gangs.put(key, p, now)
	return p
}

// gpusOf is how many GPUs each of the candidates' nodes has; 0 where they differ or none is known.
func (a *advisor) gpusOf(cluster string, candidates []string) (most int) {
	for _, n := range candidates {
		d := a.domainOf(cluster, n)
		switch {
		case d == nil:
		case most == 0:
			most = int(d.GPUsPerNode)
		case most != int(d.GPUsPerNode):
			return 0
		}
	}
	return most
}

// reachable reports whether a candidate is in the plan's domains.
func (a *advisor) reachable(cluster string, p *gangPlan, candidates []string) bool {
	return slices.ContainsFunc(candidates, func(n string) bool {
		d := a.domainOf(cluster, n)
		return d != nil && slices.Contains(p.domains, cmp.Or(d.Partition, d.ID))
	})
}

// domainOf is the domain of a node; nil where it is not known.
func (a *advisor) domainOf(cluster, node string) *advise.Domain {
	v, refusal := a.view(cluster)
	if refusal != nil {
		return nil
	}
	n, ok := v.Snapshot.Topology.Node(node)
	if !ok {
		return nil
	}
	return &v.Snapshot.Topology.Domains[v.Snapshot.Topology.Nodes[n].Domain]
}

// filter keeps the candidates in the domains that the gang is sent to. It never leaves none: then all stay. Nodes that are
// not known stay too.
func (a *advisor) filter(cluster string, args *extenderArgs) (*filterResult, error) {
	candidates, err := args.names()
	if err != nil {
		return nil, err
	}
	out := &filterResult{Nodes: args.Nodes, NodeNames: args.NodeNames, FailedNodes: map[string]string{}}
	p := a.plan(cluster, args, candidates)
	if p == nil || !p.now || !a.reachable(cluster, p, candidates) {
		return out, nil
	}
	var names []string
	var items []json.RawMessage
	for i, n := range candidates {
		if d := a.domainOf(cluster, n); d != nil && !slices.Contains(p.domains, cmp.Or(d.Partition, d.ID)) {
			out.FailedNodes[n] = "spillway: the gang goes to NVLink domain " + strings.Join(p.domains, ", ")
			continue
		}
		names = append(names, n)
		if args.NodeNames == nil {
			items = append(items, args.Nodes.Items[i])
		}
	}
	if args.NodeNames != nil {
		out.NodeNames = &names
	} else {
		kept := *args.Nodes
		kept.Items = items
		out.Nodes = &kept
	}
	return out, nil
}

// prioritize scores candidates: full marks in the domains that the gang is sent to, and elsewhere the more the fewer GPUs
// the domain has free, so that full domains fill up first.
func (a *advisor) prioritize(cluster string, args *extenderArgs) ([]hostPriority, error) {
	candidates, err := args.names()
	if err != nil {
		return nil, err
	}
	out := make([]hostPriority, len(candidates))
	p := a.plan(cluster, args, candidates)
	for i, n := range candidates {
		out[i].Host = n
		d := a.domainOf(cluster, n)
		switch {
		case p == nil || d == nil:
		case slices.Contains(p.domains, cmp.Or(d.Partition, d.ID)):
			out[i].Score = bestScore
		default:
			out[i].Score = a.tightness(cluster, n)
		}
	}
	return out, nil
}

// tightness is up to half of the best score: the more, the fewer nodes of the node's domain are free.
func (a *advisor) tightness(cluster, node string) int64 {
	v, refusal := a.view(cluster)
	if refusal != nil {
		return 0
	}
	n, ok := v.Snapshot.Topology.Node(node)
	if !ok {
		return 0
	}
	d := v.Snapshot.Topology.Nodes[n].Domain
	view, size := v.Snapshot.View(), v.Snapshot.Topology.Domains[d].Count
	return int64(max(0, bestScore/2*(size-view.Free[d])/size))
}

// extender registers the two calls. They carry no token, for kube-scheduler has none to send.
//
// A call that there is no memory for is answered unread. For scores no opinion can be said without knowing the nodes: an
// empty list adds nothing to any. For a filter it cannot: its answer lists the nodes that stay, and none listed means that
// none does. So it is refused, which an extender that is ignorable may do: the scheduler goes on with the nodes it has.
func (s *Server) extender(mux *http.ServeMux) {
	if !s.advise.Extender {
		return
	}
	handle := func(path string, none []byte, answer func(cluster string, args *extenderArgs) (any, error)) {
		mux.HandleFunc("POST /scheduler/"+path, func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			status := http.StatusOK
			defer func() {
				s.metrics.seconds.WithLabelValues("extender-"+path, strconv.Itoa(status)).Observe(time.Since(start).Seconds())
			}()
			size := r.ContentLength
			if size < 0 {
				size = maxExtender
			}
			if size > maxExtender {
				status = http.StatusRequestEntityTooLarge
				problem(w, status, fmt.Sprintf("a call of up to %d MB is taken: set nodeCacheCapable, so that names are sent and not whole nodes", maxExtender>>20))
				return
			}
			if !s.extending.TryAcquire(timesBody * size) {
				s.metrics.rejected.WithLabelValues("memory").Inc()
				w.Header().Set("X-Advice", "none")
				if none != nil {
					w.Header().Set("Content-Type", "application/json")
					w.Write(none)
					return
				}
				status = http.StatusServiceUnavailable
				problem(w, status, "too many large calls in work: retry in a second")
				return
			}
			defer s.extending.Release(timesBody * size)
			body, err := io.ReadAll(io.LimitReader(r.Body, size))
			var args extenderArgs
			if err == nil {
				err = json.Unmarshal(body, &args)
			}
			var out any
			if err == nil {
				out, err = answer(r.URL.Query().Get("cluster"), &args)
			}
			if err != nil {
				status = http.StatusBadRequest
				problem(w, status, "this is no call of kube-scheduler's extender protocol: "+err.Error())
				return
			}
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(out); err != nil {
				s.deps.Log.Debug("the scheduler left", "error", err)
			}
		})
	}
	handle("filter", nil, func(cluster string, args *extenderArgs) (any, error) { return s.advisor.filter(cluster, args) })
	handle("prioritize", []byte("[]\n"), func(cluster string, args *extenderArgs) (any, error) { return s.advisor.prioritize(cluster, args) })
}

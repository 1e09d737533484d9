package kube

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// nodeFacts are what is used of a Node.
type nodeFacts struct {
	capacity, allocatable request
	capacityTold          bool // the node names a GPU resource, be it with 0
	unschedulable         bool
	ready                 *condition
	taints                []taint
}

type taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

func (d *decoder) node(raw []byte, o *object) error {
	var n struct {
		Metadata *header `json:"metadata"`
		Spec     struct {
			Unschedulable bool    `json:"unschedulable"`
			Taints        []taint `json:"taints"`
		} `json:"spec"`
		Status struct {
			Capacity    quantities  `json:"capacity"`
			Allocatable quantities  `json:"allocatable"`
			Conditions  []condition `json:"conditions"`
		} `json:"status"`
	}
	n.Metadata = &o.header
	if err := json.Unmarshal(raw, &n, d.opts); err != nil {
		return err
	}
	f := &nodeFacts{unschedulable: n.Spec.Unschedulable, taints: n.Spec.Taints}
	var whole int
	f.capacity, whole = d.amounts(n.Status.Capacity)
	f.allocatable, _ = d.amounts(n.Status.Allocatable)
	f.capacityTold = whole > 0
	if c := find(n.Status.Conditions, "Ready"); c != nil {
		ready := *c
		f.ready = &ready
	}
	o.node = f
	return nil
}

// amounts adds up the whole GPUs of a node, and counts the names of resources they have.
func (d *decoder) amounts(q quantities) (out request, whole int) {
	for name, text := range q {
		n, ok := amount(text)
		switch {
		case d.gpus[name] && ok:
			out.gpus += n
			whole++
		case !ok || n > 0:
			out.parts = true
		}
	}
	return out, whole
}

// podFacts are what is used of a Pod.
type podFacts struct {
	request
	claims   []string // names of its ResourceClaims, as far as they exist
	node     string
	phase    string
	reason   string // of the phase
	priority *int64
	class    string // of priority
	group    string // of the pod group it is in
	affinity bool   // it asks to be near something, in a way that is not understood
	limit    time.Duration

	scheduled  time.Time // bound to its node
	waiting    string    // why it is not
	started    time.Time // its node has seen it
	finished   time.Time // its last container ended
	notReady   time.Time // since when it is not ready
	disruption string    // why it is about to be ended
}

func (d *decoder) podOf(raw []byte, o *object) error {
	var p struct {
		Metadata *header `json:"metadata"`
		Spec     struct {
			podSpec
			NodeName        string `json:"nodeName"`
			Priority        *int64 `json:"priority"`
			PriorityClass   string `json:"priorityClassName"`
			Deadline        int64  `json:"activeDeadlineSeconds"`
			SchedulingGroup struct {
				Name string `json:"podGroupName"`
			} `json:"schedulingGroup"`
			Gates []struct {
				Name string `json:"name"`
			} `json:"schedulingGates"`
		} `json:"spec"`
		Status struct {
			Phase      string            `json:"phase"`
			Reason     string            `json:"reason"`
			StartTime  time.Time         `json:"startTime"`
			Conditions []condition       `json:"conditions"`
			Containers []containerStatus `json:"containerStatuses"`
			Init       []containerStatus `json:"initContainerStatuses"`
			Claims     []struct {
				Name  string `json:"name"`
				Claim string `json:"resourceClaimName"`
			} `json:"resourceClaimStatuses"`
		} `json:"status"`
	}
	p.Metadata = &o.header
	if err := json.Unmarshal(raw, &p, d.opts); err != nil {
		return err
	}
	f := &podFacts{
		request: d.request(&p.Spec.podSpec), node: p.Spec.NodeName, phase: p.Status.Phase, reason: p.Status.Reason,
		priority: p.Spec.Priority, class: p.Spec.PriorityClass, group: p.Spec.SchedulingGroup.Name,
		affinity: len(p.Spec.Affinity) > 0 && string(p.Spec.Affinity) != "null", started: p.Status.StartTime,
		limit: time.Duration(min(p.Spec.Deadline, maxSeconds)) * time.Second,
	}
	for _, c := range p.Spec.Claims {
		name := c.Claim
		for _, s := range p.Status.Claims {
			if name == "" && s.Name == c.Name {
				name = s.Claim
			}
		}
		if name != "" {
			f.claims = append(f.claims, name)
		}
	}
	for i := range p.Status.Conditions {
		switch c := &p.Status.Conditions[i]; c.Type {
		case "PodScheduled":
			switch {
			case c.is():
				f.scheduled = c.Transition
			case c.Reason == "SchedulingGated":
				f.waiting = c.Reason
			default:
				f.waiting = strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
			}
		case "Ready", "ContainersReady":
			if !c.is() && c.Transition.After(f.notReady) {
				f.notReady = c.Transition
			}
		case "DisruptionTarget":
			if c.is() {
				f.disruption = c.Reason
			}
		}
	}
	if f.waiting == "" && len(p.Spec.Gates) > 0 {
		f.waiting = "SchedulingGated"
	}
	for _, list := range [][]containerStatus{p.Status.Containers, p.Status.Init} {
		for _, c := range list {
			if t := c.State.Terminated.Finished; t.After(f.finished) {
				f.finished = t
			}
		}
	}
	o.pod = f
	return nil
}

// maxSeconds bounds limits that are meant as none, so that they fit a duration.
const maxSeconds = 1 << 32

type containerStatus struct {
	State struct {
		Terminated struct {
			Finished time.Time `json:"finishedAt"`
		} `json:"terminated"`
	} `json:"state"`
}

// claimFacts are what is used of a ResourceClaim.
type claimFacts struct {
	classes []string // of devices it asks for
	devices []device // what it was given; devices that are only looked at are not among them
}

// device names a device the way ResourceSlices do.
type device struct{ driver, pool, name string }

func (d *decoder) claimOf(raw []byte, o *object) error {
	var c struct {
		Metadata *header `json:"metadata"`
		Spec     struct {
			Devices struct {
				Requests []struct {
					Class   string `json:"deviceClassName"` // before resource.k8s.io/v1
					Exactly struct {
						Class string `json:"deviceClassName"`
					} `json:"exactly"`
					FirstAvailable []struct {
						Class string `json:"deviceClassName"`
					} `json:"firstAvailable"`
				} `json:"requests"`
			} `json:"devices"`
		} `json:"spec"`
		Status struct {
			Allocation struct {
				Devices struct {
					Results []struct {
						Driver string `json:"driver"`
						Pool   string `json:"pool"`
						Device string `json:"device"`
						Admin  bool   `json:"adminAccess"`
					} `json:"results"`
				} `json:"devices"`
			} `json:"allocation"`
		} `json:"status"`
	}
	c.Metadata = &o.header
	if err := json.Unmarshal(raw, &c, d.opts); err != nil {
		return err
	}
	f := &claimFacts{}
	for _, r := range c.Spec.Devices.Requests {
		for _, class := range append([]string{r.Class, r.Exactly.Class}, classesOf(r.FirstAvailable)...) {
			if class != "" {
				f.classes = append(f.classes, class)
			}
		}
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		if !r.Admin {
			f.devices = append(f.devices, device{r.Driver, r.Pool, r.Device})
		}
	}
	o.claim = f
	return nil
}

func classesOf(list []struct {
	Class string `json:"deviceClassName"`
}) (out []string) {
	for _, c := range list {
		out = append(out, c.Class)
	}
	return out
}

// gpuDriver is NVIDIA's DRA driver of GPUs.
const gpuDriver = "gpu.nvidia.com"

// sliceFacts are what is used of a ResourceSlice: the GPUs of a node as a DRA driver tells them.
type sliceFacts struct {
	driver, pool, node string
	generation         int64
	gpus               map[string]string // type of each device by its name: gpu, mig, ...
	product            string
}

func (d *decoder) sliceOf(raw []byte, o *object) error {
	type attributes map[string]struct {
		String string `json:"string"`
	}
	var s struct {
		Metadata *header `json:"metadata"`
		Spec     struct {
			Driver   string `json:"driver"`
			NodeName string `json:"nodeName"`
			Pool     struct {
				Name       string `json:"name"`
				Generation int64  `json:"generation"`
			} `json:"pool"`
			Devices []struct {
				Name       string     `json:"name"`
				Attributes attributes `json:"attributes"`
				Basic      struct {
					Attributes attributes `json:"attributes"`
				} `json:"basic"` // resource.k8s.io/v1beta1
			} `json:"devices"`
		} `json:"spec"`
	}
	s.Metadata = &o.header
	if err := json.Unmarshal(raw, &s, d.opts); err != nil {
		return err
	}
	f := &sliceFacts{driver: s.Spec.Driver, pool: s.Spec.Pool.Name, node: s.Spec.NodeName, generation: s.Spec.Pool.Generation}
	o.slice = f
	if f.driver != gpuDriver {
		return nil
	}
	f.gpus = make(map[string]string, len(s.Spec.Devices))
	for _, dev := range s.Spec.Devices {
		a := dev.Attributes
		if a == nil {
			a = dev.Basic.Attributes
		}
		f.gpus[dev.Name] = a["type"].String
		if p := a["productName"].String; p != "" && a["type"].String == "gpu" {
			f.product = p
		}
	}
	return nil
}

// domainFacts are what is used of a ComputeDomain, and of a ComputeDomainClique, which is the part of one inside a partition.
type domainFacts struct {
	status string // Ready, NotReady; empty = nothing of it is known yet
	nodes  []domainNode
}

type domainNode struct {
	Name   string `json:"name"`
	Daemon string `json:"nodeName"` // in a clique
	Clique string `json:"cliqueID"`
}

func (d *decoder) domainOf(raw []byte, o *object) error {
	var c struct {
		Metadata *header `json:"metadata"`
		Status   struct {
			Status string       `json:"status"`
			Nodes  []domainNode `json:"nodes"`
		} `json:"status"`
		Daemons []domainNode `json:"daemons"`
	}
	c.Metadata = &o.header
	if err := json.Unmarshal(raw, &c, d.opts); err != nil {
		return err
	}
	o.domain = &domainFacts{status: c.Status.Status, nodes: c.Status.Nodes}
	for _, n := range c.Daemons {
		o.domain.nodes = append(o.domain.nodes, domainNode{Name: n.Daemon, Clique: n.Clique})
	}
	return nil
}

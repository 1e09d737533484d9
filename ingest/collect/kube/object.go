package kube

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// kind is what a server lists, by the name it has in a URL.
type kind string

const (
	kindNodes     kind = "nodes"
	kindPods      kind = "pods"
	kindWorkloads kind = "workloads"
	kindClaims    kind = "resourceclaims"
	kindSlices    kind = "resourceslices"
	kindDomains   kind = "computedomains"
	kindCliques   kind = "computedomaincliques"
)

// object is one object of a server as far as it is used: one of the facts is set. Names of built-in objects and fields are
// those of k8s.io/api; of Kueue's and NVIDIA's, of their custom resource definitions.
type object struct {
	header
	node     *nodeFacts
	pod      *podFacts
	workload *workloadFacts
	claim    *claimFacts
	slice    *sliceFacts
	domain   *domainFacts // also of a ComputeDomainClique
	bad      error        // it is there, and could not be read
}

// header is the metadata that is used.
type header struct {
	Name            string      `json:"name"`
	Namespace       string      `json:"namespace"`
	UID             string      `json:"uid"`
	ResourceVersion string      `json:"resourceVersion"`
	Created         time.Time   `json:"creationTimestamp"`
	Deleting        time.Time   `json:"deletionTimestamp"` // when the object may be killed at the latest
	Grace           int64       `json:"deletionGracePeriodSeconds"`
	Labels          labels      `json:"labels"`
	Annotations     annotations `json:"annotations"`
	Owners          []owner     `json:"ownerReferences"`
}

type owner struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

// labels and annotations have the wanted keys alone.
type (
	labels      map[string]string
	annotations map[string]string
)

// key is the object's name, with its namespace where it has one.
func (h *header) key() string {
	if h.Namespace == "" {
		return h.Name
	}
	return h.Namespace + "/" + h.Name
}

// controller is the owner that manages the object, nil for none.
func (h *header) controller() *owner {
	for i := range h.Owners {
		if h.Owners[i].Controller {
			return &h.Owners[i]
		}
	}
	return nil
}

// deleted is when the deletion was asked for; zero = it was not.
func (h *header) deleted() time.Time {
	if h.Deleting.IsZero() {
		return time.Time{}
	}
	return h.Deleting.Add(-time.Duration(h.Grace) * time.Second)
}

// What client-go asks of an object.

func (o *object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

func (o *object) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

func (o *object) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{
		Name: o.Name, Namespace: o.Namespace, UID: types.UID(o.UID), ResourceVersion: o.ResourceVersion, Annotations: o.Annotations,
	}
}

type condition struct {
	Type       string    `json:"type"`
	Status     string    `json:"status"`
	Reason     string    `json:"reason"`
	Message    string    `json:"message"`
	Transition time.Time `json:"lastTransitionTime"`
}

// find gives the condition of a type; nil where there is none.
func find(conditions []condition, of string) *condition {
	i := slices.IndexFunc(conditions, func(c condition) bool { return c.Type == of })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}

func (c *condition) is() bool { return c != nil && c.Status == "True" }

// decoder reads objects, and keeps of them what a configuration makes of use.
type decoder struct {
	cfg  *Config
	opts json.Options
	gpus map[string]bool // names of whole GPUs
}

// Keys that say which job a pod belongs to, and what was asked for it.
const (
	labelWorkload   = "kueue.x-k8s.io/workload" // an annotation, a label before 0.18
	labelKueueGroup = "kueue.x-k8s.io/pod-group-name"
	labelPodGroup   = "scheduling.x-k8s.io/pod-group"
	labelJobSetName = "jobset.sigs.k8s.io/jobset-name"
	labelJobSetUID  = "jobset.sigs.k8s.io/jobset-uid"
	labelLWSName    = "leaderworkerset.sigs.k8s.io/name"
	labelLWSGroup   = "leaderworkerset.sigs.k8s.io/group-index"
	labelLWSKey     = "leaderworkerset.sigs.k8s.io/group-key"
	labelJobName    = "batch.kubernetes.io/job-name"
	labelJobUID     = "batch.kubernetes.io/controller-uid"
	labelOldJobName = "job-name"
	labelOldJobUID  = "controller-uid"

	labelQueue        = "kueue.x-k8s.io/queue-name"
	labelLocalQueue   = "kueue.x-k8s.io/local-queue-name"
	labelClusterQueue = "kueue.x-k8s.io/cluster-queue-name"
	annotationOwner   = "kueue.x-k8s.io/job-owner-name"

	annotationRequired      = "kueue.x-k8s.io/podset-required-topology"
	annotationPreferred     = "kueue.x-k8s.io/podset-preferred-topology"
	annotationUnconstrained = "kueue.x-k8s.io/podset-unconstrained-topology"
	annotationSliceTopology = "kueue.x-k8s.io/podset-slice-required-topology"
	annotationSliceSize     = "kueue.x-k8s.io/podset-slice-size"
	annotationExclusive     = "alpha.jobset.sigs.k8s.io/exclusive-topology"

	labelComputeDomain = "resource.nvidia.com/computeDomain" // of a clique: the UID of its ComputeDomain
	labelGPUCount      = "nvidia.com/gpu.count"
	labelGPUProduct    = "nvidia.com/gpu.product"
	labelGPUReplicas   = "nvidia.com/gpu.replicas"
)

func newDecoder(cfg *Config) *decoder {
	d := &decoder{cfg: cfg, gpus: map[string]bool{}}
	for _, name := range cfg.GPUs {
		d.gpus[name] = true
	}
	wantedLabels := map[string]bool{
		labelWorkload: true, labelKueueGroup: true, labelPodGroup: true, labelJobSetName: true, labelJobSetUID: true, labelLWSName: true,
		labelLWSGroup: true, labelLWSKey: true, labelJobName: true, labelJobUID: true, labelOldJobName: true, labelOldJobUID: true,
		labelQueue: true, labelLocalQueue: true, labelClusterQueue: true,
		labelComputeDomain: true, labelClique: true, labelHostname: true, labelGPUCount: true, labelGPUProduct: true, labelGPUReplicas: true,
	}
	for _, keys := range cfg.Labels {
		for _, key := range keys {
			wantedLabels[key] = true
		}
	}
	for i := range cfg.Probes {
		for key := range cfg.Probes[i].Labels {
			wantedLabels[key] = true
		}
	}
	wantedAnnotations := map[string]bool{
		labelWorkload: true, annotationOwner: true, annotationRequired: true, annotationPreferred: true, annotationUnconstrained: true,
		annotationSliceTopology: true, annotationSliceSize: true, annotationExclusive: true, metav1.InitialEventsAnnotationKey: true,
	}
	d.opts = json.JoinOptions(
		jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true),
		json.WithUnmarshalers(json.JoinUnmarshalers(
			json.UnmarshalFromFunc(func(in *jsontext.Decoder, m *labels) (err error) {
				*m, err = texts(in, func(key []byte) bool { return wantedLabels[string(key)] })
				return err
			}),
			json.UnmarshalFromFunc(func(in *jsontext.Decoder, m *annotations) (err error) {
				*m, err = texts(in, func(key []byte) bool { return wantedAnnotations[string(key)] })
				return err
			}),
			json.UnmarshalFromFunc(func(in *jsontext.Decoder, q *quantities) (err error) {
				*q, err = texts(in, func(key []byte) bool { return d.gpus[string(key)] || d.part(string(key)) })
				return err
			}),
		)))
	return d
}

// part says whether a resource is a part of a GPU: a MIG instance, or a GPU that several pods share.
func (d *decoder) part(name string) bool {
	whole, shared := strings.CutSuffix(name, ".shared")
	return strings.HasPrefix(name, "nvidia.com/mig-") || shared && d.gpus[whole]
}

// texts reads an object of texts and numbers, and keeps the wanted members.
func texts(in *jsontext.Decoder, wanted func(key []byte) bool) (map[string]string, error) {
	if in.PeekKind() == 'n' {
		return nil, in.SkipValue()
	}
	if t, err := in.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, cmpError(err, "an object of texts is none")
	}
	var out map[string]string
	for in.PeekKind() != '}' {
		name, err := in.ReadValue()
		if err != nil {
			return nil, err
		}
		key := name[1 : len(name)-1]
		if !wanted(key) {
			if err := in.SkipValue(); err != nil {
				return nil, err
			}
			continue
		}
		kept := string(key)
		value, err := in.ReadToken()
		if err != nil {
			return nil, err
		}
		if k := value.Kind(); k != '"' && k != '0' {
			return nil, fmt.Errorf("the value of %s is neither a text nor a number", kept)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[kept] = value.String()
	}
	_, err := in.ReadToken()
	return out, err
}

func cmpError(err error, otherwise string) error {
	if err != nil {
		return err
	}
	return errors.New(otherwise)
}

// errUnreadable marks an object that is JSON and not of the shape its kind has: it costs itself alone.
var errUnreadable = errors.New("the object has not the shape of its kind")

// read decodes one object of a kind. One with errUnreadable has its metadata, if that can be read.
func (d *decoder) read(k kind, raw []byte) (*object, error) {
	o := &object{}
	var err error
	switch k {
	case kindNodes:
		err = d.node(raw, o)
	case kindPods:
		err = d.podOf(raw, o)
	case kindWorkloads:
		err = d.workloadOf(raw, o)
	case kindClaims:
		err = d.claimOf(raw, o)
	case kindSlices:
		err = d.sliceOf(raw, o)
	case kindDomains, kindCliques:
		err = d.domainOf(raw, o)
	default:
		return nil, fmt.Errorf("objects of the kind %s are not read", k)
	}
	if err == nil && o.Name == "" {
		err = errors.New("it has no name")
	}
	if err == nil {
		return o, nil
	}
	if s := (*jsontext.SyntacticError)(nil); errors.As(err, &s) {
		return nil, fmt.Errorf("read one of %s: %w", k, err)
	}
	// Its name alone: what is there is not missing.
	var named struct {
		Metadata struct {
			Name            string `json:"name"`
			Namespace       string `json:"namespace"`
			UID             string `json:"uid"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(raw, &named, d.opts) // what could not be read stays empty
	m := named.Metadata
	bad := &object{header: header{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion}}
	return bad, fmt.Errorf("%w: %s of %s: %w", errUnreadable, bad.key(), k, err)
}

// quantities are amounts of the resources that are GPUs or parts of them, as texts.
type quantities map[string]string

// container is what a pod's container asks for.
type container struct {
	RestartPolicy string `json:"restartPolicy"` // of an init container; Always makes it a sidecar
	Resources     struct {
		Requests quantities `json:"requests"`
		Limits   quantities `json:"limits"`
	} `json:"resources"`
}

// request is what of GPUs a pod asks for by name.
type request struct {
	gpus  uint32
	parts bool // it asks for parts of GPUs too, or in a way that is not understood: how many GPUs that is is not known
}

// podSpec is the part of a pod that templates have too.
type podSpec struct {
	Containers     []container    `json:"containers"`
	InitContainers []container    `json:"initContainers"`
	Affinity       jsontext.Value `json:"affinity"`
	Claims         []struct {
		Name     string `json:"name"`
		Claim    string `json:"resourceClaimName"`
		Template string `json:"resourceClaimTemplateName"`
	} `json:"resourceClaims"`
}

// request adds up containers as the scheduler does: those that run together, or the largest that runs before them.
func (d *decoder) request(s *podSpec) request {
	var sum, sidecars, first request
	for i := range s.Containers {
		sum = sum.plus(d.asked(&s.Containers[i]))
	}
	for i := range s.InitContainers {
		r := d.asked(&s.InitContainers[i])
		if s.InitContainers[i].RestartPolicy == "Always" {
			sidecars = sidecars.plus(r)
			r = request{}
		}
		r = r.plus(sidecars)
		first.gpus, first.parts = max(first.gpus, r.gpus), first.parts || r.parts
	}
	sum = sum.plus(sidecars)
	return request{max(sum.gpus, first.gpus), sum.parts || first.parts}
}

func (r request) plus(s request) request { return request{r.gpus + s.gpus, r.parts || s.parts} }

func (d *decoder) asked(c *container) (out request) {
	asked := maps.Clone(c.Resources.Limits)
	if asked == nil {
		asked = quantities{}
	}
	maps.Copy(asked, c.Resources.Requests)
	for name, text := range asked {
		n, ok := amount(text)
		switch {
		case ok && n == 0:
		case !ok || !d.gpus[name]:
			out.parts = true
		default:
			out.gpus += n
		}
	}
	return out
}

// maxAmount is more GPUs than a node, or a job, can have.
const maxAmount = 1 << 24

// amount reads a quantity that counts devices.
func amount(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > maxAmount {
		return 0, false
	}
	return uint32(n), true
}

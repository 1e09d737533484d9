// Command kueuetest asks the real Kueue where it would place gangs: its cache, its snapshot, its reading of a pod template's
// annotations and its flavor assigner with topology-aware scheduling, as libraries over an API server in memory. It is a
// program and a module of its own, so that Kueue is no dependency of Spillway; tests of query/advise build and drive it. It
// knows nothing of Spillway's strategies: what differs is for the caller to judge.
//
// It reads Tasks as a stream of JSON values from its input and writes for each the Answers to its asks.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/controller/core/indexer"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/kueue/pkg/scheduler/flavorassigner"
	"sigs.k8s.io/kueue/pkg/workload"
)

// Task is a cluster and what is asked of it, each ask by itself.
type Task struct {
	Levels []string // node labels, widest first
	Nodes  []Node
	Asks   []Ask
}

// Node is a machine, and how many of its GPUs a pod holds that Kueue did not place.
type Node struct {
	Name       string
	Labels     map[string]string
	GPUs, Busy int64
}

// Ask is a Job's pod template: its annotations, how many pods there are and what each wants.
type Ask struct {
	Annotations map[string]string
	Pods        int32
	GPUs        int64
}

// Answer is how many pods would go to each domain of the lowest level, by its name; or why none would.
type Answer struct {
	Pods   map[string]int32
	Reason string
}

func main() {
	ctrl.SetLogger(logr.Discard())
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var task Task
		err := in.Decode(&task)
		if errors.Is(err, io.EOF) {
			return
		}
		var answers []Answer
		if err == nil {
			answers, err = run(&task)
		}
		if err == nil {
			err = out.Encode(answers)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "kueuetest:", err)
			os.Exit(1)
		}
	}
}

const (
	gpu   = "nvidia.com/gpu"
	name  = "gpus" // of the topology, the flavor, the queue and the namespace
	label = "nvidia.com/gpu.present"
)

func run(task *Task) ([]Answer, error) {
	ctx, log := context.Background(), logr.Discard()
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("learn Kueue's kinds: %w", err)
	}
	cache := scheduler.New(fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&kueue.LocalQueue{}, indexer.QueueClusterQueueKey, indexer.IndexQueueClusterQueue).
		WithIndex(&kueue.Workload{}, indexer.WorkloadClusterQueueKey, indexer.IndexWorkloadClusterQueue).Build())
	for _, n := range task.Nodes {
		cache.TASCache().SyncNode(node(n))
		if n.Busy > 0 {
			cache.TASCache().Update(holder(n), log)
		}
	}
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, l := range task.Levels {
		topology.Spec.Levels = append(topology.Spec.Levels, kueue.TopologyLevel{NodeLabel: l})
	}
	cache.AddOrUpdateTopology(log, topology)
	cache.AddOrUpdateResourceFlavor(log, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ResourceFlavorSpec{
		NodeLabels: map[string]string{label: "true"}, TopologyName: ptr.To[kueue.TopologyReference](name)}})
	if err := cache.AddClusterQueue(ctx, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{},
		ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{gpu}, Flavors: []kueue.FlavorQuotas{{
			Name: name, Resources: []kueue.ResourceQuota{{Name: gpu, NominalQuota: resource.MustParse("1M")}}}}}},
	}}); err != nil {
		return nil, fmt.Errorf("add the queue: %w", err)
	}
	snapshot, err := cache.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("take a snapshot: %w", err)
	}
	queue := snapshot.ClusterQueue(name)
	if queue == nil {
		return nil, errors.New("take a snapshot: the queue is not active: give a topology with levels")
	}
	answers := make([]Answer, len(task.Asks))
	for i, ask := range task.Asks {
		gang, err := job(&ask)
		if err != nil {
			answers[i].Reason = err.Error()
			continue
		}
		info := workload.NewInfo(gang)
		info.ClusterQueue = name
		// The quota is ample, so that nothing is ever preempted for it and no oracle asked.
		assignment := flavorassigner.New(info, queue, snapshot.ResourceFlavors, false, nil, nil).Assign(log, nil)
		if assignment.RepresentativeMode() != flavorassigner.Fit {
			answers[i].Reason = assignment.Message()
			continue
		}
		answers[i].Pods = map[string]int32{}
		for _, d := range assignment.PodSets[0].TopologyAssignment.Domains {
			answers[i].Pods[d.Values[len(d.Values)-1]] += d.Count
		}
	}
	return answers, nil
}

// job is the Workload that Kueue makes of a Job, with the checks of its webhook.
func job(ask *Ask) (*kueue.Workload, error) {
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: ask.Annotations}, Spec: pod(ask.GPUs)}
	path := field.NewPath("spec", "template", "metadata")
	bad := jobframework.ValidateTASPodSetRequest(path, &template.ObjectMeta)
	request, err := jobframework.NewPodSetTopologyRequest(&template.ObjectMeta).PodIndexLabel(ptr.To(batchv1.JobCompletionIndexAnnotation)).Build()
	if err != nil {
		return nil, fmt.Errorf("read the annotations: %w", err)
	}
	set := kueue.PodSet{Name: kueue.DefaultPodSetName, Template: template, Count: ask.Pods, TopologyRequest: request}
	bad = append(bad, jobframework.ValidateSliceSizeAnnotationUpperBound(path, &template.ObjectMeta, &set)...)
	if err := bad.ToAggregate(); err != nil {
		return nil, fmt.Errorf("check the annotations: %w", err)
	}
	return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "gang", Namespace: name}, Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{set}}}, nil
}

func node(n Node) *corev1.Node {
	labels := map[string]string{corev1.LabelHostname: n.Name, label: "true"}
	for k, v := range n.Labels {
		labels[k] = v
	}
	room := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"), gpu: *resource.NewQuantity(n.GPUs, resource.DecimalSI)}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// holder is a running pod that Kueue did not place.
func holder(n Node) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Namespace: name}, Spec: pod(n.Busy), Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	p.Spec.NodeName = n.Name
	return p
}

func pod(gpus int64) corev1.PodSpec {
	wants := corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)}
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: "registry.example.com/train:1",
		Resources: corev1.ResourceRequirements{Limits: wants, Requests: wants}}}}
}

// Command livetest runs the real kube-scheduler, as a library over an API server in memory, with the configuration of
// ../advice.yaml and the extender calls going to a Spillway that runs. It is a program and a module of its own, so that
// Kubernetes is no dependency of Spillway; cmd/spillway's TestKubeScheduler builds and drives it. It knows nothing of NVLink
// domains: where the pods went is for the caller to judge.
//
// It reads one Task as JSON from its input and writes {"pod": "node"} as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// Task is what to schedule.
type Task struct {
	Config   string   // a KubeSchedulerConfiguration, as YAML
	Extender string   // replaces its extender's urlPrefix
	Nodes    []string // of four GPUs each
	Busy     []string // those of them that a pod holds already
	Gangs    []Gang   // one after the other
	Seconds  int      // to wait for each gang
}

// Gang is a Job whose pods want a node each.
type Gang struct {
	Name string
	Pods int
}

func main() {
	var task Task
	err := json.NewDecoder(os.Stdin).Decode(&task)
	if err == nil {
		var placed map[string]string
		if placed, err = run(&task); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(placed)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "livetest:", err)
		os.Exit(1)
	}
}

const namespace, gpu = "default", "nvidia.com/gpu"

func run(task *Task) (map[string]string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(task.Config), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decode the scheduler's configuration: %w", err)
	}
	cfg, ok := object.(*config.KubeSchedulerConfiguration)
	if !ok || len(cfg.Extenders) != 1 {
		return nil, fmt.Errorf("the configuration is a %T, want a KubeSchedulerConfiguration with one extender", object)
	}
	cfg.Extenders[0].URLPrefix = task.Extender
	client := fake.NewClientset()
	// A binding of the fake API server does not change its pod: the real one's does.
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateAction)
		if !ok || action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		binding := create.GetObject().(*corev1.Binding)
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		found, err := client.Tracker().Get(pods, binding.Namespace, binding.Name)
		if err != nil {
			return true, nil, err
		}
		pod := found.(*corev1.Pod).DeepCopy()
		pod.Spec.NodeName = binding.Target.Name
		return true, binding, client.Tracker().Update(pods, pod, binding.Namespace)
	})
	for _, name := range task.Nodes {
		if _, err := client.CoreV1().Nodes().Create(ctx, node(name), metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create node %s: %w", name, err)
		}
	}
	scheduled := cfg.Profiles[0].SchedulerName
	for _, name := range task.Busy {
		p := pod("busy-"+name, Gang{Name: "busy", Pods: len(task.Busy)}, scheduled)
		p.Spec.NodeName = name
		if _, err := client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create pod %s: %w", p.Name, err)
		}
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	defer broadcaster.Shutdown()
	informers := scheduler.NewInformerFactory(client, 0)
	s, err := scheduler.New(ctx, client, informers, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(cfg.Profiles...), scheduler.WithExtenders(cfg.Extenders...),
		scheduler.WithPodInitialBackoffSeconds(cfg.PodInitialBackoffSeconds), scheduler.WithPodMaxBackoffSeconds(cfg.PodMaxBackoffSeconds))
	if err != nil {
		return nil, fmt.Errorf("make the scheduler: %w", err)
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		return nil, fmt.Errorf("wait for the scheduler's caches: %w", err)
	}
	go s.Run(ctx)
	placed := map[string]string{}
	for _, gang := range task.Gangs {
		for i := range gang.Pods {
			p := pod(fmt.Sprintf("%s-%d", gang.Name, i), gang, scheduled)
			if _, err := client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
				return nil, fmt.Errorf("create pod %s: %w", p.Name, err)
			}
		}
		bound := 0
		for end := time.Now().Add(time.Duration(task.Seconds) * time.Second); bound < gang.Pods && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: jobName + "=" + gang.Name})
			if err != nil {
				return nil, fmt.Errorf("list pods: %w", err)
			}
			bound = 0
			for _, p := range list.Items {
				if p.Spec.NodeName != "" {
					placed[p.Name] = p.Spec.NodeName
					bound++
				}
			}
		}
	}
	return placed, nil
}

func node(name string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("144"), corev1.ResourceMemory: resource.MustParse("900Gi"),
		corev1.ResourcePods: resource.MustParse("110"), gpu: resource.MustParse("4"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

const jobName = "batch.kubernetes.io/job-name"

// pod is one of a Job's, as its controller makes it, with the annotation that says how many there are.
func pod(name string, gang Gang, schedulerName string) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, UID: types.UID(name),
			Labels:          map[string]string{jobName: gang.Name, "batch.kubernetes.io/controller-uid": "uid-" + gang.Name},
			Annotations:     map[string]string{"spillway.io/gang-pods": fmt.Sprint(gang.Pods), "spillway.io/class": "train"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: gang.Name, UID: types.UID("uid-" + gang.Name), Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			SchedulerName: schedulerName, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "worker", Image: "registry.example.com/train:1", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{gpu: resource.MustParse("4")}, Requests: corev1.ResourceList{gpu: resource.MustParse("4")}}}},
		},
	}
}

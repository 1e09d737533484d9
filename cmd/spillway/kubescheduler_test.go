package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

// kubeTask is what deploy/k8s/livetest reads.
type kubeTask struct {
	Config, Extender string
	Nodes, Busy      []string
	Gangs            []kubeGang
	Seconds          int
}

type kubeGang struct {
	Name string
	Pods int
}

// TestKubeScheduler lets the real kube-scheduler, configured by deploy/k8s/advice.yaml, place gangs pod by pod and ask a
// running Spillway for each. To compile Kubernetes takes minutes, so it runs only where services are required.
func TestKubeScheduler(t *testing.T) {
	run := testenv.GoModule(t, "Kubernetes", "../../deploy/k8s/livetest")
	text, err := os.ReadFile("../../deploy/k8s/advice.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Kind string
		Data map[string]string
	}
	if err := yaml.Unmarshal([]byte(strings.Split(string(text), "\n---\n")[0]), &config); err != nil || config.Data["scheduler.yaml"] == "" {
		t.Fatalf("deploy/k8s/advice.yaml does not begin with the scheduler's configuration: %+v, %v", config, err)
	}
	schedule := func(t *testing.T, task kubeTask) map[string]string {
		t.Helper()
		raw, err := json.Marshal(task)
		if err != nil {
			t.Fatal(err)
		}
		placed := map[string]string{}
		if err := json.Unmarshal(run(t, raw), &placed); err != nil {
			t.Fatal(err)
		}
		return placed
	}
	s := newCaller(t)
	now := time.Now().UnixMilli()
	interval := uint32(600_000)
	s.emit(append(smallFleet(now), &event.Source{Cluster: "c1", Source: "slurm", ObservedAtMs: now, GoodAtMs: &now, IntervalMs: &interval})...)
	task := kubeTask{Config: config.Data["scheduler.yaml"], Extender: s.base + "/scheduler", Seconds: 60}
	for rack, nodes := range map[string]int{"a": 18, "b": 17} {
		for n := 1; n <= nodes; n++ {
			task.Nodes = append(task.Nodes, fmt.Sprintf("gb200-%s-%02d", rack, n))
		}
	}
	testenv.Until(t, "the fleet is known", func() bool {
		v := s.feed.Clusters("")["c1"]
		if v == nil || len(v.Snapshot.Topology.Nodes) != 35 || len(v.Snapshot.Topology.Unknown) > 0 {
			return false
		}
		_, known := v.Age(time.Now())
		return known
	})
	cliques := func(placed map[string]string) (out []string, nodes []string) {
		for _, node := range placed {
			var n int
			fmt.Sscanf(node[8:], "%d", &n)
			_, clique := rackOf(node[6:7], n)
			out, nodes = append(out, fmt.Sprint(node[6:7], clique)), append(nodes, node)
		}
		slices.Sort(out)
		slices.Sort(nodes)
		return slices.Compact(out), nodes
	}
	unhurried := task // a busy machine may need longer than a site would wait
	unhurried.Config = strings.Replace(task.Config, "httpTimeout: 100ms", "httpTimeout: 20s", 1)

	unhurried.Gangs = []kubeGang{{"small", 6}} // their class leaves two nodes of a domain to others
	placed := schedule(t, unhurried)
	where, nodes := cliques(placed)
	if len(placed) != 6 || len(slices.Compact(slices.Clone(nodes))) != 6 || !slices.Equal(where, []string{"b2"}) {
		t.Errorf("6 pods went to %v on %v, want the clique of eight nodes", where, nodes)
	}
	s.emit(holds("9", event.State_RUNNING, time.Now().UnixMilli(), nodes...))
	testenv.Until(t, "the gang holds its nodes", func() bool { return s.feed.Clusters("")["c1"].Snapshot.Holds("9") })
	unhurried.Busy, unhurried.Gangs = nodes, []kubeGang{{"large", 16}}
	if where, nodes := cliques(schedule(t, unhurried)); len(nodes) != 16 || !slices.Equal(where, []string{"a32766"}) {
		t.Errorf("16 pods went to %v on %v, want rack a", where, nodes)
	}

	for name, extender := range map[string]string{"nobody listens": "http://127.0.0.1:1/scheduler", "Spillway hangs": "http://" + hangs(t) + "/scheduler"} {
		alone := task
		alone.Extender, alone.Gangs = extender, []kubeGang{{"alone", 4}}
		start := time.Now()
		if placed := schedule(t, alone); len(placed) != 4 {
			t.Errorf("%s: %d of 4 pods were placed, want all as without advice", name, len(placed))
		}
		t.Logf("%s: four pods were placed in %s", name, time.Since(start).Round(time.Millisecond))
	}
}

// hangs is the address of a service that takes calls and never answers.
func hangs(t *testing.T) string {
	r := newRelay(t, "")
	r.silent.Store(true)
	return r.Addr().String()
}

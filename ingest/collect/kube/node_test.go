package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/schemas/event"
)

func (w *world) records(second int) (out []event.Record) {
	b := w.m.propose(at(second))
	b.commit()
	for _, r := range b.records {
		if err := r.Validate(); err != nil {
			w.t.Error(err)
		}
	}
	return b.records
}

func TestWhatNodesOffer(t *testing.T) {
	for name, c := range map[string]struct {
		node string
		want string // present/healthy/allocatable, schedulable, words, reason
	}{
		"all is well": {nodeOf("x", ""), "4/4/4 true Ready "},
		"cordoned":    {nodeOf("x", `,"spec":{"unschedulable":true,"taints":[{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}]}`), "4/4/4 false Ready,SchedulingDisabled cordoned"},
		"not ready": {strings.Replace(nodeOf("x", ""), `{"type":"Ready","status":"True"}`, `{"type":"Ready","status":"False","reason":"KubeletNotReady","message":"no runtime"}`, 1),
			"4/4/4 false NotReady KubeletNotReady: no runtime"},
		"not heard of": {strings.Replace(nodeOf("x", ""), `"status":"True"`, `"status":"Unknown","reason":"NodeStatusUnknown"`, 1), "4/4/4 false Unknown NodeStatusUnknown"},
		"a taint that keeps jobs off": {nodeOf("x", `,"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","value":"now","effect":"NoExecute"}]}`),
			"4/4/4 false Ready taint node.kubernetes.io/out-of-service=now:NoExecute"},
		"a taint that jobs tolerate":  {nodeOf("x", `,"spec":{"taints":[{"key":"nvidia.com/gpu","effect":"NoSchedule"}]}`), "4/4/4 true Ready "},
		"a taint that only dissuades": {nodeOf("x", `,"spec":{"taints":[{"key":"node.kubernetes.io/memory-pressure","effect":"PreferNoSchedule"}]}`), "4/4/4 true Ready "},
		"a GPU that is not well":      {strings.Replace(nodeOf("x", ""), `"allocatable":{"nvidia.com/gpu":"4"}`, `"allocatable":{"nvidia.com/gpu":"3"}`, 1), "4/3/3 true Ready "},
		"a device plugin that is gone": {strings.NewReplacer(`"labels":{`, `"labels":{"nvidia.com/gpu.count":"4",`, `{"nvidia.com/gpu":"4"}`, `{"nvidia.com/gpu":"0"}`).Replace(nodeOf("x", "")),
			"4/0/0 true Ready "},
		"a label alone":      {strings.NewReplacer(`"labels":{`, `"labels":{"nvidia.com/gpu.count":"4",`, `{"nvidia.com/gpu":"4"}`, `{}`).Replace(nodeOf("x", "")), "4/?/? true Ready "},
		"shares of GPUs":     {strings.NewReplacer(`"labels":{`, `"labels":{"nvidia.com/gpu.count":"4","nvidia.com/gpu.replicas":"8",`, `"4"}`, `"32"}`).Replace(nodeOf("x", "")), "4/?/? true Ready "},
		"MIG instances":      {strings.ReplaceAll(nodeOf("x", ""), `{"nvidia.com/gpu":"4"}`, `{"nvidia.com/gpu":"0","nvidia.com/mig-1g.12gb":"28"}`), "0/?/? true Ready "},
		"no GPUs of its own": {strings.ReplaceAll(nodeOf("x", ""), `{"nvidia.com/gpu":"4"}`, `{"cpu":"4"}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.put(5, kindNodes, c.node)
			got := ""
			for _, r := range w.records(5) {
				if n, ok := r.(*event.Node); ok && !n.Removed {
					got = fmt.Sprintf("%s/%s/%s %v %s %s", said(n.GpusPresent), said(n.GpusHealthy), said(n.GpusAllocatable), n.GetSchedulable(), n.StateRaw, n.Reason)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func said(n *uint32) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}

func sliceOf(name, node, generation string, devices ...string) string {
	var list []string
	for _, d := range devices {
		kind := "gpu"
		if strings.Contains(d, "mig") {
			kind = "mig"
		}
		list = append(list, fmt.Sprintf(`{"name":%q,"attributes":{"type":{"string":%q},"productName":{"string":"NVIDIA GB200"}}}`, d, kind))
	}
	return fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q},"spec":{"driver":"gpu.nvidia.com","nodeName":%q,"pool":{"name":%q,"generation":%s},"devices":[%s]}}`,
		name, name, node, node, generation, strings.Join(list, ","))
}

// TestGPUsThatADriverTells: where no device plugin names them, those of the newest generation of the driver's slices count.
func TestGPUsThatADriverTells(t *testing.T) {
	w := newWorld(t, nil)
	w.put(5, kindNodes, strings.NewReplacer(`{"nvidia.com/gpu":"4"}`, `{}`).Replace(nodeOf("x", "")))
	w.put(5, kindSlices, sliceOf("s1", "x", "1", "gpu-0"))
	w.put(5, kindSlices, sliceOf("s2", "x", "2", "gpu-0", "gpu-1"))
	w.put(5, kindSlices, sliceOf("s3", "x", "2", "gpu-2", "gpu-3-mig-0"))
	var got []*event.Node
	for _, second := range []int{5, 6} {
		for _, r := range w.records(second) {
			if n, ok := r.(*event.Node); ok {
				got = append(got, n)
			}
		}
		w.gone(6, kindSlices, sliceOf("s3", "x", "2"))
	}
	if len(got) != 2 || got[0].GetGpusPresent() != 3 || got[0].GpuModel != "NVIDIA GB200" || got[1].GetGpusAllocatable() != 2 {
		t.Errorf("%v", got)
	}
}

// TestPlaces is what node labels and ComputeDomains say of where a node sits, and what is told when they no longer do.
func TestPlaces(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Labels = map[string][]string{"domain": {"rack", "also"}, "leaf": {"leaf"}} })
	node := func(labels string) string {
		return `{"metadata":{"name":"x","uid":"x","labels":{` + labels + `}},"status":{"capacity":{"nvidia.com/gpu":"4"},"allocatable":{"nvidia.com/gpu":"4"}}}`
	}
	domain := func(clique string) string {
		return `{"metadata":{"namespace":"ns","name":"d","uid":"du"},"status":{"status":"Ready","nodes":[{"name":"x","cliqueID":"` + clique + `"}]}}`
	}
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"both labels", func() { w.put(1, kindNodes, node(`"nvidia.com/gpu.clique":"A.1","also":"r7","leaf":"l1"`)) }, "gfd_label domain=a partition=a.1; cloud_label leaf=l1 domain=r7"},
		{"the first of the keys wins", func() { w.put(2, kindNodes, node(`"nvidia.com/gpu.clique":"A.1","also":"r7","rack":"r1"`)) }, "cloud_label domain=r1"},
		{"a ComputeDomain that says the same is not told", func() { w.put(3, kindDomains, domain("a.1")) }, ""},
		{"one that says something else is", func() { w.put(4, kindDomains, domain("a.2")) }, "computedomain domain=a partition=a.2"},
		{"and goes with it", func() { w.gone(5, kindDomains, domain("a.2")) }, "computedomain removed"},
		{"the label goes while the fabric starts again", func() { w.put(6, kindNodes, node(`"rack":"r1"`)) }, "gfd_label removed"},
		{"then a ComputeDomain alone tells", func() { w.put(7, kindDomains, domain("B.3")) }, "computedomain domain=b partition=b.3"},
		{"no fabric", func() {
			w.put(8, kindNodes, node(`"rack":"r1","nvidia.com/gpu.clique":"00000000-0000-0000-0000-000000000000.0"`))
		},
			"gfd_label domain=00000000-0000-0000-0000-000000000000"},
		{"what is no clique tells nothing", func() { w.put(9, kindNodes, node(`"rack":"r1","nvidia.com/gpu.clique":"garbage"`)) }, "gfd_label removed"},
		{"the node goes", func() { w.gone(10, kindNodes, node(`"rack":"r1"`)) }, "computedomain removed; cloud_label removed"},
	} {
		step.do()
		var got []string
		for _, r := range w.records(10) {
			m, ok := r.(*event.Membership)
			if !ok {
				continue
			}
			s := m.Source
			if m.Removed {
				s += " removed"
			}
			for _, l := range m.Levels {
				s += " " + l.Level + "=" + l.Value
			}
			got = append(got, s)
		}
		if diff := cmp.Diff(step.want, strings.Join(got, "; ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
	if w.counts["clique_unreadable"] != 1 {
		t.Errorf("counted %v", w.counts)
	}
}

func TestTheLifeOfAComputeDomain(t *testing.T) {
	w := newWorld(t, nil)
	domain := func(status, nodes string) string {
		return `{"metadata":{"namespace":"ns","name":"d","uid":"du"},"status":{"status":"` + status + `","nodes":[` + nodes + `]}}`
	}
	clique := func(id string, nodes ...string) string {
		var daemons []string
		for _, n := range nodes {
			daemons = append(daemons, fmt.Sprintf(`{"nodeName":%q,"cliqueID":%q,"status":"Ready"}`, n, id))
		}
		return `{"metadata":{"namespace":"driver","name":"du.x","uid":"qu","labels":{"resource.nvidia.com/computeDomain":"du"}},"daemons":[` + strings.Join(daemons, ",") + `]}`
	}
	n1, n2 := `{"name":"n1","cliqueID":"A.1"}`, `{"name":"n2","cliqueID":"B.1"}`
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() { w.put(1, kindDomains, domain("", "")) }, "created"},
		{func() { w.put(2, kindDomains, domain("NotReady", n1)) }, "not_ready n1 domain=a partition=a.1"},
		{func() { w.put(3, kindDomains, domain("Ready", n2+","+n1)) }, "ready n1,n2 domain=a domain=b partition=a.1 partition=b.1"},
		{func() { w.put(4, kindDomains, domain("Ready", n1+","+n2)) }, ""},
		{func() { w.put(5, kindCliques, clique("A.1", "n1", "n3")) }, "ready n1,n2,n3 domain=a domain=b partition=a.1 partition=b.1"},
		{func() { w.put(6, kindCliques, clique("C.1", "n1")) }, "ready n1,n2 domain=a domain=b domain=c partition=a.1 partition=b.1 partition=c.1"},
		{func() { w.gone(7, kindCliques, clique("C.1", "n1")) }, "ready n1,n2 domain=a domain=b partition=a.1 partition=b.1"},
		{func() { w.gone(8, kindDomains, domain("Ready", n1)) }, "torn_down"},
	} {
		step.do()
		got := ""
		for _, r := range w.records(10 + i) {
			if d, ok := r.(*event.Domain); ok {
				got = strings.TrimSpace(d.Phase + " " + strings.Join(d.Nodes, ","))
				for _, l := range d.Levels {
					got += " " + l.Level + "=" + l.Value
				}
			}
		}
		if got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

func TestWhatIsAskedOfTheTopology(t *testing.T) {
	for name, c := range map[string]struct{ annotations, spec, want string }{
		"nothing":                  {``, ``, "NONE"},
		"required":                 {`"kueue.x-k8s.io/podset-required-topology":"accelerator.topograph.run/domain"`, ``, "REQUIRED domain"},
		"preferred":                {`"kueue.x-k8s.io/podset-preferred-topology":"nvidia.com/gpu.clique"`, ``, "PREFERRED partition"},
		"unconstrained":            {`"kueue.x-k8s.io/podset-unconstrained-topology":"true"`, ``, "UNCONSTRAINED"},
		"a level that has no name": {`"kueue.x-k8s.io/podset-required-topology":"acme.example/row"`, ``, "REQUIRED"},
		"a level of your own":      {`"kueue.x-k8s.io/podset-required-topology":"acme.example/cab"`, ``, "REQUIRED rack"},
		"slices":                   {`"kueue.x-k8s.io/podset-slice-required-topology":"nvidia.com/gpu.clique","kueue.x-k8s.io/podset-slice-size":"16"`, ``, "NONE segment 16"},
		"slices of nodes":          {`"kueue.x-k8s.io/podset-slice-required-topology":"kubernetes.io/hostname","kueue.x-k8s.io/podset-slice-size":"2"`, ``, "NONE"},
		"one job a domain":         {`"alpha.jobset.sigs.k8s.io/exclusive-topology":"accelerator.topograph.run/domain"`, ``, "REQUIRED domain exclusive"},
		"in words not understood":  {``, `"affinity":{"podAffinity":{}},`, "not known"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Levels["acme.example/cab"] = "rack" })
			w.put(5, kindPods, strings.Replace(podOf("p", `,"annotations":{`+c.annotations+`}`, "n1", 5, running()), `"spec":{`, `"spec":{`+c.spec, 1))
			got := "not known"
			for _, p := range collecttest.Placements(w.records(5)) {
				if in := p.Intent; in != nil {
					got = strings.TrimSpace(in.Mode.String() + " " + in.Level)
					if in.SegmentNodes != nil {
						got += fmt.Sprintf(" segment %d", *in.SegmentNodes)
					}
					if in.ExclusiveDomain {
						got += " exclusive"
					}
				}
			}
			if got != c.want {
				t.Errorf("it asks for %q, want %q", got, c.want)
			}
		})
	}
	w := newWorld(t, nil)
	for _, c := range []struct{ pods, gpus, nodes uint32 }{{16, 4, 16}, {16, 2, 8}, {3, 2, 0}, {16, 0, 0}, {16, 8, 0}, {8, 1, 2}} {
		if got := w.m.nodesOf(c.pods, c.gpus); (got == nil) != (c.nodes == 0) || got != nil && *got != c.nodes {
			t.Errorf("%d pods of %d GPUs fill %s nodes, want %d", c.pods, c.gpus, said(got), c.nodes)
		}
	}
	w.put(6, kindNodes, strings.ReplaceAll(nodeOf("big", ""), `"4"`, `"8"`))
	if four, eight := w.m.nodesOf(16, 4), w.m.nodesOf(16, 8); four != nil || *eight != 16 {
		t.Errorf("where nodes differ, 16 pods of 4 fill %s and of 8 %s", said(four), said(eight))
	}
	w.gone(7, kindNodes, nodeOf("big", ""))
	if four := w.m.nodesOf(16, 4); four == nil || *four != 16 {
		t.Errorf("a node that is gone still counts: %s", said(four))
	}
}

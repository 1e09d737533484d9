package advise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
)

// kueueTask is what deploy/k8s/kueuetest reads.
type kueueTask struct {
	Levels []string
	Nodes  []kueueNode
	Asks   []kueueAsk
}

type kueueNode struct {
	Name       string
	Labels     map[string]string
	GPUs, Busy int32
}

type kueueAsk struct {
	Annotations map[string]string
	Pods, GPUs  int32
}

// kueueAnswer is how many pods go to each node, or why none does.
type kueueAnswer struct {
	Pods   map[string]int32
	Reason string
}

// realKueue builds deploy/k8s/kueuetest and gives the function that puts tasks to it.
func realKueue(t *testing.T) func([]kueueTask) [][]kueueAnswer {
	t.Helper()
	run := testenv.GoModule(t, "Kueue", "../../deploy/k8s/kueuetest")
	return func(tasks []kueueTask) [][]kueueAnswer {
		t.Helper()
		var in bytes.Buffer
		for _, task := range tasks {
			if err := json.NewEncoder(&in).Encode(task); err != nil {
				t.Fatal(err)
			}
		}
		var answers [][]kueueAnswer
		for d := json.NewDecoder(bytes.NewReader(run(t, in.Bytes()))); ; {
			var of []kueueAnswer
			if err := d.Decode(&of); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, of)
		}
		if len(answers) != len(tasks) {
			t.Fatalf("%d answers to %d tasks", len(answers), len(tasks))
		}
		return answers
	}
}

const podset = "kueue.x-k8s.io/podset-"

// kueueState fills a cluster whose names sort otherwise than its domains, with none, one or two levels above them.
func kueueState(t *testing.T, rng *rand.Rand) *State {
	t.Helper()
	levels := []string{"example.com/spine", "example.com/block"}[rng.IntN(3)%2:]
	if rng.IntN(3) == 0 {
		levels = nil
	}
	var specs []NodeSpec
	for d := range 1 + rng.IntN(14) {
		spine, block := rng.IntN(3), rng.IntN(4)
		path := []string{fmt.Sprint("spine-", (spine*7+3)%5), fmt.Sprint("block-", 8+(spine*4+block)*3%8, "-of-", spine)}[2-len(levels):]
		for n := range 2 + rng.IntN(17) {
			specs = append(specs, NodeSpec{Name: fmt.Sprintf("n%02d-%02d", d, n), Domain: fmt.Sprintf("%04x", (d*977+311)%65536),
				Partition: "32766", Model: "GB200", GPUs: 4, Path: path})
		}
	}
	topo, err := NewTopology(1, levels, specs)
	if err != nil {
		t.Fatal(err)
	}
	s := NewState(topo)
	full := rng.IntN(10)
	for n := range topo.Nodes {
		if rng.IntN(10) < full {
			h := &Hold{Key: fmt.Sprint(n), Nodes: []Share{{Node: int32(n), GPUs: []int32{4, 4, 4, 1, 2, 3}[rng.IntN(6)]}}}
			if err := s.Hold(h); err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(20) == 0 {
			s.SetUsable(int32(n), [...]int32{0, 3}[rng.IntN(2)])
		}
	}
	return s
}

// kueueTask is a snapshot as Kueue would see it.
func (s *Snapshot) kueueTask() kueueTask {
	task := kueueTask{Levels: append(slices.Clone(s.Topology.Levels), "nvidia.com/gpu.clique", "kubernetes.io/hostname")}
	for i, n := range s.Topology.Nodes {
		d := s.Topology.Domains[n.Domain]
		labels := map[string]string{"nvidia.com/gpu.clique": d.ID + "." + d.Partition}
		for l, level := range s.Topology.Levels {
			labels[level] = d.Path[l]
		}
		// A device plugin takes GPUs that are not healthy out of what can be allocated.
		task.Nodes = append(task.Nodes, kueueNode{Name: n.Name, Labels: labels, GPUs: s.Usable(int32(i)), Busy: min(s.Used(int32(i)), s.Usable(int32(i)))})
	}
	return task
}

// parts is how many of Kueue's pods are in each domain.
func (a *kueueAnswer) parts(topo *Topology) map[int32]int32 {
	parts := map[int32]int32{}
	for name, pods := range a.Pods {
		n, _ := topo.Node(name)
		parts[topo.Nodes[n].Domain] += pods
	}
	return parts
}

// inWords is a placement in the words of the cases, by domain.
func inWords(parts map[int32]int32) string {
	if len(parts) == 0 {
		return "no fit"
	}
	out := "placed"
	for _, d := range slices.Sorted(maps.Keys(parts)) {
		out += fmt.Sprintf(" %d:%d", d, parts[d])
	}
	return out
}

// TestKueue asks Kueue 0.17 itself.
func TestKueue(t *testing.T) {
	kueue := realKueue(t)
	t.Run("the baselines are Kueue's", func(t *testing.T) { baselinesAreKueues(t, kueue) })
	t.Run("advice is understood", func(t *testing.T) { adviceIsUnderstood(t, kueue) })
}

// baselinesAreKueues puts the same gangs on the same random clusters to Kueue and to the strategies that say they are it.
func baselinesAreKueues(t *testing.T, kueue func([]kueueTask) [][]kueueAnswer) {
	type question struct {
		Strategy
		Ask
	}
	rng := rand.New(rand.NewPCG(17, 1))
	const domains = "nvidia.com/gpu.clique"
	var states []*Snapshot
	var tasks []kueueTask
	var questions [][]question
	for range 300 {
		s := kueueState(t, rng).Publish(1)
		task := s.kueueTask()
		var of []question
		ask := func(strategy Strategy, a Ask, annotations ...string) {
			a.GPUsPerNode, a.MaxWait = 4, -1
			k := kueueAsk{Annotations: map[string]string{}, Pods: a.Nodes, GPUs: 4}
			if a.Shared > 0 {
				k.GPUs = a.Shared
			}
			for i := 0; i < len(annotations); i += 2 {
				k.Annotations[podset+annotations[i]] = annotations[i+1]
			}
			of, task.Asks = append(of, question{strategy, a}), append(task.Asks, k)
		}
		for range 4 {
			nodes := 1 + rng.Int32N(40)
			ask(KueueBestFit{}, Ask{Nodes: nodes, Mode: Required}, "required-topology", domains)
			ask(KueueBestFit{}, Ask{Nodes: nodes, Mode: Preferred}, "preferred-topology", domains)
			ask(FirstFit{}, Ask{Nodes: nodes, Mode: Unconstrained}, "unconstrained-topology", "true")
			ask(FirstFit{}, Ask{Nodes: nodes, Mode: Unconstrained})
			ask(KueueLeastFree{}, Ask{Nodes: nodes, Mode: Unconstrained}, "slice-required-topology", domains, "slice-size", "1")
			segment := 1 + rng.Int32N(8)
			nodes = segment * (1 + rng.Int32N(6))
			size := fmt.Sprint(segment)
			ask(KueueBestFit{}, Ask{Nodes: nodes, Mode: Preferred, Segment: segment}, "preferred-topology", domains, "slice-required-topology", domains, "slice-size", size)
			ask(KueueLeastFree{}, Ask{Nodes: nodes, Mode: Unconstrained, Segment: segment}, "slice-required-topology", domains, "slice-size", size)
		}
		for gpus := int32(1); gpus < 4; gpus++ {
			ask(KueueBestFit{}, Ask{Nodes: 1, Shared: gpus, Mode: Preferred}, "preferred-topology", domains)
			ask(KueueLeastFree{}, Ask{Nodes: 1, Shared: gpus, Mode: Unconstrained}, "slice-required-topology", domains, "slice-size", "1")
		}
		states, tasks, questions = append(states, s), append(tasks, task), append(questions, of)
	}
	var p Plan
	asked, split, differ := 0, 0, map[string]int{}
	for i, answers := range kueue(tasks) {
		v := states[i].View()
		for k, answer := range answers {
			q := questions[i][k]
			q.Place(&v, &q.Ask, &p)
			parts := map[int32]int32{}
			for _, part := range p.Parts {
				parts[part.Domain] = part.Nodes
			}
			asked++
			if len(parts) > 1 {
				split++
			}
			if got, want := inWords(parts), inWords(answer.parts(v.Topology)); got != want {
				if differ[q.Name()]++; differ[q.Name()] <= 5 {
					t.Errorf("%s: %+v of free %v, paths %v: got %q, Kueue says %q %s", q.Name(), q.Ask, v.Free, v.Topology.paths(), got, want, answer.Reason)
				}
			}
		}
	}
	t.Logf("%d questions, %d of them over several domains; answers that differ: %v", asked, split, differ)
	if split < asked/10 {
		t.Errorf("only %d of %d gangs were split: the test proves little", split, asked)
	}
}

// adviceIsUnderstood puts the annotations of advice to start now on a pod template and gives it to Kueue, on the same
// cluster: Kueue takes them, and the gang starts in a shape like the one advised.
func adviceIsUnderstood(t *testing.T, kueue func([]kueueTask) [][]kueueAnswer) {
	rng := rand.New(rand.NewPCG(19, 1))
	c, none := DefaultConfig(), 0
	type advised struct {
		s    *Snapshot
		best Candidate
		with map[string]string
		unit int32
	}
	var tasks []kueueTask
	var advice [][]advised
	for range 300 {
		s := kueueState(t, rng).Publish(1)
		task := s.kueueTask()
		var of []advised
		for range 12 {
			r := Request{GPUs: 4 * (1 + rng.IntN(40)), Class: [...]string{"", "train", "serve"}[rng.IntN(3)], WaitedS: int64(rng.IntN(2)) << 20, SparesPerDomain: &none}
			switch rng.IntN(6) {
			case 0, 1:
				r.SegmentNodes = 1 + rng.IntN(8)
				r.GPUs = 4 * r.SegmentNodes * (1 + rng.IntN(5))
			case 2:
				r.GPUs = 1 + rng.IntN(3)
			}
			resp, err := c.Advise(s, &r, time.Unix(1, 0))
			if err != nil || len(resp.Candidates) == 0 || resp.Candidates[0].Start != "now" {
				continue
			}
			of = append(of, advised{s, resp.Candidates[0], resp.Kueue, int32(max(1, r.SegmentNodes))})
			task.Asks = append(task.Asks, kueueAsk{Annotations: resp.Kueue, Pods: int32(max(1, r.GPUs/4)), GPUs: int32(min(4, r.GPUs))})
		}
		tasks, advice = append(tasks, task), append(advice, of)
	}
	seen := map[string]int{}
	for i, answers := range kueue(tasks) {
		for k, answer := range answers {
			a := advice[i][k]
			v := a.s.View()
			parts := answer.parts(v.Topology)
			say := func(problem string) {
				t.Errorf("%s: free %v, paths %v, advised %+v with %v, Kueue says %s %s", problem, v.Free, v.Topology.paths(), a.best.Domains, a.with, inWords(parts), answer.Reason)
			}
			slice, _ := strconv.Atoi(a.with[podset+"slice-size"])
			kind := "one domain"
			switch {
			case len(a.best.Domains) > 1 && slice > 0:
				kind = "slices"
			case len(a.best.Domains) > 1:
				kind = "preferred"
			case a.with[podset+"unconstrained-topology"] != "":
				kind = "smaller than a node"
			}
			seen[kind]++
			if len(parts) == 0 {
				say("not placed")
				continue
			}
			if kind == "one domain" {
				d := v.Topology.Domain(a.best.Domains[0].ID)[0]
				for got := range parts {
					if len(parts) > 1 || v.Free[got]/a.unit != v.Free[d]/a.unit {
						say("not a domain as tight")
					}
				}
			}
			for _, n := range parts {
				if slice > 0 && n%int32(slice) != 0 {
					say("a broken slice")
				}
			}
			if len(parts) > len(a.best.Domains) {
				seen[kind+", in more domains"]++
			}
		}
	}
	t.Logf("%v", seen)
	for _, kind := range []string{"one domain", "slices", "preferred", "smaller than a node"} {
		if seen[kind] < 100 {
			t.Errorf("only %d answers of the kind %q: the test proves little", seen[kind], kind)
		}
	}
	if seen["slices, in more domains"] > seen["slices"]/10 {
		t.Errorf("%d of %d gangs in slices are in more domains than advised", seen["slices, in more domains"], seen["slices"])
	}
}

func (t *Topology) paths() (out []string) {
	for _, d := range t.Domains {
		out = append(out, strings.Join(d.Path, "/"))
	}
	return out
}

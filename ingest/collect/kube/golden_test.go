package kube

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/schemas/event"
)

// TestRecordsOfARecordedServer: what a real API server printed, and what it becomes.
func TestRecordsOfARecordedServer(t *testing.T) {
	for name, files := range map[string][]string{
		"s1":    moment("s1"),
		"s1-s2": append(moment("s1"), moment("s2")...),
		"watch": {"watch-pods.ndjson.gz", "watch-workloads.ndjson.gz", "watch-computedomains.ndjson.gz"},
	} {
		t.Run(name, func(t *testing.T) {
			collecttest.Golden(t, name+".golden", collecttest.Lines(t, replayed(t, files...)))
		})
	}
}

// shape is where the pods of a job are, as the recorded expectations have it: they were worked out by another program.
type shape struct {
	Nodes     int              `json:"nodes"`
	GPUs      int              `json:"gpus"`
	NodeList  []string         `json:"nodeList"`
	PerClique map[string]share `json:"perClique"`
}

type share struct {
	Nodes int `json:"nodes"`
	GPUs  int `json:"gpus"`
}

type expectation struct {
	Unknown       []string `json:"membershipUnknown"`
	Unschedulable []string `json:"unschedulableOrNotReady"`
	Jobs          map[string]struct {
		Actual *struct{ Active *shape } `json:"actual"`
	} `json:"jobs"`
	Alone   map[string]struct{ Active shape } `json:"podsWithoutJob"`
	Domains map[string]struct {
		Status    string         `json:"status"`
		Nodes     int            `json:"nodes"`
		PerClique map[string]int `json:"perClique"`
	} `json:"computeDomains"`
}

func TestWhatIsRecordedBecomesWhatIsExpected(t *testing.T) {
	var expected struct {
		Moments map[string]expectation `json:"moments"`
	}
	if err := json.Unmarshal(recorded(t, "expected.json.gz"), &expected); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string][]string{
		"s1": moment("s1"),
		"s2": append(moment("s1"), moment("s2")...), // s2 follows s1, so what has ended was seen before
	} {
		t.Run(name, func(t *testing.T) {
			want := expected.Moments[name]
			records := replayed(t, files...)
			got, domains := stateOf(records)
			if diff := cmp.Diff(want.Unschedulable, got.unschedulable); diff != "" {
				t.Errorf("nodes that take no jobs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.Unknown, got.unknown); diff != "" {
				t.Errorf("nodes whose place is not known (-want +got):\n%s", diff)
			}
			active := map[string]shape{}
			for job, j := range want.Jobs {
				if j.Actual != nil && j.Actual.Active != nil {
					active[job] = *j.Actual.Active
				}
			}
			for job, j := range want.Alone {
				active[job] = j.Active
			}
			if diff := cmp.Diff(active, got.jobs); diff != "" {
				t.Errorf("where jobs run (-want +got):\n%s", diff)
			}
			for owner, d := range want.Domains {
				last := domains[owner]
				if last == nil {
					t.Errorf("nothing is told of the ComputeDomain %s", owner)
					continue
				}
				phase := map[string]string{"Ready": phaseReady, "NotReady": phaseNotReady}[d.Status]
				partitions := 0
				for _, l := range last.Levels {
					if l.Level == event.LevelPartition {
						partitions++
					}
				}
				if last.Phase != phase || len(last.Nodes) != d.Nodes || partitions != len(d.PerClique) {
					t.Errorf("ComputeDomain %s: %v, want %+v", owner, last, d)
				}
			}
		})
	}
}

type state struct {
	jobs                   map[string]shape
	unschedulable, unknown []string
}

// stateOf is how things are after all records.
func stateOf(records []event.Record) (state, map[string]*event.Domain) {
	runs, places, nodes, domains := map[string]*event.Placement{}, map[string]string{}, map[string]*event.Node{}, map[string]*event.Domain{}
	for _, r := range records {
		switch r := r.(type) {
		case *event.Placement:
			runs[r.JobId+" "+r.RunId] = r
		case *event.Node:
			nodes[r.Node] = r
		case *event.Membership:
			if r.Source == event.SourceGFDLabel {
				places[r.Node] = r.Levels[1].Value
			}
		case *event.Domain:
			domains[r.Owner] = r
		}
	}
	out := state{jobs: map[string]shape{}}
	for _, p := range runs {
		if !p.State.Holding() {
			continue
		}
		s := shape{PerClique: map[string]share{}}
		for _, n := range p.Placements {
			if n.ToMs != nil {
				continue
			}
			s.Nodes++
			s.GPUs += int(n.GetGpus())
			s.NodeList = append(s.NodeList, n.Node)
			c := s.PerClique[places[n.Node]]
			s.PerClique[places[n.Node]] = share{c.Nodes + 1, c.GPUs + int(n.GetGpus())}
		}
		if int(p.GetGpus()) != s.GPUs {
			s.GPUs = -1
		}
		out.jobs[p.JobId] = s
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if !nodes[name].GetSchedulable() {
			out.unschedulable = append(out.unschedulable, name)
		}
		if places[name] == "" {
			out.unknown = append(out.unknown, name)
		}
	}
	return out, domains
}

// TestTheStreamsSayWhatTheListsSay: the same story, as it was watched.
func TestTheStreamsSayWhatTheListsSay(t *testing.T) {
	lists, _ := stateOf(replayed(t, append(moment("s1"), moment("s2")...)...))
	records := replayed(t, append(moment("s1")[:1], "watch-pods.ndjson.gz", "watch-workloads.ndjson.gz", "watch-computedomains.ndjson.gz", "s2-resourceclaims.json.gz", "s2-resourceslices.json.gz")...)
	streams, _ := stateOf(records)
	if diff := cmp.Diff(lists.jobs, streams.jobs); diff != "" {
		t.Errorf("where jobs run (-lists +streams):\n%s", diff)
	}
	var last *event.Placement
	for _, p := range collecttest.Placements(records) {
		if p.JobId == "team-pretrain/llm-pretrain" {
			last = p
		}
	}
	for _, n := range last.GetPlacements() {
		switch n.Node {
		case "gb200-a-05":
			if n.ToMs == nil {
				t.Errorf("the node that was lost is still held: %v", n)
			}
		case "gb200-a-17":
			if n.FromMs == nil || n.ToMs != nil {
				t.Errorf("the node that replaced it is held from the start: %v", n)
			}
		}
	}
	if len(last.GetPlacements()) != 17 {
		t.Errorf("%d nodes, want 16 and the one that was lost", len(last.GetPlacements()))
	}
}

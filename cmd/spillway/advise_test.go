package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/api"
	"github.com/spillway-io/spillway/query/read"
)

// TestAdviceSaysWhatItRestsOn: what is assumed, waited for, evicted or missed stands in the answer for people too.
func TestAdviceSaysWhatItRestsOn(t *testing.T) {
	none := api.NoAdvice{
		Status: 409, Code: advise.NoCapacityNow, Detail: "16 nodes wanted together", Remedy: "wait",
		Counts:   []advise.Count{{Reason: "held by jobs", Nodes: 280}, {Reason: "free", Nodes: 8}},
		MakeRoom: &advise.MakeRoom{Opens: "uuid-9", Nodes: 16, Moves: []advise.Move{{Job: "7"}, {Job: "8"}}},
	}
	advice := api.Advice{AdviceID: "x", Cluster: "c1", Response: advise.Response{
		Recommendation: "wait for rank 1", NotNow: &advise.Refusal{Detail: "at most 9 free", Counts: none.Counts},
		Candidates: []advise.Candidate{
			{Rank: 1, Start: "2026-11-29T12:00:00Z", WaitS: 60, WaitsFor: []string{"812"}, Domains: []advise.DomainShare{{ID: "uuid-1", Nodes: 16}}, MissesDeadline: true},
			{Rank: 2, Start: "now", Domains: []advise.DomainShare{{ID: "uuid-1", Nodes: 8}, {ID: "uuid-2", Nodes: 8}}, Evicts: []string{"p1"}},
		},
		MakeRoom: &advise.MakeRoom{Opens: "uuid-1", Nodes: 16, CostGPUHours: 3, Moves: []advise.Move{{Job: "7", Nodes: 2, To: "uuid-2"}}},
		Kueue:    map[string]string{"b": "2", "a": "1"},
		Snapshot: advise.SnapshotInfo{Stale: true, Coverage: 1, Estimates: .5},
	}}
	var asked advise.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/domains":
			_ = json.NewEncoder(w).Encode(read.Domains{Domains: []read.Domain{{Domain: "uuid-1", Label: new("rack01")}}})
		case json.NewDecoder(r.Body).Decode(&asked) != nil || asked.GPUs == 4096:
			w.WriteHeader(none.Status)
			_ = json.NewEncoder(w).Encode(none)
		default:
			_ = json.NewEncoder(w).Encode(advice)
		}
	}))
	defer s.Close()
	code, out, bad := answered(t, s.URL, strings.Fields("advise --gpus 64 --max-wait 0s --make-room --priority 0 --deadline 2026-11-29T12:00:00Z")...)
	for _, want := range []string{
		"280 nodes held by jobs, 8 nodes free", "rack01:16", "rack01:8 uuid-2:8", "rank 1 waits for jobs 812", "rank 2 evicts the probe jobs p1",
		"rank 1 misses the deadline", "room for 16 nodes in rack01, for a cost that is not known", "moves to uuid-2", "kueue: a: 1\nkueue: b: 2\n",
		"which is stale", "ends of 50.0 %",
	} {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("got %d %s%s, want %q in it", code, out, bad, want)
		}
	}
	if asked.MaxWaitS == nil || *asked.MaxWaitS != 0 || asked.Priority == nil || *asked.Priority != 0 || asked.Deadline == nil || asked.Preempt != "plan" {
		t.Errorf("asked %+v, want no wait at all and a priority of 0", asked)
	}
	if code, _, bad := answered(t, s.URL, "advise", "--gpus", "4096"); code == exitOK || !strings.Contains(bad, "(280 nodes held by jobs, 8 nodes free)") ||
		!strings.Contains(bad, "moving or ending the jobs 7, 8") {
		t.Errorf("got %d %s, want the counted reasons", code, bad)
	}
	asked = advise.Request{}
	if answered(t, s.URL, "advise", "--gpus", "64"); asked.MaxWaitS != nil || asked.Priority != nil {
		t.Errorf("asked %+v, want neither a bound nor a priority", asked)
	}
	if code, _, bad := answered(t, s.URL, "advise", "--gpus", "64", "--deadline", "tomorrow"); code != exitUsage || !strings.Contains(bad, "--deadline") {
		t.Errorf("got %d %s", code, bad)
	}
}

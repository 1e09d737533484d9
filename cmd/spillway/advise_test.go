package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
			{Rank: 1, Start: "2026-11-29T12:00:00Z", StartP90: "2026-11-29T12:09:00Z", WaitS: 60, WaitsFor: []string{"812"}, Domains: []advise.DomainShare{{ID: "uuid-1", Nodes: 16}}, MissesDeadline: true,
				Predicted: advise.Prediction{BwGBps: 900, BwBasis: "one domain"}},
			{Rank: 2, Start: "now", Domains: []advise.DomainShare{{ID: "uuid-1", Nodes: 8}, {ID: "uuid-2", Nodes: 8}}, Evicts: []string{"p1"},
				Predicted: advise.Prediction{BwGBps: 50, BwBasis: "each GPU's own NIC of 50 GB/s (cluster)"}},
			{Rank: 3, Start: "2026-11-29T13:00:00Z", WaitS: 3660},
		},
		MakeRoom: &advise.MakeRoom{Opens: "uuid-1", Nodes: 16, CostGPUHours: 3, Moves: []advise.Move{{Job: "7", Nodes: 2, To: "uuid-2"}}},
		Kueue:    map[string]string{"b": "2", "a": "1"},
		Snapshot: advise.SnapshotInfo{Stale: true, Coverage: 1, Estimates: .5},
	}, Hold: &api.Hold{ID: "h1", Nodes: []string{"n1", "n2"}}}
	var asked advise.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/holds/h1/release":
			_, _ = w.Write([]byte(`{"accepted":true}`))
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
		"which is stale", "ends of 50.0 %", "rank 1 starts in 10m0s if each job", "rank 3 may start later than that", "rank 2 talks across over each GPU's own NIC",
		"held until 0001-01-01T00:00:00Z: 2 nodes; end it with spillway advise --release h1",
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
	if asked.HoldS != 0 || asked.RequestID != "" || asked.AsOf != nil {
		t.Errorf("asked %+v, want neither a hold nor the past", asked)
	}
	answered(t, s.URL, strings.Fields("advise --gpus 64 --hold 30s --queue batch --as-of 2026-11-29T12:00:00Z")...)
	if asked.HoldS != 30 || len(asked.RequestID) < 16 || asked.Queue != "batch" || asked.AsOf == nil {
		t.Errorf("asked %+v, want a hold of half a minute by a name", asked)
	}
	if code, out, bad := answered(t, s.URL, "advise", "--release", "h1"); code != exitOK || out != "hold h1 is over\n" {
		t.Errorf("got %d %s%s", code, out, bad)
	}
	if code, _, bad := answered(t, s.URL, "advise", "--gpus", "64", "--as-of", "yesterday"); code != exitUsage || !strings.Contains(bad, "--as-of") {
		t.Errorf("got %d %s", code, bad)
	}
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	advice.Snapshot.AsOf = &at
	if _, out, _ := answered(t, s.URL, "advise", "--gpus", "64"); !strings.Contains(out, "as of 2026-11-29T12:00:00Z, as far as is known of it today") || strings.Contains(out, "good for") {
		t.Errorf("of the past: got %s", out)
	}
	if code, _, bad := answered(t, s.URL, "advise", "--gpus", "64", "--deadline", "tomorrow"); code != exitUsage || !strings.Contains(bad, "--deadline") {
		t.Errorf("got %d %s", code, bad)
	}
}

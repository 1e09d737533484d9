package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/api"
	"github.com/spillway-io/spillway/query/read"
)

// TestNamesReachTheTerminalAsText: whoever submits a job names it, and a terminal obeys escape sequences.
func TestNamesReachTheTerminalAsText(t *testing.T) {
	const evil = "a\x1b]0;owned\x07\x1b[2Jb\rc\nd\u009b31m\u202ee"
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	fresh := read.Freshness{AsOf: &at, AgeS: new(1.0), Gaps: []string{evil}}
	verdict := read.Verdict{From: at, Cause: new(evil), Traffic: &read.Traffic{Evidence: evil}, Outcome: evil}
	answers := map[string]any{
		"/v1/slots":           read.Slots{Basis: evil, Domains: []read.DomainSlot{{Cluster: evil, Domain: evil}}, Freshness: fresh},
		"/v1/spills":          read.Spills{Spills: []read.Spill{{Cluster: evil, JobID: evil, Name: evil, User: evil, Verdict: verdict}}, Freshness: fresh},
		"/v1/jobs/7/explain":  read.Explanation{Cluster: evil, JobID: evil, Lines: []string{evil, evil}, Freshness: fresh},
		"/v1/jobs/7/compare":  read.Compare{Lines: []string{evil}},
		"/v1/domains":         read.Domains{Domains: []read.Domain{{Cluster: evil, Domain: evil}}, Freshness: fresh},
		"/v1/audit/occupancy": read.Occupancy{Cluster: evil, Domain: evil, Stays: []read.Stay{{JobID: evil, User: evil, Account: evil, Outcome: evil}}, Accounts: []read.Occupier{{Account: evil}}, Freshness: fresh},
		"/v1/report":          read.Report{Cluster: evil, Changes: []string{evil}, Basis: []string{evil}, Causes: []read.ReportCause{{Cause: new(evil)}}, Accounts: []read.ReportAccount{{Cluster: evil, Account: evil}}, Worst: []read.ReportJob{{Cluster: evil, JobID: evil, Name: evil, Account: evil}}, Freshness: fresh},
		"/v1/status":          read.Status{Sources: []read.Source{{Cluster: evil, Source: evil, Problem: new(evil)}}, Raw: []read.RawTable{{Table: evil}}, DeadLetters: []read.DeadLetter{{Topic: evil, Stage: evil, Reason: evil}}, Freshness: fresh},
		"/v1/jobs/7":          read.Job{Cluster: evil, JobID: evil, Attempts: []read.Attempt{{Name: evil, User: evil, Account: evil, Queue: evil, ServiceClass: evil, State: evil, Placements: []read.Placement{{Nodes: []read.Held{{Node: evil}}, Verdict: &verdict}}}}, Freshness: fresh},
		"/v1/domains/rack01":  read.DomainAt{Capacity: &read.Domain{Cluster: evil, Domain: evil}, Nodes: []read.DomainNode{{Node: evil, Partition: evil, State: new(evil), Reason: new(evil)}}, Jobs: []read.DomainJob{{JobID: evil, Name: evil, User: evil, State: evil, Outcome: evil}}, Freshness: fresh},
		"/v1/advice": api.Advice{Response: advise.Response{Recommendation: "now", Why: []string{evil}, NotNow: &advise.Refusal{Detail: evil}, Slurm: []string{evil}, Kueue: map[string]string{evil: evil},
			Candidates: []advise.Candidate{{Start: "now", Domains: []advise.DomainShare{{ID: evil}}}}, MakeRoom: &advise.MakeRoom{Opens: evil, Moves: []advise.Move{{Job: evil, To: evil}}}}},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			t.Errorf("nobody answers %s", r.URL)
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer s.Close()
	for _, line := range []string{"slots", "spills", "explain 7", "explain --mail 7", "job 7", "domains", "domains rack01", "domains rack01 --since 2026-11-29T00:00:00Z",
		"report", "status", "advise --gpus 4"} {
		code, out, bad := answered(t, s.URL, strings.Fields(line)...)
		if code != exitOK || !strings.Contains(out, "owned") {
			t.Errorf("%s: got %d %q %s, want the names in it", line, code, out, bad)
		}
		for _, c := range out {
			if c != '\n' && !unicode.IsPrint(c) {
				t.Errorf("%s prints %q: %q", line, c, out)
				break
			}
		}
	}
}

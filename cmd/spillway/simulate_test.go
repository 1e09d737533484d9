package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/query/advise/policysim"
	"github.com/spillway-io/spillway/query/read"
)

func TestAHistoryThatIsCutSaysSo(t *testing.T) {
	submit := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	for name, complete := range map[string]bool{"all of it": true, "the newest are missing": false} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var answer any = read.Domains{}
				if r.URL.Path == "/v1/runs" {
					answer = read.Runs{Complete: complete, Runs: []read.Run{{Cluster: "c1", JobID: "1", Submit: submit, Start: submit, End: submit.Add(time.Hour), GPUs: 8}}}
				}
				_ = json.NewEncoder(w).Encode(answer)
			}))
			defer server.Close()
			cfg, stderr := policysim.DefaultConfig(), &strings.Builder{}
			c := &client{base: server.URL, output: "table", formats: []string{"table", "json"}}
			if err := historyOf(t.Context(), &cfg, c, time.Hour, stderr); err != nil {
				t.Fatal(err)
			}
			if told := strings.Contains(stderr.String(), "submitted after 2026-11-29T10:00:00Z are left out"); told == complete {
				t.Errorf("told %q", stderr)
			}
		})
	}
}

// TestBothSimulatorsAssumeTheSame: the simulated fleet and the simulator of policies may not import each other, and each has
// the mixes of jobs written out.
func TestBothSimulatorsAssumeTheSame(t *testing.T) {
	fleet := simulate.Mixes()
	for name, mix := range policysim.Mixes() {
		want := []policysim.Size{}
		for _, z := range fleet[name] {
			if !slices.Contains([]int{3, 5, 7}, z.GPUs) && z.GPUs <= 512 {
				want = append(want, policysim.Size{GPUs: z.GPUs, Share: z.Share, Mean: z.Mean.Seconds()})
			}
		}
		if diff := cmp.Diff(want, mix); diff != "" {
			t.Errorf("the mix %s of the fleet (-) and of policies (+):\n%s", name, diff)
		}
	}
}

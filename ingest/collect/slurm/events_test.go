package slurm

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/schemas/event"
)

const prologEnv = "SLURM_SCRIPT_CONTEXT=prolog_slurmd\x00SLURM_CLUSTER_NAME=nvl\x00SLURMD_NODENAME=n1\x00SLURM_JOB_ID=5\x00SLURM_JOB_GPUS=0,2\x00" +
	"SLURM_JOB_START_TIME=1795959500\x00SLURM_JOB_RESTART_COUNT=0\x00SLURM_JOB_USER=u\x00SLURM_JOB_COMMENT=two\nSLURM_JOB_GPUS=7"

func TestEventsEndpoint(t *testing.T) {
	restd := newFakeRestd(t)
	server := httptest.NewServer(restd)
	defer server.Close()
	cfg := restConfig(t, server.URL)
	cfg.Events = Events{Listen: "127.0.0.1:0", TokenFile: tokenFile(t, "post-token\n")}
	c := collector(t, cfg, Deps{Now: func() time.Time { return time.Unix(1795960000, 0) }})
	endpoint := httptest.NewServer(c.Handler())
	defer endpoint.Close()

	for name, c := range map[string]struct {
		method, token, body string
		status              int
		says                string
	}{
		"a prolog":                   {"POST", "post-token", prologEnv, 202, ""},
		"as JSON":                    {"POST", "post-token", `{"SLURM_SCRIPT_CONTEXT":"epilog_slurmd","SLURM_CLUSTER_NAME":"nvl","SLURMD_NODENAME":"n1","SLURM_JOB_ID":"5","SLURM_JOB_START_TIME":"1795959500"}`, 202, ""},
		"no token":                   {"POST", "", prologEnv, 401, "Authorization: Bearer"},
		"another token":              {"POST", "post-toke", prologEnv, 401, "Authorization: Bearer"},
		"reading":                    {"GET", "post-token", "", 405, ""},
		"no environment":             {"POST", "post-token", "", 400, "SLURM_SCRIPT_CONTEXT"},
		"an epilog without start":    {"POST", "post-token", strings.NewReplacer("prolog", "epilog", "SLURM_JOB_START_TIME", "X").Replace(prologEnv), 400, "SLURM_JOB_START_TIME"},
		"a node list that is broken": {"POST", "post-token", "SLURM_SCRIPT_CONTEXT=prolog_slurmctld\x00SLURM_CLUSTER_NAME=nvl\x00SLURM_JOB_ID=5\x00SLURM_JOB_NODELIST=n[1-", 400, "SLURM_JOB_NODELIST"},
		"far too much":               {"POST", "post-token", strings.Repeat("x", maxEvent+1), 413, "SLURM"},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), c.method, endpoint.URL+EventsPath, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if c.token != "" {
				req.Header.Set("Authorization", "Bearer "+c.token)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			said, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != c.status || !strings.Contains(string(said), c.says) {
				t.Errorf("%d %s", resp.StatusCode, said)
			}
		})
	}
	http.DefaultClient.CloseIdleConnections()

	out := &collecttest.Sink{}
	out.Refuse(1)
	defer runCollector(t, c, out)()
	var got []string
	out.Wait(t, "the two events", func(records []event.Record) bool {
		got = nil
		for _, r := range records {
			if p, ok := r.(*event.Placement); ok && p.Source == SourceProlog {
				got = append(got, fmt.Sprint(brief(p), " partial ", p.Partial))
			}
		}
		return len(got) == 2
	})
	want := []string{"5 RUNNING from 500 n1:0,2 partial true", "5 COMPLETING from 500 n1: partial true"}
	if strings.HasPrefix(got[0], "5 COMPLETING") { // the cases above are in no order
		got[0], got[1] = got[1], got[0]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAFullQueueDoesNotMakeScriptsWait(t *testing.T) {
	cfg := testConfig()
	c := collector(t, cfg, Deps{})
	for range maxQueued {
		c.events <- nil
	}
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, EventsPath, strings.NewReader(prologEnv)))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("answered %d", w.Code)
	}
}

func TestEventsListenOnAnAddressInUse(t *testing.T) {
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	cfg := testConfig()
	cfg.Events.Listen = strings.TrimPrefix(taken.URL, "http://")
	err := collector(t, cfg, Deps{}).Run(t.Context(), &collecttest.Sink{})
	if err == nil || !strings.Contains(err.Error(), "events.listen") {
		t.Errorf("got %v", err)
	}
}

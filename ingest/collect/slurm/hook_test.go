package slurm

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// runHook runs the script as slurmd does: with the job's environment and nothing else. It returns how long the job waited.
func runHook(t *testing.T, conf string, env ...string) time.Duration {
	t.Helper()
	path := put(t, "slurm-hook.conf", []byte(conf))
	cmd := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join("..", "..", "..", "deploy", "slurm", "spillway-hook.sh"))
	cmd.Env = append(env, "PATH=/usr/bin:/bin", "SPILLWAY_HOOK_CONF="+path)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("a prolog that fails drains the node: %v, %s", err, out)
	}
	return time.Since(began)
}

func TestHookScript(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("SPILLWAY_REQUIRE_SERVICES") == "1" {
			t.Fatal("curl is not installed")
		}
		t.Skip("curl is not installed; install it to test the prolog script")
	}
	job := []string{
		"SLURM_SCRIPT_CONTEXT=prolog_slurmd", "SLURM_CLUSTER_NAME=nvl", "SLURMD_NODENAME=n1", "SLURM_JOB_ID=5", "SLURM_JOB_GPUS=0,2",
		"SLURM_JOB_START_TIME=1795959500", "SLURM_JOB_COMMENT=first\nSLURM_JOB_GPUS=7\nSLURM_JOB_ID=6", "HOME=/root", "SECRET=x",
	}
	for name, url := range map[string]string{
		"it posts what the collector takes":         "SPILLWAY_URL='::'\nSPILLWAY_EVENTS_URL=",
		"it posts where settings name no other URL": "SPILLWAY_URL=",
	} {
		t.Run(name, func(t *testing.T) { posts(t, url, job) })
	}
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	for name, conf := range map[string]string{
		"no settings":                    "",
		"nobody listens":                 "SPILLWAY_URL=http://127.0.0.1:1/\n",
		"somebody listens and is silent": "SPILLWAY_URL=http://" + silent.Addr().String() + "/\nSPILLWAY_TIMEOUT=0.3\n",
		"an error is answered":           "SPILLWAY_URL=" + refusing.URL + "\n",
		"settings with a mistake":        "SPILLWAY_URL='\n",
		"a URL that is none":             "SPILLWAY_URL='::'\n",
	} {
		t.Run(name, func(t *testing.T) {
			if waited := runHook(t, conf, job...); waited > 2*time.Second {
				t.Errorf("the job waited %v", waited)
			}
		})
	}
}

// posts runs the script with a setting that begins as url says, against a collector.
func posts(t *testing.T, url string, job []string) {
	t.Helper()
	cfg := testConfig()
	cfg.Events = Events{Listen: "127.0.0.1:0", TokenFile: tokenFile(t, "post-token")}
	c := collector(t, cfg, Deps{})
	var body []byte
	var status int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		recorder := httptest.NewRecorder()
		c.Handler().ServeHTTP(recorder, r)
		status = recorder.Code
		w.WriteHeader(status)
	}))
	defer server.Close()
	headers := put(t, "headers", []byte("Authorization: Bearer post-token\n"))
	runHook(t, url+server.URL+EventsPath+"\nSPILLWAY_HEADERS="+headers+"\n", job...)
	if status != http.StatusAccepted || strings.Contains(string(body), "SECRET") {
		t.Fatalf("status %d for %q", status, body)
	}
	if got := brief(<-c.events); got != "5 RUNNING from 500 n1:0,2" {
		t.Errorf("the record is %q", got)
	}
}

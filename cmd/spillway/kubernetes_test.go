package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect"
)

const kubeData = "../../ingest/collect/kube/testdata/"

// kubeLists are what a real API server listed at one moment.
func kubeLists(moment string) (out []string) {
	for _, kind := range []string{"nodes", "pods", "workloads", "resourceclaims", "resourceslices", "computedomains", "computedomaincliques"} {
		out = append(out, kubeData+moment+"-"+kind+".json.gz")
	}
	return out
}

// TestReplayOfKubernetes: a recorded API server, through the whole flow, gets the verdicts that another program worked out
// from where the pods were.
func TestReplayOfKubernetes(t *testing.T) {
	want := map[string]string{
		"team-pretrain/llm-pretrain":               "one_partition 64 required partition: true",
		"team-posttrain/rlhf":                      "spill 68 preferred partition: false",
		"team-infer/moe-serve":                     "one_partition 2 unconstrained",
		"team-infer/embed-dra-0":                   "one_partition 1",
		"hpc-verification/hpc-verification-a18-x7": "one_partition 1",
	}
	t.Run("at one moment", func(t *testing.T) {
		got := kubeOutcomes(t, kubeLists("s1")...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
	t.Run("and at the next", func(t *testing.T) {
		got := kubeOutcomes(t, append(kubeLists("s1"), kubeLists("s2")...)...)
		want := maps.Clone(want)
		want["team-posttrain/eval-batch"] = "one_domain 12"
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
	t.Run("without a name of the cluster", func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		if code := run(context.Background(), append([]string{"replay"}, kubeLists("s1")...), &stdout, &stderr); code == exitOK || !strings.Contains(stderr.String(), "--cluster") {
			t.Errorf("exit code %d: %s", code, stderr.String())
		}
	})
}

// kubeOutcomes says of each job the outcome of its newest placement, its GPUs, and what it asked for, if that was kept.
func kubeOutcomes(t *testing.T, files ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, o := range replayed(t, append([]string{"--cluster", "k"}, files...)...) {
		if o.Scheduler != "kubernetes" || o.Outcome == nil || o.GPUs == nil {
			t.Errorf("%+v", o)
			continue
		}
		s := *o.Outcome + " " + cellUint(o.GPUs)
		if o.Intent != nil && *o.Intent != "none" && *o.Intent != "" {
			s += " " + *o.Intent
			if o.IntentMet != nil {
				s += ": " + cellBool(*o.IntentMet)
			}
		}
		out[o.JobID] = s
	}
	return out
}

func cellBool(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// TestTheKubernetesCollectorMayOnlyRead: the role in the manifest lets it get, list and watch, and covers what it asks for.
func TestTheKubernetesCollectorMayOnlyRead(t *testing.T) {
	parsed, err := parser.ParseFile(top+"/deploy/k8s/collect.yaml", 0)
	if err != nil {
		t.Fatal(err)
	}
	may := map[string]bool{}
	for _, document := range parsed.Docs {
		var object struct {
			Kind  string
			Rules []struct {
				APIGroups []string `yaml:"apiGroups"`
				Resources []string
				Verbs     []string
			}
		}
		if err := yaml.NodeToValue(document.Body, &object); err != nil || object.Kind != "ClusterRole" {
			continue
		}
		for _, r := range object.Rules {
			if diff := cmp.Diff([]string{"get", "list", "watch"}, r.Verbs); diff != "" {
				t.Errorf("verbs (-want +got):\n%s", diff)
			}
			for _, resource := range r.Resources {
				may[strings.TrimPrefix(r.APIGroups[0]+"/"+resource, "/")] = true
			}
		}
	}
	asked := kubeQuestions(t)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(may)), asked); diff != "" {
		t.Errorf("what it may (-) and what it asks for (+):\n%s", diff)
	}
}

// kubeQuestions are the kinds that the collector lists of a server that has all of them.
func kubeQuestions(t *testing.T) []string {
	asked := make(chan string, 100)
	have := map[string]string{
		"kueue.x-k8s.io/v1beta2": "workloads", "resource.k8s.io/v1": "resourceclaims resourceslices", "resource.nvidia.com/v1beta1": "computedomains computedomaincliques",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/apis")
		switch group := strings.TrimPrefix(path, "/"); {
		case path == "":
			var groups []map[string]any
			for _, gv := range slices.Sorted(maps.Keys(have)) {
				name, version, _ := strings.Cut(gv, "/")
				groups = append(groups, map[string]any{"name": name, "versions": []any{map[string]any{"version": version}}})
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"groups": groups})
		case have[group] != "":
			var list []map[string]any
			for _, name := range strings.Fields(have[group]) {
				list = append(list, map[string]any{"name": name})
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"resources": list})
		default:
			select {
			case asked <- strings.TrimPrefix(r.URL.Path, "/api/v1/"):
			default:
			}
			http.Error(w, `{"kind":"Status","code":403}`, http.StatusForbidden)
		}
	}))
	defer server.Close()
	token := t.TempDir() + "/token"
	if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := defaultSettings()
	s.Collect.Kubernetes.Cluster, s.Collect.Kubernetes.API, s.Collect.Kubernetes.TokenFile = "k", server.URL, token
	c, err := collectors()["kubernetes"].build(&s, collectorDeps{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, collect.Emitter(&gathered{})) }()
	kinds := map[string]bool{}
	for len(kinds) < 7 {
		path := strings.Split(strings.TrimPrefix(<-asked, "/apis/"), "/")
		if len(path) == 3 { // group, version, kind
			path = []string{path[0], path[2]}
		}
		kinds[strings.Join(path, "/")] = true
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return slices.Sorted(maps.Keys(kinds))
}

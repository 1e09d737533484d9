package kube

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestRecognize(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"a list of a server":             {`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`, true},
		"a list of a kind not used":      {`{"kind":"EventList","apiVersion":"v1","metadata":{},"items":[]}`, true},
		"a list of kubectl":              {`{"apiVersion":"v1","items":[{"kind":"Node"}],"kind":"List","metadata":{"resourceVersion":""}}`, true},
		"an event of a watch":            {`{"type":"ADDED","object":{"kind":"Pod"}}`, true},
		"one object":                     {`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}`, false},
		"jobs of Slurm":                  {`{"jobs":[{"job_id":1}],"meta":{}}`, false},
		"a topology":                     {`{"instances":[{"id":"a"}]}`, false},
		"something else that has a type": {`{"type":"block","object":{}}`, false},
		"text":                           {`n1,rack1`, false},
		"nothing":                        {``, false},
		"half a list":                    {`{"kind":"PodList","apiV`, false},
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Recognize(path); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, path := range []string{"s1-pods.json.gz", "watch-computedomains.ndjson.gz", "410-watch.ndjson"} {
		if got, err := Recognize(filepath.Join("testdata", path)); err != nil || !got {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	if _, err := Recognize("testdata/none"); err == nil {
		t.Error("a file that is not there was recognized")
	}
}

// TestAListOfKubectl: objects of several kinds in one list, each with its own, are what the server's lists are.
func TestAListOfKubectl(t *testing.T) {
	var items []json.RawMessage
	for _, k := range []string{"Node", "Pod", "Workload"} {
		var doc struct{ Items []map[string]any }
		if err := json.Unmarshal(recorded(t, "s1-"+strings.ToLower(k)+"s.json.gz"), &doc); err != nil {
			t.Fatal(err)
		}
		for _, item := range doc.Items {
			item["kind"] = k
			raw, err := json.Marshal(item)
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, raw)
		}
	}
	items = append(items, json.RawMessage(`{"kind":"Event","metadata":{"name":"e"}}`))
	path := filepath.Join(t.TempDir(), "cluster-20261129T143200Z.json")
	whole, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	var out keep
	if err := ReplayFiles(t.Context(), []string{path}, ReplayOptions{Config: testConfig()}, &out); err != nil {
		t.Fatal(err)
	}
	got, _ := stateOf(out.records)
	want, _ := stateOf(replayed(t, moment("s1")[:3]...))
	if diff := cmp.Diff(want.jobs, got.jobs); diff != "" {
		t.Errorf("-server +kubectl:\n%s", diff)
	}
	if at := collecttest.Placements(out.records)[0].ObservedAtMs; at != 1795962720000 {
		t.Errorf("the time in the name of the file is %d", at)
	}
}

func TestAReplayIsTheSameEachTime(t *testing.T) {
	files := append(moment("s1"), "watch-pods.ndjson.gz", "watch-workloads.ndjson.gz", "watch-computedomains.ndjson.gz")
	if diff := cmp.Diff(collecttest.Lines(t, replayed(t, files...)), collecttest.Lines(t, replayed(t, files...))); diff != "" {
		t.Errorf("-first +second:\n%s", diff)
	}
}

// TestWhatCannotBeReplayed: the error names the file, or what is missing.
func TestWhatCannotBeReplayed(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	whole := string(recorded(t, "s1-workloads.json.gz"))
	for name, c := range map[string]struct {
		path, cluster, says string
	}{
		"no name of the cluster": {"testdata/s1-pods.json.gz", "", "--cluster"},
		"half a list":            {file(whole[:len(whole)/2]), "k", "file.json"},
		"half an event":          {file(`{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"p"}}}` + "\n" + `{"type":"MODIF`), "k", "event 2"},
		"a list of nothing used": {file(`{"kind":"EventList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`), "k", "none of the lists"},
		"something else":         {file(`{"jobs":[]}`), "k", "kubectl get -o json"},
		"a file that is not":     {"testdata/none", "k", "testdata/none"},
	} {
		cfg := testConfig()
		cfg.Cluster = c.cluster
		var out keep
		err := ReplayFiles(t.Context(), []string{c.path}, ReplayOptions{Config: cfg}, &out)
		if err == nil || !strings.Contains(err.Error(), c.says) || len(out.records) > 0 {
			t.Errorf("%s: %d records, %v", name, len(out.records), err)
		}
	}
	if err := ReplayFiles(t.Context(), nil, ReplayOptions{Config: DefaultConfig()}, &keep{}); err != nil {
		t.Errorf("no files: %v", err)
	}
}

// TestARecordingOfACutWatch: its error is no failure of the replay.
func TestARecordingOfACutWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods.ndjson")
	text := `{"type":"ADDED","object":{"kind":"Pod",` + strings.TrimPrefix(podOf("a", "", "n1", 5, running()), "{") + "}\n" + string(recorded(t, "410-watch.ndjson"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out keep
	if err := ReplayFiles(t.Context(), []string{path}, ReplayOptions{Config: testConfig()}, &out); err != nil {
		t.Fatal(err)
	}
	if p := collecttest.Placements(out.records); len(p) != 1 || p[0].State != event.State_RUNNING {
		t.Errorf("%v", p)
	}
}

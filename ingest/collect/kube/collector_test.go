package kube

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

// small fills a server with one object of each kind.
func small(s *server) {
	for i := 1; i <= 3; i++ {
		s.put(kindNodes, nodeOf(fmt.Sprintf("n%d", i), ""))
	}
	s.put(kindPods, podOf("a", "", "n1", 5, running()))
	s.put(kindWorkloads, workloadJSON(conditionJSON("QuotaReserved", "False", "WaitingForQuota", 1), "", 0))
	s.put(kindDomains, `{"metadata":{"namespace":"ns","name":"d","uid":"du"},"status":{"status":"Ready","nodes":[{"name":"n1","cliqueID":"a.1"}]}}`)
	s.put(kindSlices, sliceOf("s", "n1", "1", "gpu-0", "gpu-1", "gpu-2", "gpu-3"))
}

var fullState = []string{
	event.TopicNode + " k/n1", event.TopicNode + " k/n2", event.TopicNode + " k/n3", event.TopicMembership + " k/n1", event.TopicMembership + " k/n2",
	event.TopicPlacement + " k/ns/a", event.TopicPlacement + " k/ns/j", event.TopicDomain + " k/du",
}

func TestConformance(t *testing.T) {
	s := newServer(t)
	small(s)
	pods := 0
	collecttest.Run(t, collecttest.Source{
		New:     func(t *testing.T) collect.Collector { return collectorOf(t, s, nil) },
		Cluster: "k",
		Full:    fullState,
		Change: func(*testing.T) []string {
			pods++
			name := fmt.Sprintf("new%d", pods)
			s.put(kindPods, podOf(name, "", "n2", 9, running()))
			return []string{event.TopicPlacement + " k/ns/" + name}
		},
		Break: func(*testing.T) {
			s.set(func() { s.broken = true })
			s.cutWatches()
		},
		Mend: func(*testing.T) { s.set(func() { s.broken = false }) },
	})
}

// placed says whether a job was last told in a state.
func placed(records []event.Record, job string, state event.State) bool {
	var last *event.Placement
	for _, p := range collecttest.Placements(records) {
		if p.JobId == job {
			last = p
		}
	}
	return last != nil && last.State == state
}

// lastSource is the newest source record, nil for none.
func lastSource(records []event.Record) (last *event.Source) {
	for _, r := range records {
		if s, ok := r.(*event.Source); ok {
			last = s
		}
	}
	return last
}

func good(records []event.Record) bool {
	s := lastSource(records)
	return s != nil && s.Problem == "" && s.GoodAtMs != nil
}

func full(records []event.Record) bool {
	for _, key := range fullState {
		if !slices.ContainsFunc(records, func(r event.Record) bool { return collecttest.Key(r) == key }) {
			return false
		}
	}
	return good(records)
}

// TestAServerOnEtcd34: it cannot begin a watch with all there is, so it is asked for lists, page by page.
func TestAServerOnEtcd34(t *testing.T) {
	s := newServer(t)
	s.set(func() { s.noWatchList = true })
	small(s)
	for i := range 2 * listPage {
		s.put(kindNodes, nodeOf(fmt.Sprintf("m%04d", i), ""))
	}
	out := &collecttest.Sink{}
	start(t, collectorOf(t, s, nil), out)
	out.Wait(t, "the full state", full)
	nodes := map[string]bool{}
	for _, r := range out.Records() {
		if n, ok := r.(*event.Node); ok {
			nodes[n.Node] = true
		}
	}
	if len(nodes) != 2*listPage+3 {
		t.Errorf("%d nodes", len(nodes))
	}
	if n := s.questions("limit=500"); n != 3+len(paths)-1 {
		t.Errorf("all was listed in %d pages, of which nodes have three", n)
	}
	s.put(kindPods, podOf("late", "", "n2", 9, running()))
	out.Wait(t, "a change", func(r []event.Record) bool { return placed(r, "ns/late", event.State_RUNNING) })
}

// TestAWatchThatIsCutGoesOn: from the last bookmark, without a new list and without telling anything twice.
func TestAWatchThatIsCutGoesOn(t *testing.T) {
	s := newServer(t)
	small(s)
	out := &collecttest.Sink{}
	start(t, collectorOf(t, s, nil), out)
	out.Wait(t, "the full state", full)
	s.bookmark()
	marked := 0
	s.set(func() { marked = s.version })
	told := len(collecttest.Placements(out.Records()))
	lists := s.questions("sendInitialEvents")
	s.cutWatches()
	testenv.Until(t, "every kind goes on from the bookmark", func() (all bool) {
		s.set(func() {
			n := 0
			for _, v := range s.from {
				if v == fmt.Sprint(marked) {
					n++
				}
			}
			all = n >= len(paths)
		})
		return all
	})
	s.remove(kindPods, podOf("a", "", "n1", 5, endedAt("Succeeded", 9)))
	out.Wait(t, "the end of the pod", func(r []event.Record) bool { return placed(r, "ns/a", event.State_COMPLETED) })
	if n := s.questions("sendInitialEvents"); n != lists {
		t.Errorf("all was listed again: %d times after %d", n, lists)
	}
	if n := len(collecttest.Placements(out.Records())); n != told+1 {
		t.Errorf("%d placements where %d were known and one changed", n, told)
	}
}

// TestAServerThatForgot: what went while the watch was cut is found by a new list, and ended between then and now.
func TestAServerThatForgot(t *testing.T) {
	s := newServer(t)
	small(s)
	out := &collecttest.Sink{}
	start(t, collectorOf(t, s, nil), out)
	out.Wait(t, "the full state", full)
	s.set(func() { s.busy[paths[kindPods]] = 1 << 20 }) // while it starts again
	s.cutWatches()
	testenv.Until(t, "a question that is not answered", func() (asked bool) {
		s.set(func() { asked = s.busy[paths[kindPods]] < 1<<20 })
		return asked
	})
	s.set(func() { delete(s.objects[paths[kindPods]], "ns/a") })
	s.put(kindPods, podOf("c", "", "n2", 9, running()))
	s.forget()
	s.put(kindNodes, nodeOf("n4", ""))
	s.set(func() { s.busy[paths[kindPods]] = 2 })
	out.Wait(t, "what is there now", func(r []event.Record) bool {
		return placed(r, "ns/c", event.State_RUNNING) && placed(r, "ns/a", event.State_VANISHED)
	})
	out.Wait(t, "a good report", good)
	for _, p := range collecttest.Placements(out.Records()) {
		if p.JobId == "ns/a" && p.State == event.State_VANISHED && (p.EndEarliestMs == nil || *p.EndEarliestMs > *p.EndMs) {
			t.Errorf("it ended %v..%v", p.EndEarliestMs, p.EndMs)
		}
	}
}

// TestAServerThatStarts: a kind whose storage is not ready yet answers 429, and nothing is told before it is read.
func TestAServerThatStarts(t *testing.T) {
	s := newServer(t)
	small(s)
	s.set(func() { s.busy[paths[kindWorkloads]] = 4 })
	out := &collecttest.Sink{}
	start(t, collectorOf(t, s, nil), out)
	out.Wait(t, "the full state", full)
	for i, r := range out.Records() {
		if src, ok := r.(*event.Source); ok && src.Problem != "" && !strings.Contains(src.Problem, "(re)initializing") {
			t.Errorf("record %d: %s", i, src.Problem)
		}
	}
}

// TestWhatTheServerLacks: without Kueue, DRA and ComputeDomains, pods and nodes are told.
func TestWhatTheServerLacks(t *testing.T) {
	s := newServer(t)
	s.set(func() {
		s.absent["kueue.x-k8s.io"], s.absent["resource.k8s.io"], s.absent["resource.nvidia.com"] = true, true, true
	})
	small(s)
	out := &collecttest.Sink{}
	start(t, collectorOf(t, s, nil), out)
	out.Wait(t, "the pod", func(r []event.Record) bool { return placed(r, "ns/a", event.State_RUNNING) && good(r) })
	if s.questions("workloads")+s.questions("resourceclaims")+s.questions("computedomains") > 0 {
		t.Error("it was asked for what it does not have")
	}
}

// TestWhatMayNotBeRead: nothing is told in part, and the problem says what is missing.
func TestWhatMayNotBeRead(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	defer page.Close()
	for name, c := range map[string]struct {
		break_ func(*server, *Config)
		says   string
	}{
		"a role that lacks a kind":  {func(s *server, _ *Config) { s.refuse[paths[kindPods]] = "pods is forbidden" }, "needs the verbs get, list and watch on pods"},
		"a token that is not taken": {func(_ *server, c *Config) { c.TokenFile = "testdata/429-body.json" }, "token_file"},
		"no token":                  {func(_ *server, c *Config) { c.TokenFile = "testdata/none" }, "token_file"},
		"no server":                 {func(_ *server, c *Config) { c.API = "http://127.0.0.1:1" }, "127.0.0.1:1"},
		"something else":            {func(_ *server, c *Config) { c.API = page.URL }, "read the answer"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			small(s)
			out := &collecttest.Sink{}
			start(t, collectorOf(t, s, func(cfg *Config) { s.set(func() { c.break_(s, cfg) }) }), out)
			out.Wait(t, "a report of it", func(r []event.Record) bool {
				src := lastSource(r)
				return src != nil && strings.Contains(src.Problem, c.says)
			})
			for _, r := range out.Records() {
				if src, ok := r.(*event.Source); !ok || src.GoodAtMs != nil || len(src.Told) > 0 {
					t.Errorf("told: %v", r)
				}
			}
		})
	}
}

// TestAListThatIsSuddenlyEmpty is believed only when it is said several times.
func TestAListThatIsSuddenlyEmpty(t *testing.T) {
	s := newServer(t)
	small(s)
	out := &collecttest.Sink{}
	start(t, collectorOf(t, s, nil), out)
	out.Wait(t, "the full state", full)
	lists := s.questions(paths[kindPods] + "?allowWatchBookmarks")
	s.set(func() { s.objects[paths[kindPods]] = map[string]string{} })
	s.forget()
	s.put(kindNodes, nodeOf("n4", "")) // so that no watch goes on
	s.cutWatches()
	out.Wait(t, "its end", func(r []event.Record) bool { return placed(r, "ns/a", event.State_VANISHED) })
	if n := s.questions(paths[kindPods]+"?allowWatchBookmarks") - lists; n < emptyLists {
		t.Errorf("it was believed after %d questions", n)
	}
	if !slices.ContainsFunc(out.Records(), func(r event.Record) bool {
		src, ok := r.(*event.Source)
		return ok && strings.Contains(src.Problem, "lists none of pods")
	}) {
		t.Error("nothing was said of it")
	}
}

// TestSourceRecordsSaySinceWhenAllIsTold: what ended while no collector ran ends by this.
func TestSourceRecordsSaySinceWhenAllIsTold(t *testing.T) {
	s := newServer(t)
	small(s)
	out := &collecttest.Sink{}
	begun := time.Now().UnixMilli()
	start(t, collectorOf(t, s, nil), out)
	out.Wait(t, "the full state", full)
	told := map[string]bool{}
	for _, x := range lastSource(out.Records()).Told {
		told[x.Source] = x.SinceMs >= begun && x.GoodAtMs >= x.SinceMs
	}
	want := map[string]bool{SourcePods: true, SourceNodes: true, event.SourceGFDLabel: true, event.SourceCloudLabel: true, event.SourceComputeDomain: true}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s.put(kindPods, `{"metadata":{"namespace":"ns","name":"bad","uid":"bad"},"spec":{"nodeName":7}}`)
	next := &collecttest.Sink{}
	start(t, collectorOf(t, s, nil), next)
	next.Wait(t, "the full state", full)
	for _, x := range lastSource(next.Records()).Told {
		if x.Source == SourcePods {
			t.Error("it is said that all pods were told, and one cannot be read")
		}
	}
}

func TestMetricsOfTheSource(t *testing.T) {
	reg := prometheus.NewRegistry()
	cfg := testConfig()
	if _, err := New(cfg, Deps{Registerer: reg}); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil || len(families) == 0 {
		t.Errorf("%d families, %v", len(families), err)
	}
}

func TestDefaultsAreGoodButForTheCluster(t *testing.T) {
	cfg := DefaultConfig()
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "cluster") {
		t.Errorf("%v", err)
	}
	cfg.Cluster = "k"
	written, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var read Config
	if err := yaml.UnmarshalWithOptions(written, &read, yaml.Strict()); err != nil {
		t.Fatalf("%v in\n%s", err, written)
	}
	if diff := cmp.Diff(cfg.Labels, read.Labels); diff != "" || read.Validate() != nil || *read.Probes[0].PriorityBelow != 0 {
		t.Errorf("read back %+v: %s", read, diff)
	}
}

func TestConfigurationFiles(t *testing.T) {
	for name, c := range map[string]struct{ yaml, says string }{
		"everything set": {`
api: https://10.96.0.1
token_file: /t
ca_file: /c
interval: 30s
kueue: false
gpus: [nvidia.com/gpu, amd.com/gpu]
labels: {domain: [acme.example/rack], leaf: [acme.example/leaf]}
levels: {acme.example/row: spine}
taints: [node.kubernetes.io/*]
service_classes: [{class: training, users: [team-*]}]
probes: [{names: [verify-*]}, {labels: {purpose: verification}}, {priority_below: -100}]
preemptible: [{qos: [low]}]
`, ""},
		"a key that is not known":    {`intervall: 30s`, "intervall"},
		"no waiting at all":          {`interval: 0s`, "interval: 0s is not a time to wait"},
		"an address that is none":    {`api: 10.96.0.1`, "https://10.96.0.1"},
		"a cluster with a slash":     {`cluster: a/b`, "slash"},
		"no GPUs":                    {`gpus: []`, "gpus"},
		"a level that is none":       {`labels: {row: [a]}`, "labels.row"},
		"a label for no level":       {`levels: {a: row}`, `"row"`},
		"a class without a name":     {`service_classes: [{users: [a]}]`, "service_classes[0].class"},
		"a probe rule for all":       {`probes: [{}]`, "probes[0]"},
		"a preemptible rule for all": {`preemptible: [{}]`, "preemptible[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Cluster = "k"
			err := yaml.UnmarshalWithOptions([]byte(c.yaml), &cfg, yaml.Strict())
			if err == nil {
				err = cfg.Validate()
			}
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("got %v, want it to say %q", err, c.says)
			}
		})
	}
	if _, err := New(DefaultConfig(), Deps{}); err == nil {
		t.Error("a configuration without a cluster was taken")
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

const prometheusDir = "../../deploy/prometheus"

// rule is what these tests read of a rule file.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alertRules(t *testing.T) (out []rule) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(prometheusDir, "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) < 10 {
		t.Fatalf("read %d rules: the file's layout changed", len(out))
	}
	return out
}

func TestAlertsPassTheirOwnChecks(t *testing.T) {
	for name, args := range map[string][]string{
		"the rules are valid":             {"promtool", "check", "rules", "alerts.yml"},
		"each rule fires when it should":  {"promtool", "test", "rules", "alerts_test.yml"},
		"the scrape configuration":        {"promtool", "check", "config", "prometheus.yml"},
		"the routing to people and pages": {"amtool", "check-config", "alertmanager.yml"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), testenv.Binary(t, args[0]), args[1:]...)
			cmd.Dir = prometheusDir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestReceiverComesFromAFile makes Alertmanager's configuration as receiver.sh does for a site, and lets amtool read it.
func TestReceiverComesFromAFile(t *testing.T) {
	amtool := testenv.Binary(t, "amtool")
	for name, test := range map[string]struct{ file, url, says string }{
		"an address":                {"https://hooks.example.com/x?a=1&b=%20#c\n", "https://hooks.example.com/x?a=1&b=%20#c", ""},
		"an address with a port":    {"http://[::1]:9099/alerts", "http://[::1]:9099/alerts", ""},
		"no file: sent to nobody":   {"", "", "alerts are sent to nobody"},
		"what would end the quotes": {"http://x/'\n- url: http://y", "refused", "does not hold one address"},
		"what the shell would run":  {"http://x/$(reboot)|", "refused", "does not hold one address"},
		"no address of the web":     {"file:///etc/passwd", "refused", "does not hold one address"},
		"two words":                 {"http://x and more", "refused", "does not hold one address"},
		"two addresses":             {"http://x\nhttp://y", "refused", "does not hold one address"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source, made := filepath.Join(dir, "webhook_url"), filepath.Join(dir, "alertmanager.yml")
			if test.file != "" {
				if err := os.WriteFile(source, []byte(test.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var errs bytes.Buffer
			cmd := exec.CommandContext(t.Context(), filepath.Join(prometheusDir, "receiver.sh"), source)
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if !strings.Contains(errs.String(), test.says) || (err != nil) != (test.url == "refused") {
				t.Fatalf("got %v and %q, want %q", err, errs.String(), test.says)
			}
			if test.url == "refused" {
				if len(out) > 0 {
					t.Errorf("wrote %d bytes all the same", len(out))
				}
				return
			}
			if err := os.WriteFile(made, out, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"check-config", made}, {"config", "routes", "test", "--config.file=" + made, "--verify.receivers=team", "severity=critical", "cluster=a"}} {
				if out, err := exec.CommandContext(t.Context(), amtool, args...).CombinedOutput(); err != nil {
					t.Errorf("amtool %v: %v\n%s", args, err, out)
				}
			}
			var file struct {
				Receivers []struct {
					Name  string `yaml:"name"`
					Hooks []struct {
						URL string `yaml:"url"`
					} `yaml:"webhook_configs"`
				} `yaml:"receivers"`
			}
			if err := yaml.Unmarshal(out, &file); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, hook := range file.Receivers[0].Hooks {
				got += hook.URL
			}
			if got != test.url || len(file.Receivers) != 1 {
				t.Errorf("the receiver is %q, want %q", got, test.url)
			}
		})
	}
}

func TestEveryAlertHasARunbookHeadingATestAndAPage(t *testing.T) {
	runbook, err := os.ReadFile("../../deploy/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(filepath.Join(prometheusDir, "alerts_test.yml"))
	if err != nil {
		t.Fatal(err)
	}
	headings := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(runbook), -1) {
		headings[m[1]] = false
	}
	for _, r := range alertRules(t) {
		if _, ok := headings[r.Alert]; !ok {
			t.Errorf("%s has no heading in deploy/runbook.md", r.Alert)
		}
		headings[r.Alert] = true
		if want := "#" + strings.ToLower(r.Alert); !strings.HasSuffix(r.Annotations["runbook_url"], want) {
			t.Errorf("%s: runbook_url %q does not end in %s", r.Alert, r.Annotations["runbook_url"], want)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
		if !strings.Contains(string(tests), "alertname: "+r.Alert+"\n") {
			t.Errorf("%s fires in no case of alerts_test.yml", r.Alert)
		}
		for _, key := range []string{"summary", "description", "page"} {
			if r.Annotations[key] == "" {
				t.Errorf("%s has no %s", r.Alert, key)
			}
		}
	}
	for name, used := range headings {
		if !used {
			t.Errorf("deploy/runbook.md has the heading %s and no alert of that name", name)
		}
	}
}

// webhook is the receiver at the end of Alertmanager.
type webhook struct {
	mu    sync.Mutex
	posts []notification
}

type notification struct {
	at       time.Time
	GroupKey string `json:"groupKey"`
	Status   string `json:"status"`
	Alerts   []struct {
		Status      string            `json:"status"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"alerts"`
}

func (w *webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	n := notification{at: time.Now()}
	if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.posts = append(w.posts, n)
}

// about gives the notifications that hold an alert of a name and status.
func (w *webhook) about(name, status string) (out []notification) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.posts {
		for _, a := range n.Alerts {
			if a.Labels["alertname"] == name && a.Status == status {
				out = append(out, n)
				break
			}
		}
	}
	return out
}

// program runs a real one until the test ends.
func program(t *testing.T, name string, args ...string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.CommandContext(context.Background(), testenv.Binary(t, name), args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, log.String())
		}
	})
}

// freeAddress is one that nobody listens on, for a program that has to be told its port. The port is below those that
// the kernel gives to connections: one of them could have taken it before the program does.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(20_000))
		if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no port between 10000 and 30000 is free")
	return ""
}

// configured writes a shipped configuration with addresses of the test's own in place of the shipped ones.
func configured(t *testing.T, dir, name string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(prometheusDir, name))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(string(text), replace[i]) {
			t.Fatalf("%s does not hold %q", name, replace[i])
		}
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(strings.NewReplacer(replace...).Replace(string(text))), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	return string(body)
}

// activeAlert is what Alertmanager says of one of its alerts.
type activeAlert struct {
	Fingerprint string            `json:"fingerprint"`
	Labels      map[string]string `json:"labels"`
	Status      struct {
		State       string   `json:"state"`
		InhibitedBy []string `json:"inhibitedBy"`
	} `json:"status"`
}

// alertsAt gives the alerts of a name that Alertmanager has, by account.
func alertsAt(t *testing.T, alertmanager, name string) map[string]activeAlert {
	t.Helper()
	var list []activeAlert
	if err := json.Unmarshal([]byte(fetch(t, "http://"+alertmanager+"/api/v2/alerts?filter=alertname%3D"+name)), &list); err != nil {
		return nil // it does not answer yet
	}
	out := map[string]activeAlert{}
	for _, a := range list {
		out[a.Labels["account"]] = a
	}
	return out
}

// TestSpillReachesAPerson sends jobs that break their contract through the real stages, scrapes them with the real
// Prometheus under the shipped rules and intervals, and waits for the real Alertmanager to call a web hook, first with
// the alert and, when the jobs are gone, with its end. Only group_interval is shortened, which has no part in the first
// notification.
func TestSpillReachesAPerson(t *testing.T) {
	t.Parallel() // it mostly waits for the intervals of Prometheus
	testenv.Binary(t, "prometheus")
	testenv.Binary(t, "prometheus-alertmanager")
	s := defaultSettings()
	s.API.Listen = "127.0.0.1:0"
	f := running(t, &s, stages{load: true, enrich: true, serve: true})
	ctx := t.Context()

	hook := &webhook{}
	receiver := httptest.NewServer(hook)
	t.Cleanup(receiver.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	dir, spillway, prometheus, alertmanager := t.TempDir(), f.server.Addr(), freeAddress(t), freeAddress(t)
	program(t, "prometheus-alertmanager", "--config.file="+configured(t, dir, "alertmanager.yml",
		"http://127.0.0.1:9099/alerts", receiver.URL, "group_interval: 1m", "group_interval: 5s"),
		"--storage.path="+filepath.Join(dir, "am"), "--web.listen-address="+alertmanager, "--cluster.listen-address=")
	configured(t, dir, "alerts.yml")
	program(t, "prometheus", "--config.file="+configured(t, dir, "prometheus.yml",
		"[spillway:8470]", "["+spillway+"]", "[alertmanager:9093]", "["+alertmanager+"]", "[127.0.0.1:9090]", "["+prometheus+"]"),
		"--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+prometheus)

	// Two racks, known well before the first job.
	hardware := simulate.Hardware(1, 2, time.Now().Add(-time.Hour))
	racks := map[string][]string{}
	cluster := ""
	for _, r := range hardware {
		if m, ok := r.(*event.Membership); ok {
			cluster = m.GetCluster()
			uuid := m.GetGpus()[0].GetClusterUuid()
			racks[uuid] = append(racks[uuid], m.GetNode())
		}
	}
	if len(racks) != 2 {
		t.Fatalf("the fleet has %d racks, want 2", len(racks))
	}
	emit := func(records ...event.Record) {
		t.Helper()
		if err := f.producer.Emit(ctx, records...); err != nil {
			t.Fatal(err)
		}
	}
	good, every := time.Now().UnixMilli(), uint32(600_000)
	emit(append(hardware, &event.Source{Cluster: cluster, Source: "simulate", GoodAtMs: &good, IntervalMs: &every, ObservedAtMs: good})...)
	var first, second []string
	for _, nodes := range racks {
		if first == nil {
			first = nodes
		} else {
			second = nodes
		}
	}
	// A job of one GPU on each of two nodes in different racks, which it must not be.
	job := func(i int, state event.State) event.Record {
		now := time.Now()
		one, two, at := uint32(1), uint32(2), now.UnixMilli()
		started := now.Add(-time.Second).UnixMilli()
		p := &event.Placement{
			Cluster: cluster, Scheduler: "slurm", JobId: fmt.Sprint(1000 + i), RunId: fmt.Sprint("run", i), Name: "train", User: "ada",
			Account: fmt.Sprintf("team%02d", i), Queue: "gpu", ServiceClass: "training", State: state, StateRaw: state.String(),
			StartMs: &started, RequestedGpus: &two, Gpus: &two, Intent: &event.Intent{Mode: event.Intent_REQUIRED, Level: "domain"},
			Source: "simulate", ObservedAtMs: at, Revision: event.Revision(now),
		}
		if state.Ended() {
			p.EndMs = &at
		}
		for _, node := range []string{first[i%18], second[i%18]} {
			p.Placements = append(p.Placements, &event.NodePlacement{Node: node, Gpus: &one, GpuIndex: []uint32{uint32(i / 18 % 4)}})
		}
		return p
	}
	metrics := "http://" + spillway + "/metrics"
	testenv.Eventually(t, patience, func() error {
		if text := fetch(t, metrics); !strings.Contains(text, "spillway_cluster_gpus{") {
			return fmt.Errorf("the fleet's capacity is not on /metrics")
		}
		if text := fetch(t, "http://"+prometheus+"/api/v1/query?query=up%7Bjob%3D%22spillway%22%7D==1"); !strings.Contains(text, `"spillway"`) {
			return fmt.Errorf("prometheus has not scraped yet: %s", text)
		}
		return nil
	})

	const jobs = 40
	begin := time.Now()
	var all, over []event.Record
	for i := range jobs {
		all = append(all, job(i, event.State_RUNNING))
	}
	emit(all...)
	testenv.Eventually(t, patience, func() error {
		if !strings.Contains(fetch(t, metrics), "spillway_required_level_violations{") {
			return fmt.Errorf("no violation on /metrics")
		}
		return nil
	})
	toMetric := time.Since(begin)
	testenv.Eventually(t, patience, func() error {
		if !strings.Contains(fetch(t, "http://"+prometheus+"/api/v1/alerts"), "RequiredLevelViolated") {
			return fmt.Errorf("prometheus does not fire")
		}
		return nil
	})
	toFiring := time.Since(begin)
	testenv.Eventually(t, patience, func() error {
		if len(hook.about("RequiredLevelViolated", "firing")) == 0 {
			return fmt.Errorf("the web hook has not been called")
		}
		return nil
	})
	toPerson := hook.about("RequiredLevelViolated", "firing")[0].at.Sub(begin)
	t.Logf("start of %d jobs to the metric %s, to the firing alert %s, to the web hook %s", jobs,
		toMetric.Round(time.Millisecond), toFiring.Round(time.Millisecond), toPerson.Round(time.Millisecond))

	for _, a := range hook.about("RequiredLevelViolated", "firing")[0].Alerts {
		for label, want := range map[string]string{"cluster": cluster, "queue": "gpu", "class": "training", "severity": "critical", "level": "domain"} {
			if a.Labels[label] != want {
				t.Errorf("the alert's label %s is %q, want %q", label, a.Labels[label], want)
			}
		}
		if !strings.HasPrefix(a.Labels["account"], "team") || a.Labels["spillway_url"] != "" {
			t.Errorf("labels are %v", a.Labels)
		}
		if !strings.HasPrefix(a.Annotations["page"], "http://127.0.0.1:8470/spills?cluster="+cluster) {
			t.Errorf("the page is %s", a.Annotations["page"])
		}
	}
	// The same jobs are spills too, and the broken contract is the worse word for it: Alertmanager holds those alerts back.
	testenv.Eventually(t, patience, func() error {
		broken, spills := alertsAt(t, alertmanager, "RequiredLevelViolated"), alertsAt(t, alertmanager, "SensitiveSpill")
		if len(broken) < jobs || len(spills) < jobs {
			return fmt.Errorf("alertmanager has %d alerts on broken contracts and %d on spills of %d jobs", len(broken), len(spills), jobs)
		}
		for account, a := range spills {
			if !slices.Contains(a.Status.InhibitedBy, broken[account].Fingerprint) {
				return fmt.Errorf("the spill of %s is %s, inhibited by %v, want by %s", account, a.Status.State, a.Status.InhibitedBy, broken[account].Fingerprint)
			}
		}
		return nil
	})
	unusable(t, f) // the board counts these
	t.Run("every expression of the pipeline board is one that Prometheus answers", func(t *testing.T) {
		text, err := os.ReadFile("../../dashboards/spillway-pipeline.json")
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, m := range regexp.MustCompile(`"expr": "((?:[^"\\]|\\.)*)"`).FindAllStringSubmatch(string(text), -1) {
			var expr string
			if err := json.Unmarshal([]byte(`"`+m[1]+`"`), &expr); err != nil {
				t.Fatal(err)
			}
			seen++
			expr = strings.ReplaceAll(expr, "$__rate_interval", "1m")
			// No collector runs in this process.
			if strings.Contains(expr, "spillway_collect_") {
				continue
			}
			testenv.Eventually(t, patience, func() error {
				fetch(t, "http://"+spillway+"/v1/status") // so that there are answers to show
				answer := fetch(t, "http://"+prometheus+"/api/v1/query?query="+url.QueryEscape(expr))
				if !strings.Contains(answer, `"status":"success"`) || strings.Contains(answer, `"result":[]`) {
					return fmt.Errorf("%s gives %s", expr, answer)
				}
				return nil
			})
		}
		if seen < 10 {
			t.Errorf("saw %d expressions: the layout of the board changed", seen)
		}
	})

	for i := range jobs {
		over = append(over, job(i, event.State_COMPLETED))
	}
	emit(over...)
	testenv.Eventually(t, patience, func() error {
		resolved := map[string]bool{}
		for _, n := range hook.about("RequiredLevelViolated", "resolved") {
			for _, a := range n.Alerts {
				if a.Status == "resolved" {
					resolved[a.Labels["account"]] = true
				}
			}
		}
		if len(resolved) < jobs {
			return fmt.Errorf("%d of %d alerts are told to be over", len(resolved), jobs)
		}
		return nil
	})
	// How many notifications that took depends on how many evaluations the jobs came and went over; that all of them are one
	// group, told again only after group_interval, does not.
	groups := map[string]bool{}
	for _, n := range append(hook.about("RequiredLevelViolated", "firing"), hook.about("RequiredLevelViolated", "resolved")...) {
		groups[n.GroupKey] = true
	}
	if len(groups) != 1 {
		t.Errorf("%d jobs of as many accounts are told in %d groups, want one: %v", jobs, len(groups), groups)
	}
}

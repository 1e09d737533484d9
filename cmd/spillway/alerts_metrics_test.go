package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

// used is one metric that a rule names, and the labels the rule goes by.
type used struct {
	alert, metric string
	labels        []string
}

var (
	metricName = regexp.MustCompile(`spillway_\w+`)
	selector   = regexp.MustCompile(`(spillway_\w+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`(\w+)\s*[=!]~?`)
	summed     = regexp.MustCompile(`sum by \(([^)]*)\)\s*\(\s*(spillway_\w+)`)
	joined     = regexp.MustCompile(`on \(([^)]*)\)`)
	told       = regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`)
)

// usedBy gives what a rule goes by. A label that an annotation tells, and is not left to chance with "or" or "with", has
// to come from somewhere: from what is summed by, or from every metric of the rule.
func usedBy(r rule) (out []used) {
	by := map[string][]string{}
	for _, name := range metricName.FindAllString(r.Expr, -1) {
		by[name] = append(by[name], []string{}...)
	}
	for _, m := range selector.FindAllStringSubmatch(r.Expr, -1) {
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			by[m[1]] = append(by[m[1]], l[1])
		}
	}
	grouped := map[string]bool{}
	for _, m := range summed.FindAllStringSubmatch(r.Expr, -1) {
		for _, l := range strings.Split(m[1], ",") {
			by[m[2]] = append(by[m[2]], strings.TrimSpace(l))
			grouped[strings.TrimSpace(l)] = true
		}
	}
	for _, m := range joined.FindAllStringSubmatch(r.Expr, -1) {
		for name := range by {
			by[name] = append(by[name], m[1])
		}
	}
	text := r.Annotations["summary"] + r.Annotations["description"] + r.Annotations["page"]
	for _, value := range r.Labels {
		text += value
	}
	for _, m := range told.FindAllStringSubmatch(text, -1) {
		if grouped[m[1]] || m[1] == "size" { // the side of the join that is kept has it
			continue
		}
		for name := range by {
			by[name] = append(by[name], m[1])
		}
	}
	for name, labels := range by {
		slices.Sort(labels)
		out = append(out, used{r.Alert, name, slices.Compact(labels)})
	}
	return out
}

// shownAs gives the lines of a metric in a text of /metrics.
func shownAs(text, metric string) (out []string) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, metric); ok && (rest[0] == '{' || rest[0] == ' ') {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

// unusable sends a record that the producer refuses, and one that nobody can decode.
func unusable(t *testing.T, f *flow) {
	t.Helper()
	_ = f.producer.Emit(t.Context(), &event.Placement{}) // refused into the dead letters
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{Transport: transport, Addr: kafka.TCP(f.engines.Kafka.Brokers...), Topic: "spillway.placement.v1", AllowAutoTopicCreation: false}
	if err := w.WriteMessages(t.Context(), kafka.Message{Value: []byte("not a record")}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEveryMetricAndLabelOfAnAlertIsReal provokes what each alert is about, in a service whose every stage runs and beside it
// the probe as a process of its own would be, and finds each metric with each label that alerts.yml goes by on /metrics.
func TestEveryMetricAndLabelOfAnAlertIsReal(t *testing.T) {
	ctx := t.Context()
	s := defaultSettings()
	s.API.Listen = "127.0.0.1:0"
	s.Traffic.Interval = time.Second
	f := running(t, &s, stages{load: true, enrich: true, serve: true})
	metrics := "http://" + f.server.Addr() + "/metrics"

	// Two racks, and on them: a job whose required level is broken, one in a single rack whose NVLinks are quiet and whose
	// ports are busy, and one on a node that is down.
	now := time.Now()
	ago := func(minutes int) int64 { return now.Add(-time.Duration(minutes) * time.Minute).UnixMilli() }
	records := simulate.Hardware(1, 2, now.Add(-time.Hour))
	racks, order, cluster := map[string][]string{}, []string{}, ""
	for _, r := range records {
		if m, ok := r.(*event.Membership); ok {
			uuid := m.GetGpus()[0].GetClusterUuid()
			if racks[uuid] == nil {
				order = append(order, uuid)
			}
			cluster, racks[uuid] = m.GetCluster(), append(racks[uuid], m.GetNode())
		}
	}
	first, second := racks[order[0]], racks[order[1]]
	job := func(id string, intent *event.Intent, nodes ...string) *event.Placement {
		four, all, start := uint32(4), uint32(4*len(nodes)), ago(10)
		p := &event.Placement{
			Cluster: cluster, Scheduler: "slurm", JobId: id, RunId: "run-" + id, Name: "train", User: "ada", Account: "ml", Queue: "gpu", ServiceClass: "training",
			State: event.State_RUNNING, StateRaw: "RUNNING", StartMs: &start, RequestedGpus: &all, Gpus: &all, Intent: intent, Source: "simulate",
			ObservedAtMs: now.UnixMilli(), Revision: event.Revision(now),
		}
		for _, node := range nodes {
			p.Placements = append(p.Placements, &event.NodePlacement{Node: node, Gpus: &four, GpuIndex: []uint32{0, 1, 2, 3}})
		}
		return p
	}
	good, every, no, since := now.UnixMilli(), uint32(600_000), false, ago(9)
	records = append(records, &event.Source{Cluster: cluster, Source: "simulate", GoodAtMs: &good, IntervalMs: &every, ObservedAtMs: good},
		job("1", &event.Intent{Mode: event.Intent_REQUIRED, Level: "domain"}, first[0], second[0]), job("2", nil, first[1], first[2]), job("3", nil, second[1]),
		&event.Node{Cluster: cluster, Node: second[1], Source: "simulate", StateRaw: "DOWN", Reason: "Not responding", Schedulable: &no, ValidFromMs: &since,
			ObservedAtMs: since, Revision: event.Revision(now)})
	for at := -8 * 60; at <= 0; at += 30 {
		for _, node := range []string{first[1], first[2]} {
			c := &event.Counters{Cluster: cluster, Node: node, Source: "simulate", ObservedAtMs: now.Add(time.Duration(at) * time.Second).UnixMilli()}
			for g := range 4 {
				moved := float64(20e9 * (at + 8*60))
				c.GpuIndex, c.GpuUuid, c.GpuSinceMs = append(c.GpuIndex, uint32(g)), append(c.GpuUuid, fmt.Sprint("GPU-", node, g)), append(c.GpuSinceMs, ago(60))
				c.NvlinkTxBytes, c.NvlinkRxBytes = append(c.NvlinkTxBytes, 0), append(c.NvlinkRxBytes, 0)
				c.Nic, c.NicPort, c.NicSinceMs = append(c.Nic, fmt.Sprint("mlx5_", g)), append(c.NicPort, 1), append(c.NicSinceMs, ago(60))
				c.NicLinkLayer, c.NicState = append(c.NicLinkLayer, "InfiniBand"), append(c.NicState, event.LinkState_UP)
				c.NicTxBytes, c.NicRxBytes = append(c.NicTxBytes, moved), append(c.NicRxBytes, moved)
			}
			records = append(records, c)
		}
	}
	if err := f.producer.Emit(ctx, records...); err != nil {
		t.Fatal(err)
	}
	// Two records that nobody can use, and a table that cannot be written for a while: their counters are born with them.
	if err := f.conn.Exec(ctx, "RENAME TABLE dead_letters TO dead_letters_away"); err != nil {
		t.Fatal(err)
	}
	unusable(t, f)
	testenv.Eventually(t, patience, func() error {
		if len(shownAs(fetch(t, metrics), "spillway_load_errors_total")) == 0 {
			return fmt.Errorf("no insert has failed yet")
		}
		return nil
	})
	if err := f.conn.Exec(ctx, "RENAME TABLE dead_letters_away TO dead_letters"); err != nil {
		t.Fatal(err)
	}

	// The probe.
	config, listen := filepath.Join(t.TempDir(), "spillway.yaml"), freeAddress(t)
	if err := os.WriteFile(config, fmt.Appendf(nil, "engine:\n  kafka:\n    brokers: [%q]\ntelemetry:\n  listen: %s\n", f.engines.Kafka.Brokers[0], listen), 0o600); err != nil {
		t.Fatal(err)
	}
	probing, stop := context.WithCancel(ctx)
	ended := make(chan string, 1)
	go func() {
		var out, errs strings.Builder
		code := run(probing, []string{"probe", "--every", "1s", "--within", patience.String(), "--config", config, "--api", "http://" + f.server.Addr()}, &out, &errs)
		ended <- fmt.Sprint(code, out.String(), errs.String())
	}()
	t.Cleanup(func() {
		stop()
		if said := <-ended; t.Failed() {
			t.Logf("the probe ended with %s", said)
		}
	})
	t.Cleanup(http.DefaultClient.CloseIdleConnections)

	// Each has to be there at one time or another: a scrape of a busy machine leaves out the facts that it had to wait for.
	seen := map[string]bool{}
	testenv.Eventually(t, patience, func() error {
		text := "\n" + fetch(t, metrics) + fetch(t, "http://"+listen+"/metrics")
		var missing []string
		for _, r := range alertRules(t) {
			for _, u := range usedBy(r) {
				lines := shownAs(text, u.metric)
				if len(lines) > 0 {
					seen[u.metric] = true
				}
				if !seen[u.metric] {
					missing = append(missing, fmt.Sprintf("%s uses %s, which nothing shows", u.alert, u.metric))
				}
				for _, label := range u.labels {
					of := u.metric + " " + label
					if slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, label+`="`) }) {
						seen[of] = true
					}
					if !seen[of] {
						missing = append(missing, fmt.Sprintf("%s goes by the label %s of %s, which has none: %q", u.alert, label, u.metric, lines))
					}
				}
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%s", strings.Join(missing, "\n"))
		}
		return nil
	})
	for name, want := range map[string]string{
		"SilentFallback":     fmt.Sprintf(`spillway_silent_fallback_attempts{cluster=%q,service_class="training"} 1`, cluster),
		"LifecycleException": fmt.Sprintf(`spillway_lifecycle_exceptions{account="ml",cluster=%q,kind="node_down",queue="gpu",service_class="training"} 1`, cluster),
		"AdvisorStale":       fmt.Sprintf(`spillway_advise_age_seconds{cluster=%q}`, cluster),
		"ProbeFailing":       "spillway_probe_last_success_timestamp_seconds 1.", // a time of ours, in seconds; 0 = none went well yet
	} {
		testenv.Eventually(t, patience, func() error {
			text := fetch(t, metrics) + fetch(t, "http://"+listen+"/metrics")
			if !strings.Contains(text, want) {
				return fmt.Errorf("%s: no line begins %s; there are %q", name, want, shownAs(text, want[:strings.IndexAny(want, "{ ")]))
			}
			return nil
		})
	}
}

func TestUsedByReadsRules(t *testing.T) {
	got := usedBy(rule{
		Alert: "A", Expr: `(spillway_a{size="64"} == 0) and on (cluster) (sum by (cluster, state) (spillway_b{kind=~"x|y", z!="1"}) > 1)`,
		Labels: map[string]string{"class": "{{ $labels.service_class }}"}, Annotations: map[string]string{"summary": `{{ $labels.cluster }} {{ or $labels.maybe "x" }}`},
	})
	slices.SortFunc(got, func(a, b used) int { return strings.Compare(a.metric, b.metric) })
	if text := fmt.Sprint(got); text != "[{A spillway_a [cluster service_class size]} {A spillway_b [cluster kind service_class state z]}]" {
		t.Errorf("got %s", text)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/event"
)

// probed is a flow without collectors, and a prober of it.
func probed(t *testing.T, run stages, out func(*flow) collect.Emitter, within time.Duration) *prober {
	t.Helper()
	s := defaultSettings()
	s.API.Listen = "127.0.0.1:0"
	f := running(t, &s, run)
	api := &client{base: "http://" + f.server.Addr()}
	return newProber(out(f), api, within, prometheus.NewRegistry())
}

// value is that of one counter or gauge.
func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var d dto.Metric
	if err := m.Write(&d); err != nil {
		t.Fatal(err)
	}
	return d.GetCounter().GetValue() + d.GetGauge().GetValue()
}

var allButCollect = stages{load: true, enrich: true, serve: true}

func TestProbeSeesASpillComeAndGo(t *testing.T) {
	p := probed(t, allButCollect, func(f *flow) collect.Emitter { return f.producer }, 60*time.Second)
	for range 2 { // the second finds what the first left
		took, err := p.once(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seen in %s, gone in %s", took.seen, took.gone)
	}
	if n := value(t, p.results.WithLabelValues("ok")); n != 2 {
		t.Errorf("%v probes went well, want 2", n)
	}
	if value(t, p.last) == 0 {
		t.Error("the time of the last success is not told")
	}
}

// apart is a process that only serves, beside one that runs the other stages.
func apart(t *testing.T, other *flow) *flow {
	t.Helper()
	s, password := defaultSettings(), filepath.Join(t.TempDir(), "password")
	owner := other.engines.ClickHouse.Owner
	if err := os.WriteFile(password, []byte(owner.Password), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Engine.ClickHouse.Addresses, s.Engine.ClickHouse.User, s.Engine.ClickHouse.PasswordFile = owner.Addresses, owner.User, password
	s.Engine.Kafka.Brokers = other.engines.Kafka.Brokers
	s.API.Listen = "127.0.0.1:0"
	return running(t, &s, stages{serve: true})
}

func TestProbeOfStagesThatRunApart(t *testing.T) {
	s := defaultSettings()
	judges := running(t, &s, stages{load: true, enrich: true})
	p := newProber(judges.producer, &client{base: "http://" + apart(t, judges).server.Addr()}, patience, nil)
	if _, err := p.once(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAProbeIsNoOtherCluster: a caller that names no cluster, as the plug-ins of schedulers do, is answered as if no probe had
// ever been.
func TestAProbeIsNoOtherCluster(t *testing.T) {
	s := newCaller(t)
	now, interval := time.Now().UnixMilli(), uint32(600_000)
	s.emit(smallFleet(now)...)
	s.emit(&event.Source{Cluster: "c1", Source: "slurm", ObservedAtMs: now, GoodAtMs: &now, IntervalMs: &interval})
	advised := func() bool {
		return s.post("/v1/advice", map[string]any{"gpus": 64, "mode": "required"}, nil).StatusCode == http.StatusOK
	}
	testenv.Until(t, "advice is given", advised)
	p := newProber(s.producer, &client{base: s.base}, patience, nil)
	if _, err := p.once(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the advisor knows the probe's nodes", func() bool {
		v, err := s.feed.Cluster(event.ProbeCluster)
		return err == nil && len(v.Snapshot.Topology.Nodes) == 6
	})
	if !advised() {
		t.Error("after a probe there is no advice for a job whose cluster is not named")
	}
	nodes := []string{"gb200-a-01", "gb200-b-01"}
	var kept struct{ NodeNames []string }
	s.post("/scheduler/filter", map[string]any{"NodeNames": nodes, "Pod": map[string]any{
		"metadata": map[string]any{"name": "p", "namespace": "n", "annotations": map[string]any{"spillway.io/gang-pods": "16"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"resources": map[string]any{"requests": map[string]any{"nvidia.com/gpu": "4"}}}}},
	}}, &kept)
	if fmt.Sprint(kept.NodeNames) != "[gb200-a-01]" {
		t.Errorf("the extender keeps %v of %v, want the node of rack a alone", kept.NodeNames, nodes)
	}
	if n := strings.Count(s.get("/v1/fragmentation"), `"cluster":`); n != 1 {
		t.Errorf("fragmentation is told of %d clusters", n)
	}
	// Slots of ten nodes: the advisor's picture knows that rack b is two cliques, which the copy of the tables does not.
	for path, want := range map[string]string{
		"/v1/slots?gpus=40": `"total":1`, "/v1/slots?gpus=4": `"total":35`, "/v1/slots?gpus=4&cluster=" + event.ProbeCluster: `"total":6`,
	} {
		testenv.Until(t, path+" holds "+want, func() bool { return strings.Contains(s.get(path), want) })
	}
}

// ending is how a probe ends while its jobs run: from then on it can send nothing, or, with cancel, is asked to end.
type ending struct {
	collect.Emitter
	cancel context.CancelFunc // nil: killed
	ended  bool
}

func (e *ending) Emit(ctx context.Context, records ...event.Record) error {
	if err := ctx.Err(); err != nil {
		return err // as a producer does
	}
	if e.ended && e.cancel == nil {
		return errors.New("killed")
	}
	if _, jobs := records[0].(*event.Placement); jobs && !e.ended {
		e.ended = true
		if e.cancel != nil {
			defer e.cancel()
		}
	}
	return e.Emitter.Emit(ctx, records...)
}

// TestAProbeThatIsEndedLeavesNothing interrupts one probe and kills two: one lately, one long ago.
func TestAProbeThatIsEndedLeavesNothing(t *testing.T) {
	p := probed(t, allButCollect, func(f *flow) collect.Emitter { return f.producer }, patience)
	holding := func(want int) {
		t.Helper()
		testenv.Eventually(t, patience, func() error {
			var held read.Map
			if err := p.api.get(t.Context(), "/v1/map", url.Values{"cluster": {event.ProbeCluster}}, &held); err != nil {
				return err
			}
			if len(held.Jobs) != want {
				return fmt.Errorf("%d jobs of probes hold nodes, want %d", len(held.Jobs), want)
			}
			return nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	interrupted := newProber(&ending{Emitter: p.out, cancel: cancel}, p.api, patience, nil)
	if _, err := interrupted.once(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the interruption", err)
	}
	testenv.Eventually(t, patience, func() error {
		var ended read.Runs
		if err := p.api.get(t.Context(), "/v1/runs", url.Values{"cluster": {event.ProbeCluster}}, &ended); err != nil {
			return err
		}
		if len(ended.Runs) != 2 {
			return fmt.Errorf("%d jobs of the interrupted probe have ended, want 2", len(ended.Runs))
		}
		return nil
	})
	for _, ago := range []time.Duration{0, time.Hour} {
		killed := newProber(&ending{Emitter: p.out}, p.api, patience, nil)
		killed.now = func() time.Time { return time.Now().Add(-ago) }
		if _, err := killed.once(t.Context()); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the probe killed %s ago ended with %v", ago, err)
		}
	}
	holding(4)
	for range 2 {
		if _, err := p.once(t.Context()); err != nil {
			t.Errorf("beside what killed probes left: %v", err)
		}
	}
	holding(2) // of the one killed lately: it might still run
}

// TestAlertsLeaveTheProbeOut: what runs is the one fact that /metrics shows of its cluster.
func TestAlertsLeaveTheProbeOut(t *testing.T) {
	not := `cluster!="` + event.ProbeCluster + `"`
	seen := 0
	for _, r := range alertRules(t) {
		for _, m := range regexp.MustCompile(`(spillway_running_placements|spillway_required_level_violations)(\{[^}]*\})?`).FindAllString(r.Expr, -1) {
			seen++
			if !strings.Contains(m, not) {
				t.Errorf("%s reads %s without %s: a probe would fire it", r.Alert, m, not)
			}
		}
	}
	if seen < 4 {
		t.Errorf("saw %d uses of what runs", seen)
	}
}

// TestProbeTakesNoFlagThatDoesNothing: its cluster is its own, and its answer one line.
func TestProbeTakesNoFlagThatDoesNothing(t *testing.T) {
	for _, flag := range []string{"--cluster=c1", "-o=json"} {
		var out, errs strings.Builder
		if code := run(t.Context(), []string{"probe", flag}, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), "unknown") {
			t.Errorf("%s: code %d, %q", flag, code, errs.String())
		}
	}
}

// dropping loses every placement on its way.
type dropping struct{ collect.Emitter }

func (d dropping) Emit(ctx context.Context, records ...event.Record) error {
	for _, r := range records {
		if _, ok := r.(*event.Placement); !ok {
			if err := d.Emitter.Emit(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestProbeTellsWhatIsBroken(t *testing.T) {
	p := probed(t, allButCollect, func(f *flow) collect.Emitter { return dropping{f.producer} }, 2*time.Second)
	_, err := p.once(t.Context())
	var failed *errProbe
	if !errors.As(err, &failed) || failed.step != "verdict" || !strings.Contains(err.Error(), "never seen") {
		t.Errorf("got %v, want a failure at the verdict", err)
	}
	if n := value(t, p.results.WithLabelValues("verdict")); n != 1 {
		t.Errorf("%v failures at the verdict are counted, want 1", n)
	}
}

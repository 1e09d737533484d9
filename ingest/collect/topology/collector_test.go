package topology

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/schemas/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink keeps what a collector emits, as lines.
type sink struct {
	mu      sync.Mutex
	members []string
	sources []string
	told    string // by the newest source record
	refuse  int    // records taken before the pipeline fails; 0 = it does not
}

var errPipeline = errors.New("the pipeline is down")

func (s *sink) Emit(_ context.Context, records ...event.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		if _, _, err := event.Encode(r); err != nil {
			return err
		}
		switch r := r.(type) {
		case *event.Membership:
			if s.refuse > 0 && len(s.members) >= s.refuse {
				return errPipeline
			}
			s.members = append(s.members, memberLine(r))
		case *event.Source:
			s.sources = append(s.sources, sourceLine(r))
			s.told = ""
			for _, told := range r.GetTold() {
				s.told += told.GetSource() + " since " + clock(told.GetSinceMs()) + " good at " + clock(told.GetGoodAtMs())
			}
		}
	}
	return nil
}

func memberLine(r *event.Membership) string {
	var levels []string
	for _, l := range r.GetLevels() {
		levels = append(levels, l.GetLevel()+"="+l.GetValue())
	}
	line := fmt.Sprintf("%s %s/%s %s: %s", clock(r.GetObservedAtMs()), r.GetSource(), r.GetTopology(), r.GetNode(), strings.Join(levels, " "))
	if r.GetRemoved() {
		line += "removed"
	}
	if r.ValidFromMs != nil {
		line += " since " + time.UnixMilli(r.GetValidFromMs()).UTC().Format(time.DateOnly)
	}
	return line
}

func sourceLine(r *event.Source) string {
	line := clock(r.GetObservedAtMs()) + " " + r.GetSource()
	if r.GoodAtMs != nil {
		line += " good at " + clock(r.GetGoodAtMs())
	}
	if r.GetProblem() != "" {
		line += " problem " + r.GetProblem()
	}
	return line
}

func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format("15:04:05") }

// taken gives and forgets what came in.
func (s *sink) taken() (members, sources []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	members, sources = s.members, s.sources
	s.members, s.sources = nil, nil
	return members, sources
}

// rig is a collector of one file on a clock that the test moves.
type rig struct {
	*Collector
	sink
	t    *testing.T
	path string
	at   time.Time
	reg  *prometheus.Registry
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "topology"), at: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), reg: prometheus.NewRegistry()}
	cfg := DefaultConfig()
	cfg.Cluster = "nvl"
	cfg.Sources = []Source{{Source: "slurm_topology", File: r.path}}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg, Deps{Now: func() time.Time { return r.at }, Registerer: r.reg})
	if err != nil {
		t.Fatal(err)
	}
	r.Collector = c
	return r
}

func (r *rig) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// step polls once, a moment later, and compares what was emitted.
func (r *rig) step(after time.Duration, members, sources string) {
	r.t.Helper()
	r.at = r.at.Add(after)
	r.pollAll(r.t.Context(), &r.sink)
	m, s := r.taken()
	if d := cmp.Diff(strings.TrimSpace(members), strings.Join(m, "\n")); d != "" {
		r.t.Errorf("at %s: membership (-want +got)\n%s", r.at.Format(time.TimeOnly), d)
	}
	if d := cmp.Diff(strings.TrimSpace(sources), strings.Join(s, "\n")); d != "" {
		r.t.Errorf("at %s: source (-want +got)\n%s", r.at.Format(time.TimeOnly), d)
	}
}

const (
	confTwo   = "BlockName=a Nodes=n1\nBlockName=b Nodes=n2\n"
	confMoved = "BlockName=a Nodes=n[1-2]\n"
	confOne   = "BlockName=a Nodes=n1\n"
)

func TestFullStateFirstThenChanges(t *testing.T) {
	r := newRig(t, nil)
	r.write(confTwo)
	r.step(0, `
12:00:00 slurm_topology/default n1: block=a domain=a
12:00:00 slurm_topology/default n2: block=b domain=b
`, "12:00:00 topology good at 12:00:00")
	r.step(5*time.Second, "", "")
	r.write("# a comment\n" + confTwo)
	r.step(5*time.Second, "", "12:00:10 topology good at 12:00:10")
	r.write(confMoved)
	r.step(5*time.Second, "12:00:15 slurm_topology/default n2: block=a domain=a", "")
	r.write(confOne)
	r.step(5*time.Second, "", "12:00:20 topology good at 12:00:20")
	r.step(5*time.Second, "12:00:25 slurm_topology/default n2: removed", "")
	r.write(confTwo)
	r.step(5*time.Second, "12:00:30 slurm_topology/default n2: block=b domain=b", "12:00:30 topology good at 12:00:30")
}

// A file that is read while it is being written may end at the end of a line, and then looks whole.
func TestAHalfWrittenFileRemovesNothing(t *testing.T) {
	r := newRig(t, nil)
	r.write(confTwo)
	r.pollAll(t.Context(), &r.sink)
	r.taken()
	r.write("BlockName=a Nodes=n1\n")
	r.step(time.Second, "", "")
	r.write("BlockName=a Nodes=n1\nBlockName=b Nodes=n3\n")
	r.step(time.Second, "", "")
	r.write("BlockName=a Nodes=n1\nBlockName=b Nodes=n3\nBlockName=c Nodes=n2\n")
	r.step(time.Second, `
12:00:03 slurm_topology/default n3: block=b domain=b
12:00:03 slurm_topology/default n2: block=c domain=c
`, "")
}

func TestWhatFailsKeepsTheLastGoodState(t *testing.T) {
	for name, c := range map[string]struct {
		text    string // "" = the file is gone
		problem string
	}{
		"a file that is gone":        {"", "open topology: open PATH: no such file or directory; check the path and that this user may read it"},
		"a file that does not parse": {"BlockName=a Nodes=n[1-\n", `PATH:1: block a: read hostlist element "n[1-" at byte 0: "[" is never closed; close it with "]"`},
		"a file that is empty":       {"\n", errEmpty.Error()},
		"a topology without nodes":   {"BlockName=a Nodes=\n", errEmpty.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.write(confTwo)
			r.pollAll(t.Context(), &r.sink)
			r.taken()
			if c.text == "" {
				if err := os.Remove(r.path); err != nil {
					t.Fatal(err)
				}
			} else {
				r.write(c.text)
			}
			problem := strings.ReplaceAll(c.problem, "PATH", r.path)
			r.step(time.Second, "", "12:00:01 topology good at 12:00:00 problem slurm_topology: "+problem)
			r.step(time.Second, "", "")
			r.step(10*time.Second, "", "12:00:12 topology good at 12:00:00 problem slurm_topology: "+problem)
			r.write(confTwo)
			r.step(time.Second, "", "12:00:13 topology good at 12:00:13")
		})
	}
}

func TestFailuresAreCounted(t *testing.T) {
	r := newRig(t, nil)
	r.pollAll(t.Context(), &r.sink)
	r.write(confOne)
	r.pollAll(t.Context(), &r.sink)
	r.write("x")
	r.pollAll(t.Context(), &r.sink)
	r.write("")
	r.pollAll(t.Context(), &r.sink)
	r.write("BlockName=a Nodes=n1 Colour=red\nBlockName=\"b\x01\" Nodes=n2\n")
	r.pollAll(t.Context(), &r.sink)
	want := `
spillway_collect_dropped_total{reason="invalid",source="topology"} 1
spillway_collect_dropped_total{reason="issue",source="topology"} 1
spillway_collect_errors_total{reason="empty",source="topology"} 1
spillway_collect_errors_total{reason="parse",source="topology"} 1
spillway_collect_errors_total{reason="read",source="topology"} 1
spillway_collect_last_good_age_seconds{source="topology"} 0
spillway_collect_polls_total{source="topology",what="slurm_topology"} 5
spillway_collect_records_total{source="topology",way="full"} 1
spillway_collect_seen{source="topology",what="slurm_topology"} 2`
	if d := cmp.Diff(want[1:], r.counted()); d != "" {
		t.Error(d)
	}
}

// counted prints the collector's metrics.
func (r *rig) counted() string {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			out = append(out, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(labels, ","), m.GetCounter().GetValue()+m.GetGauge().GetValue()))
		}
	}
	return strings.Join(out, "\n")
}

func TestAnEmptyFleetIfAllowed(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Sources[0].AllowEmpty = true })
	r.write(confOne)
	r.step(0, "12:00:00 slurm_topology/default n1: block=a domain=a", "12:00:00 topology good at 12:00:00")
	r.write("")
	r.step(time.Second, "", "")
	r.step(time.Second, "12:00:02 slurm_topology/default n1: removed", "")
}

func TestRefresh(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Sources[0].ValidFrom = "2020-02-01" })
	r.write(confTwo)
	r.step(0, `
12:00:00 slurm_topology/default n1: block=a domain=a since 2020-02-01
12:00:00 slurm_topology/default n2: block=b domain=b since 2020-02-01
`, "12:00:00 topology good at 12:00:00")
	r.write(confMoved)
	r.step(30*time.Minute, "12:30:00 slurm_topology/default n2: block=a domain=a", "12:30:00 topology good at 12:30:00")
	r.step(29*time.Minute, "", "12:59:00 topology good at 12:59:00")
	// The node that moved was not there since 2020: a refresh must not say so.
	r.step(time.Minute, `
13:00:00 slurm_topology/default n1: block=a domain=a since 2020-02-01
13:00:00 slurm_topology/default n2: block=a domain=a
`, "13:00:00 topology good at 13:00:00")
	r.step(time.Minute, "", "13:01:00 topology good at 13:01:00")
}

// Another name makes another telling of the same nodes; the first must not be left standing beside it.
func TestATopologyUnderAnotherName(t *testing.T) {
	r := newRig(t, nil)
	r.write("- topology: nvl\n  block: {blocks: [{block: a, nodes: n1}]}\n")
	r.step(0, "12:00:00 slurm_topology/nvl n1: block=a domain=a", "12:00:00 topology good at 12:00:00")
	r.write("- topology: ib\n  tree: {switches: [{switch: l, nodes: n1}]}\n- topology: nvl\n  block: {blocks: [{block: a, nodes: n1}]}\n")
	r.step(time.Second, "12:00:01 slurm_topology/nvl n1: leaf=l block=a domain=a", "")
	r.write("- topology: nvl72\n  block: {blocks: [{block: a, nodes: n1}]}\n")
	r.step(time.Second, "12:00:02 slurm_topology/nvl n1: removed\n12:00:02 slurm_topology/nvl72 n1: block=a domain=a", "")
}

func TestWhatThePipelineDidNotTakeIsEmittedAgain(t *testing.T) {
	r := newRig(t, nil)
	var b strings.Builder
	for i := range 2 * emitAtOnce {
		fmt.Fprintf(&b, "BlockName=b%d Nodes=n%d\n", i, i)
	}
	r.write(b.String())
	r.refuse = emitAtOnce
	r.pollAll(t.Context(), &r.sink)
	members, sources := r.taken()
	if len(members) != emitAtOnce || len(sources) != 1 || !strings.Contains(sources[0], errPipeline.Error()) {
		t.Fatalf("%d records, sources %q", len(members), sources)
	}
	r.refuse = 0
	r.at = r.at.Add(time.Second)
	r.pollAll(t.Context(), &r.sink)
	members, sources = r.taken()
	if len(members) != emitAtOnce || members[0] != "12:00:01 slurm_topology/default n1000: block=b1000 domain=b1000" {
		t.Errorf("%d records, first %q", len(members), members[0])
	}
	if d := cmp.Diff([]string{"12:00:01 topology good at 12:00:01"}, sources); d != "" {
		t.Error(d)
	}
}

// TestSinceWhenAllIsTold: nodes that vanished while no collector ran are withdrawn by this, so it is said only of a whole
// list.
func TestSinceWhenAllIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		reads      []string
		allowEmpty bool
		refuse     int
		want       string
	}{
		"the first read":                      {reads: []string{confTwo}, want: "slurm_topology since 12:00:00 good at 12:00:00"},
		"later reads":                         {reads: []string{confTwo, confTwo, confMoved}, want: "slurm_topology since 12:00:00 good at 12:00:20"},
		"a file that would remove a node":     {reads: []string{confTwo, confOne}},
		"a node that is gone":                 {reads: []string{confTwo, confOne, confOne}, want: "slurm_topology since 12:00:00 good at 12:00:20"},
		"a file that cannot be read any more": {reads: []string{confTwo, "BlockName"}, want: "slurm_topology since 12:00:00 good at 12:00:00"},
		"no node":                             {reads: []string{"BlockName=a Nodes=\n"}},
		"no node, if allowed":                 {reads: []string{"BlockName=a Nodes=\n"}, allowEmpty: true, want: "slurm_topology since 12:00:00 good at 12:00:00"},
		"half of it is with the pipeline":     {reads: []string{confTwo}, refuse: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.Sources[0].AllowEmpty = c.allowEmpty })
			r.refuse = c.refuse
			for i, text := range c.reads {
				if i > 0 {
					r.at = r.at.Add(10 * time.Second)
				}
				r.write(text)
				r.pollAll(t.Context(), &r.sink)
			}
			if r.told != c.want {
				t.Errorf("told %q, want %q", r.told, c.want)
			}
		})
	}
}

func TestSourcesSideBySide(t *testing.T) {
	dir := t.TempDir()
	table, instances, graph := filepath.Join(dir, "racks.csv"), filepath.Join(dir, "request.json"), filepath.Join(dir, "graph.json")
	for path, text := range map[string]string{
		table: "node,domain\nn1,rack-7\n", graph: `{"instances":[{"id":"i-1","network_layers":["l1"]}]}`, instances: `{"i-1":"n1"}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, func(c *Config) {
		c.Sources = append(c.Sources,
			Source{Source: "topograph", File: graph, InstancesFile: instances},
			Source{Source: "static", File: table})
	})
	r.write(confOne)
	r.step(0, `
12:00:00 slurm_topology/default n1: block=a domain=a
12:00:00 topograph/topograph n1: leaf=l1
12:00:00 static/static n1: domain=rack-7
`, "12:00:00 topology good at 12:00:00")
	// One of them failing leaves the others alone, and makes the whole as old as that one.
	if err := os.WriteFile(instances, []byte(`{"i-1":"n2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(table); err != nil {
		t.Fatal(err)
	}
	r.step(time.Second, "", "12:00:01 topology good at 12:00:00 problem static: open topology: open "+table+": no such file or directory; check the path and that this user may read it")
	r.step(time.Second, `
12:00:02 topograph/topograph n2: leaf=l1
12:00:02 topograph/topograph n1: removed
`, "")
}

func TestCommands(t *testing.T) {
	t.Setenv("SLURM_TOPO_LEN", "20")
	for name, c := range map[string]struct {
		command []string
		want    string // problem
	}{
		"it prints a topology":         {[]string{"sh", "-c", "test -z $SLURM_TOPO_LEN && echo BlockName=a BlockIndex=0 Nodes=n1 BlockSize=1"}, ""},
		"it fails":                     {[]string{"sh", "-c", "echo slurm_load_topo error: Unable to contact slurm controller >&2; exit 1"}, "run sh: exit status 1: slurm_load_topo error: Unable to contact slurm controller"},
		"it complains and ends well":   {[]string{"sh", "-c", "echo scontrol: error: no >&2"}, `run sh: it printed nothing but "scontrol: error: no"`},
		"it is not there":              {[]string{"/nonexistent/scontrol"}, "run /nonexistent/scontrol: fork/exec /nonexistent/scontrol: no such file or directory; check the command and the PATH of this service"},
		"it hangs, and so do children": {[]string{"sh", "-c", "sleep 60 & sleep 60"}, "run sh: context deadline exceeded; is slurmctld reachable?"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) {
				cfg.Sources = []Source{{Source: "slurm_topology", Command: c.command}}
				if strings.Contains(name, "hangs") {
					cfg.Timeout = 50 * time.Millisecond
				}
			})
			r.pollAll(t.Context(), &r.sink)
			members, sources := r.taken()
			if c.want == "" {
				if len(members) != 1 {
					t.Errorf("%q %q", members, sources)
				}
				return
			}
			if want := "12:00:00 topology problem slurm_topology: " + c.want; len(members) != 0 || sources[0] != want {
				t.Errorf("got  %q\nwant %s", sources, want)
			}
		})
	}
}

func TestURLs(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.Header.Get("X-SLURM-USER-NAME") != "spillway" || req.Header.Get("X-SLURM-USER-TOKEN") != "secret":
			http.Error(w, "Authentication failure", http.StatusUnauthorized)
		case req.URL.Path == "/nodes":
			fmt.Fprint(w, `{"nodes":[{"name":"n1","topology":"nvl:rack01"}]}`)
		case req.URL.Path == "/pending":
			w.WriteHeader(http.StatusAccepted)
		default:
			http.NotFound(w, req)
		}
	}))
	defer srv.Close()
	defer http.DefaultClient.CloseIdleConnections()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("SLURM_JWT=secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, user, want string }{
		"nodes of slurmrestd":      {"/nodes", "spillway", ""},
		"a token that is refused":  {"/nodes", "root", "401 Unauthorized: renew the token in token_file, and check user"},
		"a graph that is not made": {"/pending", "spillway", "the answer is not ready yet"},
		"a path that is wrong":     {"/nodez", "spillway", "404 Not Found: 404 page not found"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) {
				cfg.Sources = []Source{{Source: "slurm_topology", URL: srv.URL + c.path, User: c.user, TokenFile: token, Kinds: map[string]Kind{"nvl": KindBlock}}}
			})
			r.pollAll(t.Context(), &r.sink)
			members, sources := r.taken()
			if c.want == "" {
				if d := cmp.Diff([]string{"12:00:00 slurm_topology/nvl n1: block=rack01 domain=rack01"}, members); d != "" {
					t.Error(d)
				}
				return
			}
			if len(members) != 0 || !strings.Contains(strings.TrimSpace(sources[0]), c.want) {
				t.Errorf("got  %q\nwant %s", sources, c.want)
			}
		})
	}
}

func TestRunReadsAgainUntilItsContextEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topology.conf")
	if err := os.WriteFile(path, []byte(confTwo), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Cluster, cfg.Interval = "nvl", 5*time.Millisecond
	cfg.Sources = []Source{{Source: "slurm_topology", File: path}}
	c, err := New(cfg, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var s sink
	done := make(chan error)
	go func() { done <- c.Run(ctx, &s) }()
	wait := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; {
			s.mu.Lock()
			n := len(s.members)
			s.mu.Unlock()
			if n == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d records, want %d", n, want)
			}
			time.Sleep(time.Millisecond)
		}
	}
	wait(2)
	if err := os.WriteFile(path, []byte(confMoved), 0o600); err != nil {
		t.Fatal(err)
	}
	wait(3)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

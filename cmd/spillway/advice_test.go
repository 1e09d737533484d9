package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/api"
	"github.com/spillway-io/spillway/query/live"
	"github.com/spillway-io/spillway/schemas/event"
)

// rackOf gives the domain and clique of the test's fleet: rack a is one clique of 18 nodes, rack b has one of 9 and one of 8.
func rackOf(rack string, n int) (domain string, clique uint32) {
	if rack == "a" {
		return "aaaaaaaa-0000-4000-8000-000000000001", 32766
	}
	if n <= 9 {
		return "bbbbbbbb-0000-4000-8000-000000000002", 1
	}
	return "bbbbbbbb-0000-4000-8000-000000000002", 2
}

// smallFleet tells of two racks, all nodes free.
func smallFleet(now int64) (out []event.Record) {
	yes, four := true, uint32(4)
	for rack, nodes := range map[string]int{"a": 18, "b": 17} {
		for n := 1; n <= nodes; n++ {
			node := fmt.Sprintf("gb200-%s-%02d", rack, n)
			domain, clique := rackOf(rack, n)
			m := &event.Membership{Cluster: "c1", Node: node, Source: event.SourceNVML, ObservedAtMs: now, Revision: uint64(now) * 1000}
			for g := range uint32(4) {
				m.Gpus = append(m.Gpus, &event.GpuFabric{Index: g, ClusterUuid: domain, CliqueId: &clique, State: event.FabricCompleted, Status: event.FabricSuccess})
			}
			out = append(out, m, &event.Node{Cluster: "c1", Node: node, Source: "slurm", GpusPresent: &four, Schedulable: &yes,
				ObservedAtMs: now, Revision: uint64(now) * 1000})
		}
	}
	return out
}

// holds tells that a job runs on nodes.
func holds(job string, state event.State, now int64, nodes ...string) *event.Placement {
	gpus, limit := uint32(4*len(nodes)), int64(3_600_000)
	p := &event.Placement{Cluster: "c1", Scheduler: "slurm", JobId: job, Source: "slurm.squeue", State: state, User: "u", Name: "n" + job,
		SubmitMs: &now, StartMs: &now, TimeLimitMs: &limit, Gpus: &gpus, RequestedGpus: &gpus, ObservedAtMs: now, Revision: uint64(time.Now().UnixMicro())}
	if len(nodes) == 0 {
		p.Gpus, p.RequestedGpus = nil, nil // not told again
	}
	if state.Ended() {
		end := now + 5000
		p.EndMs = &end
	}
	for _, n := range nodes {
		four := uint32(4)
		p.Placements = append(p.Placements, &event.NodePlacement{Node: n, Gpus: &four})
	}
	return p
}

// caller is all stages but collectors, and what a caller needs.
type caller struct {
	*flow
	t    *testing.T
	base string
	spec validator.Validator
}

func newCaller(t *testing.T) *caller {
	t.Helper()
	return newCallerWith(t, stages{load: true, enrich: true, serve: true}, func(*settings) {})
}

func newCallerWith(t *testing.T, run stages, change func(*settings)) *caller {
	t.Helper()
	s := defaultSettings()
	s.API.Listen = "127.0.0.1:0"
	s.Advise.Extender = true
	s.Advise.Feed.Resync = 10 * time.Second
	s.Advise.Ledger.Every = 200 * time.Millisecond
	change(&s)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	f := running(t, &s, run)
	description, err := f.server.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	document, err := libopenapi.NewDocument(description)
	if err != nil {
		t.Fatal(err)
	}
	spec, errs := validator.NewValidator(document)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return &caller{f, t, "http://" + f.server.Addr(), spec}
}

func (s *caller) emit(records ...event.Record) {
	s.t.Helper()
	if err := s.producer.Emit(context.Background(), records...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *caller) post(path string, body any, into any) *http.Response {
	s.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, s.base+path, bytes.NewReader(raw))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(bytes.NewReader(text))
	if strings.HasPrefix(path, "/v1/") {
		if ok, faults := s.spec.ValidateHttpResponse(req, resp); !ok {
			for _, f := range faults {
				s.t.Errorf("%s answered %s, which the API's description does not allow: %s: %s", path, text, f.Message, f.Reason)
			}
		}
	}
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		s.t.Fatalf("%s: %v: %s", path, err, text)
	}
	return resp
}

// get asks one question and holds the answer to the API's description.
func (s *caller) get(path string) string {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodGet, s.base+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	if ok, faults := s.spec.ValidateHttpResponse(req, resp); !ok {
		for _, f := range faults {
			s.t.Errorf("%s answered %.600s, which the API's description does not allow: %s: %s", path, text, f.Message, f.Reason)
			for _, e := range f.SchemaValidationErrors {
				s.t.Errorf("at %s: %s", e.FieldPath, e.Reason)
			}
		}
	}
	return string(text)
}

// TestAdvice asks a running service as its callers do: over HTTP, as kube-scheduler, from Slurm's job_submit and from the
// submit wrapper.
func TestAdvice(t *testing.T) {
	s := newCaller(t)
	now := time.Now().UnixMilli()
	var none api.NoAdvice
	if resp := s.post("/v1/advice", map[string]any{"gpus": 64}, &none); resp.Header.Get("X-Advice") != "none" || none.Code != "not_ready" && none.Code != "unknown_cluster" {
		t.Errorf("before anything is known: got %s %+v, want no opinion", resp.Status, none)
	}
	s.emit(smallFleet(now)...)
	testenv.Until(t, "the fleet is known", func() bool {
		v := s.feed.Clusters("")["c1"]
		return v != nil && len(v.Snapshot.Topology.Nodes) == 35 && len(v.Snapshot.Topology.Unknown) == 0
	})
	if s.post("/v1/advice", map[string]any{"gpus": 64}, &none); none.Code != "stale_snapshot" {
		t.Errorf("no collector has reported: got %+v, want a refusal as stale", none)
	}
	interval := uint32(600_000)
	s.emit(&event.Source{Cluster: "c1", Source: "slurm", ObservedAtMs: now, GoodAtMs: &now, IntervalMs: &interval})
	testenv.Until(t, "advice is given", func() bool {
		return s.post("/v1/advice", map[string]any{"gpus": 64}, nil).StatusCode == http.StatusOK
	})
	var advice api.Advice
	s.post("/v1/advice", map[string]any{"gpus": 64, "class": "train", "user": "u", "name": "n1"}, &advice)
	if got := advice.Candidates[0]; len(got.Domains) != 1 || got.Domains[0].ID != "aaaaaaaa-0000-4000-8000-000000000001" || !slices.Contains(advice.Slurm, "--segment=16") {
		t.Errorf("got %+v, want rack a whole", advice)
	}

	t.Run("an event shows in advice soon", func(t *testing.T) {
		var took []time.Duration
		for i := range 20 {
			job := fmt.Sprint("1.", i)
			start := time.Now()
			s.emit(holds(job, event.State_RUNNING, now, "gb200-a-01"))
			used := func() int32 {
				v := s.feed.Clusters("")["c1"].Snapshot
				n, _ := v.Topology.Node("gb200-a-01")
				return v.Used(n)
			}
			testenv.Until(t, "the job holds its node", func() bool { return used() == 4 })
			took = append(took, time.Since(start))
			s.emit(holds(job, event.State_COMPLETED, now))
			testenv.Until(t, "the job has let go", func() bool { return used() == 0 })
		}
		slices.Sort(took)
		t.Logf("from emit to visible: median %s, largest %s", took[len(took)/2], took[len(took)-1])
	})

	t.Run("what if", func(t *testing.T) {
		s.emit(holds("2", event.State_RUNNING, now, "gb200-a-02", "gb200-a-03", "gb200-a-04"))
		testenv.Until(t, "job 2 is seen", func() bool { return s.feed.Clusters("")["c1"].Snapshot.Holds("2") })
		var change api.Change
		s.post("/v1/whatif", map[string]any{"drain_domains": []string{"aaaaaaaa-0000-4000-8000-000000000001"}, "ask": map[string]any{"gpus": 64, "mode": "required"}}, &change)
		if !slices.Equal(change.Affects, []string{"2"}) || change.After.Largest != 9 || change.Asked.After.Problem == nil || change.DrainBy == nil || change.Freshness.AgeS == nil {
			t.Errorf("got %+v, want job 2 affected and no room for 16 nodes", change)
		}
		s.post("/v1/whatif", map[string]any{"end_jobs": []string{"2"}}, &change)
		if change.Before.Largest != 15 || change.After.Largest != 18 {
			t.Errorf("got %d and %d, want 15 free nodes and 18 after job 2 has ended", change.Before.Largest, change.After.Largest)
		}
	})

	t.Run("a refusal says what it rests on", func(t *testing.T) {
		var none api.NoAdvice
		if resp := s.post("/v1/advice", map[string]any{"gpus": 4096}, &none); resp.StatusCode != http.StatusUnprocessableEntity || none.Snapshot == nil || none.Snapshot.Coverage != 1 {
			t.Errorf("got %s %+v, want a picture of a known age", resp.Status, none)
		}
		if resp := s.post("/v1/feedback", map[string]any{"advice_id": "x", "cluster": "nowhere"}, &none); resp.StatusCode != http.StatusNotFound || none.Code != "unknown_cluster" {
			t.Errorf("feedback of a cluster that is not there: got %s %+v", resp.Status, none)
		}
	})

	t.Run("questions that rest on the picture", func(t *testing.T) {
		since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
		for path, want := range map[string]string{
			"/v1/slots?gpus=64":                `"total":0`, // job 2 holds three of rack a's nodes
			"/v1/slots?gpus=36":                `"total":2`, // one in rack a, one in the first clique of rack b
			"/v1/fragmentation":                `"largest_nodes":15`,
			"/v1/fragmentation?since=" + since: `"history":[{`,
			"/v1/runs?since=" + since:          `"user":"u"`,
			"/v1/advice/grade":                 `"answered":`,

			"/v1/fragmentation?since=2100-01-01T00:00:00Z": "since is not before until",
		} {
			testenv.Until(t, path+" holds "+want, func() bool { return strings.Contains(s.get(path), want) }) // the passes may be behind
		}
	})
	t.Run("kube-scheduler's recorded calls", s.extenderCalls)
	t.Run("job_submit.lua", s.jobSubmit)
	t.Run("the submit wrapper", s.wrapper)

	t.Run("the picture read anew agrees with the one that followed", func(t *testing.T) {
		testenv.Until(t, "the picture is read anew", func() bool { return metricValue(t, s, "spillway_advise_resyncs_total", "due") > 0 })
		if n := metricValue(t, s, "spillway_advise_drift_nodes", ""); n != 0 {
			t.Errorf("%g nodes differ", n)
		}
	})

	t.Run("after a restart a plan knows whom to ask for room", s.planAfterRestart)

	t.Run("advice is graded", func(t *testing.T) {
		nodes := make([]string, 16)
		for i := range nodes {
			nodes[i] = fmt.Sprintf("gb200-a-%02d", i+1)
		}
		s.emit(holds("2", event.State_COMPLETED, time.Now().UnixMilli()))
		s.post("/v1/feedback", map[string]any{"advice_id": advice.AdviceID, "job": "77"}, nil)
		s.emit(holds("77", event.State_RUNNING, time.Now().UnixMilli(), nodes...))
		testenv.Until(t, "the advice is graded as followed", func() bool {
			grades, err := s.ledger.Grades(context.Background(), "c1", time.Now().Add(-time.Hour))
			return err == nil && len(grades) == 1 && grades[0].Followed == 1 && grades[0].Spilled == 0
		})
	})
}

// silent is a log in which nothing is said.
type silent struct{}

func (silent) Partitions(context.Context, string) ([]int, error) { return []int{0}, nil }

func (silent) Follow(ctx context.Context, _ string, _ int, _ int64, _ func(int64, []byte), ended func()) (int64, error) {
	ended()
	<-ctx.Done()
	return 0, nil
}

// planAfterRestart has the loader and the passes keep what a job tells of itself, and asks a picture that begins with the
// tables and hears nothing from then on.
func (s *caller) planAfterRestart(t *testing.T) {
	nodes := make([]string, 10) // more than any other clique has: it could only end
	for i := range nodes {
		nodes[i] = fmt.Sprintf("gb200-a-%02d", i+9)
	}
	now := time.Now().UnixMilli()
	exempt := now/1000*1000 + 3_600_000
	job := holds("9", event.State_RUNNING, now, nodes...)
	job.Priority, job.Preemptible, job.RestartMs, job.CheckpointMs = new(int64(3)), new(true), new(int64(600_000)), &now
	job.PreemptibleMs = &exempt
	s.emit(job)
	defer func() {
		s.emit(holds("9", event.State_COMPLETED, now))
		testenv.Until(t, "job 9 has let go", func() bool { return !s.feed.Clusters("")["c1"].Snapshot.Holds("9") })
	}()
	testenv.Until(t, "the tables know job 9", func() bool {
		var n uint64
		err := s.readConn.QueryRow(context.Background(), "SELECT count() FROM placements WHERE job_id = '9'").Scan(&n)
		return err == nil && n > 0
	})
	plan := func(v *live.View, priority int64) *advise.MakeRoom {
		view := v.Snapshot.View()
		return advise.PlanRoom(v.Snapshot, &view, 15, &priority)
	}
	feed, err := live.New(s.settings.Advise.Feed, live.Deps{Conn: s.readConn, Log: silent{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- feed.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	testenv.Until(t, "the new picture is complete", func() bool { v := feed.Clusters("")["c1"]; return v != nil && v.Snapshot.Holds("9") })
	v := feed.Clusters("")["c1"]
	m := plan(v, 3)
	if m == nil || len(m.Moves) != 1 || m.Moves[0].Job != "9" || m.Moves[0].To != "" || m.Moves[0].Priority == nil || *m.Moves[0].Priority != 3 || !m.CostKnown {
		t.Errorf("got %+v, want job 9 of priority 3 to end at a known cost", m)
	}
	for how, m := range map[string]*advise.MakeRoom{"from the tables": m, "from the topic": plan(s.feed.Clusters("")["c1"], 3)} {
		if m == nil || m.NotBefore == nil || m.NotBefore.UnixMilli() != exempt {
			t.Errorf("%s: got %+v, want job 9 to end in an hour, when it may", how, m)
		}
	}
	if m := plan(v, 2); m != nil {
		t.Errorf("got %+v for an asker of a lower priority", m)
	}
}

// metricValue is the sum of a metric's series with that label value; "" = all.
func metricValue(t *testing.T, s *caller, name, label string) (sum float64) {
	t.Helper()
	families, err := s.tel.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() == label) {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// extenderCalls sends what a kube-scheduler was recorded to send, with names of nodes and with whole nodes.
func (s *caller) extenderCalls(t *testing.T) {
	file, err := os.Open("testdata/extender-calls.ndjson.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, 16<<20)
	gangs := map[string]bool{} // cliques that pods of the gang were sent to
	for lines.Scan() {
		var call struct {
			N       int
			Path    string
			Request json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			t.Fatal(err)
		}
		var asked struct {
			NodeNames []string
			Nodes     *struct{ Items []json.RawMessage }
		}
		if err := json.Unmarshal(call.Request, &asked); err != nil {
			t.Fatal(err)
		}
		candidates := len(asked.NodeNames)
		if asked.Nodes != nil {
			candidates = len(asked.Nodes.Items)
		}
		if strings.HasSuffix(call.Path, "/prioritize") {
			var scores []struct {
				Host  string
				Score int64
			}
			s.post("/scheduler/prioritize", call.Request, &scores)
			best := 0
			for _, h := range scores {
				if h.Score < 0 || h.Score > 10 {
					t.Errorf("call %d: %s scores %d", call.N, h.Host, h.Score)
				}
				if h.Score == 10 {
					best++
				}
			}
			if len(scores) != candidates || best == 0 {
				t.Errorf("call %d: %d scores, %d of them the best, for %d candidates", call.N, len(scores), best, candidates)
			}
			continue
		}
		var kept struct {
			NodeNames []string
			Nodes     *struct {
				Items []struct{ Metadata struct{ Name string } }
			}
			FailedNodes map[string]string
			Error       string
		}
		s.post("/scheduler/filter", call.Request, &kept)
		names := kept.NodeNames
		if kept.Nodes != nil {
			for _, n := range kept.Nodes.Items {
				names = append(names, n.Metadata.Name)
			}
		}
		if len(names) == 0 || len(names)+len(kept.FailedNodes) != candidates || kept.Error != "" {
			t.Errorf("call %d: %d kept and %d failed of %d, error %q", call.N, len(names), len(kept.FailedNodes), candidates, kept.Error)
		}
		if candidates > 1 {
			for _, n := range names {
				var number int
				fmt.Sscanf(n, "gb200-b-%d", &number)
				_, clique := rackOf(n[6:7], number)
				gangs[fmt.Sprint(n[6:7], clique)] = true
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(gangs) != 1 {
		t.Errorf("the pods of one gang were sent to %v, want one clique", gangs)
	}
}

// jobSubmit runs the Slurm plugin's script in a real Lua, with a table where slurmctld has its job.
func (s *caller) jobSubmit(t *testing.T) {
	lua, err := exec.LookPath("lua5.4")
	if err == nil {
		err = exec.Command(lua, "-e", `require("socket")`).Run()
	}
	if err != nil {
		testenv.Unavailable(t, "lua5.4 with luasocket", err)
	}
	dir := t.TempDir()
	host, port, _ := strings.Cut(strings.TrimPrefix(s.base, "http://"), ":")
	script, _ := filepath.Abs("../../deploy/slurm/job_submit.lua")
	const patient = 5 * time.Second
	run := func(port, job string) (segment string, took time.Duration) {
		t.Helper()
		conf := filepath.Join(dir, "conf")
		// A busy machine may need longer than slurmctld would wait.
		if err := os.WriteFile(conf, []byte(fmt.Sprintf("host=%q; port=%s; timeout=%g", host, port, patient.Seconds())), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(lua, "-e", `
			slurm = {SUCCESS = 0, log_info = function() end, log_user = function() end}
			dofile(os.getenv("SCRIPT"))
			local socket = require("socket")
			local job = `+job+`
			local start = socket.gettime()
			assert(slurm_job_submit(job, {}, 0) == slurm.SUCCESS)
			print(job.segment_size, math.floor((socket.gettime() - start) * 1e6))`)
		cmd.Env = append(os.Environ(), "SPILLWAY_JOB_SUBMIT_CONF="+conf, "SCRIPT="+script)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var us int64
		if _, err := fmt.Sscan(string(out), &segment, &us); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return segment, time.Duration(us) * time.Microsecond
	}
	gang := `{name="n", user_name="u", min_nodes=8, tres_per_node="gres/gpu:4", time_limit=60, segment_size=65534}`
	if segment, took := run(port, gang); segment != "8" {
		t.Errorf("got segment %s after %s, want 8", segment, took)
	}
	if segment, _ := run(port, `{name="n", min_nodes=8, tres_per_node="gres/gpu:4", segment_size=4}`); segment != "4" {
		t.Errorf("the user's own segment became %s", segment)
	}
	if segment, _ := run(port, `{name="n", min_nodes=8, tres_per_node="gres/gpu:4"}`); segment != "nil" {
		t.Errorf("Slurm before 25.11.2, whose Lua knows no segments, got segment %s", segment)
	}
	if segment, _ := run(port, `{name="n", min_nodes=1, tres_per_node="gres/gpu:2", segment_size=65534}`); segment != "65534" {
		t.Errorf("a job of one node got segment %s", segment)
	}
	if segment, _ := run(port, `{}`); segment != "nil" {
		t.Errorf("a job that says nothing got segment %s", segment)
	}
	if segment, took := run("1", gang); segment != "65534" || took >= patient {
		t.Errorf("nobody listens: segment %s after %s, want the job as it came, before the call gives up waiting", segment, took)
	}
}

// wrapper runs the submit wrapper with a stand-in for sbatch that prints its arguments.
func (s *caller) wrapper(t *testing.T) {
	for _, program := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			testenv.Unavailable(t, program, err)
		}
	}
	dir := t.TempDir()
	sbatch, job := filepath.Join(dir, "sbatch"), filepath.Join(dir, "job.sh")
	for path, text := range map[string]string{
		sbatch: "#!/bin/bash\necho \"Submitted batch job 4711\"\nprintf '%s\\n' \"$@\"\nexit 3\n",
		job:    "#!/bin/bash\n#SBATCH --nodes=8 --gres=gpu:4\n#SBATCH -t 1:00:00\nsrun train\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(url, timeout string, args ...string) string {
		t.Helper()
		cmd := exec.Command("bash", append([]string{"../../deploy/slurm/spillway-sbatch.sh"}, args...)...)
		cmd.Env = append(os.Environ(), "SPILLWAY_URL="+url, "SPILLWAY_SBATCH="+sbatch, "SPILLWAY_TIMEOUT="+timeout)
		out, err := cmd.Output()
		if code := cmd.ProcessState.ExitCode(); code != 3 {
			t.Errorf("exit %d (%v), want sbatch's own 3", code, err)
		}
		return strings.Join(strings.Fields(strings.TrimPrefix(string(out), "Submitted batch job 4711\n")), " ")
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"what the script asks":   {[]string{job, "--nodes=2"}, "--segment=8 " + job + " --nodes=2"},
		"the command line wins":  {[]string{"-N", "4", job}, "--segment=4 -N 4 " + job},
		"a segment of one's own": {[]string{"--segment=2", job}, "--segment=2 " + job},
		"one node":               {[]string{"-N1", "--gpus-per-node=4", "true"}, "-N1 --gpus-per-node=4 true"},
	} {
		if got := run(s.base, "5", test.args...); got != test.want {
			t.Errorf("%s: sbatch got %q, want %q", name, got, test.want)
		}
	}
	start := time.Now()
	if got := run("http://127.0.0.1:1", "0.02", job); got != job || time.Since(start) > 2*time.Second {
		t.Errorf("nobody listens: sbatch got %q after %s, want the job as it came", got, time.Since(start))
	}
}

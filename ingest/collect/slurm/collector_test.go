package slurm

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

// running starts a collector; the returned function ends it.
func runCollector(t *testing.T, c *Collector, out collect.Emitter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, out) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// hasRun says whether a record of a job in a state came by one way.
func hasRun(records []event.Record, job string, state event.State, source string) bool {
	for _, p := range collecttest.Placements(records) {
		if p.JobId == job && p.State == state && p.Source == source {
			return true
		}
	}
	return false
}

// without takes jobs out of a recorded document.
func without(t *testing.T, doc []byte, ids ...string) []byte {
	t.Helper()
	s := string(doc)
	for _, id := range ids {
		at := strings.Index(s, `"job_id":`+id+`,`)
		if at < 0 {
			t.Fatalf("no job %s in the document", id)
		}
		// Renumber it: the document then lists another job in its place.
		s = s[:at] + `"job_id":9` + id + "," + s[at+len(`"job_id":`+id+`,`):]
	}
	return []byte(s)
}

func TestRunsThatAreNotListedAreClosedByAccounting(t *testing.T) {
	restd := newFakeRestd(t)
	server := httptest.NewServer(restd)
	defer server.Close()
	cfg := restConfig(t, server.URL)
	cfg.LookBack = 0
	out := &collecttest.Sink{}
	defer runCollector(t, collector(t, cfg, Deps{}), out)()
	out.Wait(t, "job 16 runs", func(r []event.Record) bool { return hasRun(r, "16", event.State_RUNNING, SourceREST) })
	restd.set(func() { restd.jobs = without(t, restd.jobs, "16"); restd.jobsAt += 1000 })
	out.Wait(t, "accounting says that job 16 was cancelled", func(r []event.Record) bool {
		return hasRun(r, "16", event.State_CANCELLED, SourceSlurmDB)
	})
	if n := restd.questions("/slurmdb/v0.0.42/job/16"); n != 1 {
		t.Errorf("accounting was asked %d times", n)
	}
}

func TestRunsVanishWhenAccountingDoesNotAnswer(t *testing.T) {
	restd := newFakeRestd(t)
	restd.accountingStatus = http.StatusBadGateway
	server := httptest.NewServer(restd)
	defer server.Close()
	cfg := restConfig(t, server.URL)
	cfg.LookBack, cfg.CloseWait = 0, 100*time.Millisecond
	out := &collecttest.Sink{}
	defer runCollector(t, collector(t, cfg, Deps{}), out)()
	out.Wait(t, "job 16 runs", func(r []event.Record) bool { return hasRun(r, "16", event.State_RUNNING, SourceREST) })
	restd.set(func() { restd.jobs = without(t, restd.jobs, "16"); restd.jobsAt += 1000 })
	out.Wait(t, "the problem is reported", func(r []event.Record) bool {
		for _, rec := range r {
			if s, ok := rec.(*event.Source); ok && strings.Contains(s.Problem, "accounting") && s.GoodAtMs != nil {
				return true
			}
		}
		return false
	})
	out.Wait(t, "job 16 vanishes", func(r []event.Record) bool { return hasRun(r, "16", event.State_VANISHED, SourceREST) })
}

func TestRunsThatEndedWhileNothingRanAreFoundAtTheStart(t *testing.T) {
	restd := newFakeRestd(t)
	restd.jobs = without(t, restd.jobs, "16") // it ended, and Slurm forgot it
	server := httptest.NewServer(restd)
	defer server.Close()
	out := &collecttest.Sink{}
	defer runCollector(t, collector(t, restConfig(t, server.URL), Deps{}), out)()
	out.Wait(t, "accounting says that job 16 was cancelled", func(r []event.Record) bool {
		return hasRun(r, "16", event.State_CANCELLED, SourceSlurmDB)
	})
	polls := func() int { return restd.questions("/slurm/v0.0.42/jobs/?update_time=1795960143") }
	before := polls()
	testenv.Until(t, "more polls, for changes only", func() bool { return polls() > before+3 })
	if n := restd.questions("/slurmdb/"); n != 1 {
		t.Errorf("accounting was asked %d times", n)
	}
}

// TestSourceRecordsSaySinceWhenAllIsTold: what ended while no collector ran, and accounting does not tell, ends by this.
func TestSourceRecordsSaySinceWhenAllIsTold(t *testing.T) {
	restd := newFakeRestd(t)
	server := httptest.NewServer(restd)
	defer server.Close()
	out := &collecttest.Sink{}
	begun := time.Now().UnixMilli()
	defer runCollector(t, collector(t, restConfig(t, server.URL), Deps{}), out)()
	out.Wait(t, "a source record says so of jobs and nodes", func(records []event.Record) bool {
		for _, r := range records {
			if s, ok := r.(*event.Source); ok {
				told := map[string]bool{}
				for _, x := range s.GetTold() {
					told[x.GetSource()] = x.GetSinceMs() >= begun && x.GetGoodAtMs() >= x.GetSinceMs()
				}
				return len(told) == 3 && told[SourceREST] && told[SourceSqueue] && told[SourceNodes]
			}
		}
		return false
	})
}

// TestWhatDoesNotChangeIsToldAgainByREST: slurmrestd answers that nothing changed for as long as nothing does.
func TestWhatDoesNotChangeIsToldAgainByREST(t *testing.T) {
	restd := newFakeRestd(t)
	restd.jobsAt = 1 // nothing changes
	server := httptest.NewServer(restd)
	defer server.Close()
	cfg := restConfig(t, server.URL)
	cfg.Refresh = 200 * time.Millisecond
	out := &collecttest.Sink{}
	defer runCollector(t, collector(t, cfg, Deps{}), out)()
	out.Wait(t, "a job and a node are told three times", func(records []event.Record) bool {
		jobs, nodes := 0, 0
		for _, r := range records {
			switch {
			case r.RecordKey() == "nvl/16" && hasRun([]event.Record{r}, "16", event.State_RUNNING, SourceREST):
				jobs++
			case r.RecordTopic() == event.TopicNode && r.RecordKey() == "nvl/gb-r01-n01":
				nodes++
			}
		}
		return jobs >= 3 && nodes >= 3
	})
	for _, what := range []string{"jobs", "nodes"} {
		if n := restd.questions("/slurm/v0.0.42/" + what + "/?update_time=17"); n == 0 {
			t.Errorf("%s were never asked for changes alone", what)
		}
	}
}

func TestCommandFailures(t *testing.T) {
	good := `{"jobs":[],"errors":[],"warnings":[]}`
	for name, c := range map[string]struct {
		argv         []string
		reason, says string
	}{
		"a tool that is not there":              {[]string{"/nonexistent/squeue"}, "command", "rest.url"},
		"a tool that fails, with its own words": {script(t, `echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1`), "command", "Unable to contact slurm controller"},
		"good output, but the tool fails":       {script(t, `echo '`+good+`'; echo late >&2; exit 3`), "command", "exit status 3"},
		"text instead of JSON":                  {script(t, `echo 'JOBID PARTITION'`), "document", "JOBID PARTITION"},
		"half a document":                       {script(t, `printf '{"jobs":[{"job_id":1'`), "document", "byte"},
		"a tool that hangs":                     {script(t, `exec sleep 60`), "timeout", "deadline"},
		"a tool that never stops talking":       {script(t, `exec yes x`), "document", "not a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig()
			p := NewPoller(&cfg, quiet(), func(string, int) {})
			timeout := 5 * time.Second
			if c.reason == "timeout" {
				timeout = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			source := commandSource{Commands{Jobs: c.argv}}
			records, _, err := p.Observe(source.Jobs(ctx, time.Time{}), source.Name(), time.Unix(1795960150, 0))
			if len(records) > 0 || reasonOf(err) != c.reason || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%d records, reason %q, %v", len(records), reasonOf(err), err)
			}
		})
	}
}

func TestSacctIsAskedInUTCAndInParts(t *testing.T) {
	asked := t.TempDir() + "/asked"
	argv := append(script(t, `echo "$TZ $*" >>`+asked+`; echo '{"jobs":[],"errors":[],"warnings":[]}'`), "--json", "-D")
	ids := make([]uint32, idsPerCommand+2)
	for i := range ids {
		ids[i] = uint32(1000 + i)
	}
	zone := time.FixedZone("far", 9*3600)
	if _, err := (sacct{argv}).Runs(t.Context(), ids, time.Unix(1795959896, 0).In(zone), time.Unix(1795960143, 0).In(zone))(nil); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(string(document(t, asked))), "\n")
	window := "UTC --json -D -S 2026-11-29T13:44:56 -E 2026-11-29T13:49:03 -j "
	if len(got) != 2 || !strings.HasPrefix(got[0], window+"1000,1001,") || got[1] != window+"1500,1501" {
		t.Errorf("asked %d times: %.120q", len(got), got)
	}
}

// topic is a MessageSource of messages that are there.
type topic struct {
	mu       sync.Mutex
	messages []Message
	done     []int64
	failures int
}

func (s *topic) Next(ctx context.Context) (Message, error) {
	s.mu.Lock()
	if s.failures > 0 {
		s.failures--
		s.mu.Unlock()
		return Message{}, errors.New("the broker is away")
	}
	if len(s.messages) > 0 {
		m := s.messages[0]
		s.messages = s.messages[1:]
		s.mu.Unlock()
		return m, nil
	}
	s.mu.Unlock()
	<-ctx.Done()
	return Message{}, ctx.Err()
}

func (s *topic) Done(_ context.Context, m Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.done, m.Offset)
	return nil
}

func (s *topic) finished() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.done)
}

func TestJobcompMessagesBecomeRecords(t *testing.T) {
	restd := newFakeRestd(t)
	server := httptest.NewServer(restd)
	defer server.Close()
	started := `{"jobid":77,"cluster":"nvl","username":"u","job_name":"j","@submit":"2026-11-29T13:44:55","@start":"2026-11-29T13:44:56","nodes":"n[1-2]","state":null,"tres_alloc":"gres/gpu=8","time_limit":60}`
	finished := strings.Replace(started, `"state":null`, `"state":"COMPLETED","@end":"2026-11-29T13:50:00","elapsed":5`, 1)
	cancelled := strings.NewReplacer(`"nodes":"n[1-2]"`, `"nodes":null`, `"jobid":77`, `"jobid":78`, "COMPLETED", "CANCELLED").Replace(finished)
	source := &topic{failures: 1, messages: []Message{
		{Topic: "fin", Offset: 10, Value: []byte(finished)}, // the topics are not ordered among each other
		{Topic: "start", Offset: 3, Value: []byte(started)},
		{Topic: "start", Offset: 4, Value: []byte(finished)},
		{Topic: "fin", Offset: 11, Value: []byte(`{"jobid":`)},
		{Topic: "fin", Offset: 12, Value: []byte(cancelled)},
	}}
	cfg := restConfig(t, server.URL)
	cfg.JobComp = JobComp{StartTopic: "start", FinishTopic: "fin", Group: "g"}
	reg := prometheus.NewRegistry()
	out := &collecttest.Sink{}
	out.Refuse(1) // no message is done before its record is stored
	stop := runCollector(t, collector(t, cfg, Deps{Messages: source, Registerer: reg}), out)
	defer stop()
	testenv.Until(t, "all messages are done", func() bool { return source.finished() == 5 })
	var got []string
	for _, r := range out.Records() {
		if p, ok := r.(*event.Placement); ok && p.Source == SourceJobComp {
			got = append(got, brief(p))
		}
	}
	want := "77 COMPLETED from 896 to 1200 n1: n2:|77 RUNNING from 896 n1: n2:|78 CANCELLED to 1200"
	if strings.Join(got, "|") != want {
		t.Errorf("got %q", got)
	}
	for series, want := range map[string]func(float64) bool{
		"spillway_collect_dropped_total jobcomp":  func(v float64) bool { return v == 2 },
		"spillway_collect_records_total jobcomp":  func(v float64) bool { return v == 3 },
		"spillway_collect_polls_total jobs":       func(v float64) bool { return v > 1 },
		"spillway_collect_seen jobs":              func(v float64) bool { return v == 20 },
		"spillway_collect_seen nodes":             func(v float64) bool { return v == 54 },
		"spillway_collect_last_good_age_seconds ": func(v float64) bool { return v >= 0 && v < 60 },
	} {
		testenv.Until(t, series, func() bool { return want(gathered(t, reg)[series]) })
	}
}

// gathered gives all series of a registry, by name and the value of their variable label.
func gathered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			label := ""
			for _, l := range m.Label {
				if l.GetName() != "source" {
					label = l.GetValue()
				}
			}
			out[f.GetName()+" "+label] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

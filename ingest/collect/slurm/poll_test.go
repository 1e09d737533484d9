package slurm

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
	"github.com/spillway-io/spillway/schemas/event"
)

// docJobs is a document as Slurm prints it.
func docJobs(jobs ...string) Jobs {
	return textJobs(`{"jobs":[` + strings.Join(jobs, ",") + `],"meta":{"slurm":{"cluster":"nvl"}},"errors":[],"warnings":[]}`)
}

func textJobs(doc string) Jobs {
	return func(yield func(*slurmjson.Job) error) (slurmjson.Meta, error) {
		return slurmjson.DecodeJobs(strings.NewReader(doc), yield)
	}
}

const unchanged = `{"jobs":[],"warnings":[{"description":"No job changes since update_time"}],"errors":[]}`

// polled is one job of a poll, runs named by sluid as since Slurm 25.11, or not named as before.
func polled(id int, states, rest string) string {
	return fmt.Sprintf(`{"job_id":%d,"name":"j","user_name":"u","submit_time":1795959000,"job_state":["%s"],%s}`, id, strings.ReplaceAll(states, ",", `","`), rest)
}

func runningJob(id int, sluid string, restart int) string {
	return polled(id, "RUNNING", fmt.Sprintf(`"step_id":{"sluid":"%s"},"restart_cnt":%d,"start_time":1795959500,"nodes":"n[1-2]","gres_detail":["gpu:4(IDX:0-3)","gpu:2(IDX:1-2)"],"tres_alloc_str":"gres/gpu=6"`, sluid, restart))
}

func pendingJob(id int, sluid string, restart int, more string) string {
	return polled(id, "PENDING", fmt.Sprintf(`"step_id":{"sluid":"%s"},"restart_cnt":%d,"nodes":"","tres_req_str":"node=2,gres/gpu=6"%s`, sluid, restart, more))
}

// rig is a Poller with a clock that moves ten seconds a poll, from 1795960000 on.
type rig struct {
	t     *testing.T
	p     *Poller
	now   time.Time
	notes map[string]int
}

func newRig(t *testing.T) *rig {
	cfg := testConfig()
	r := &rig{t: t, now: time.Unix(1795960000, 0).UTC(), notes: map[string]int{}}
	r.p = NewPoller(&cfg, quiet(), func(reason string, n int) { r.notes[reason] += n })
	return r
}

// brief is a record in a few words: job, state, times as seconds after 1795959000, and nodes with GPUs.
func brief(r event.Record) string {
	p := r.(*event.Placement)
	s := fmt.Sprintf("%s %v", p.JobId, p.State)
	if p.RunId != "" {
		s += " run " + p.RunId
	}
	sec := func(ms *int64) int64 { return *ms/1000 - 1795959000 }
	if p.StartMs != nil {
		s += fmt.Sprintf(" from %d", sec(p.StartMs))
	}
	switch {
	case p.EndEarliestMs != nil:
		s += fmt.Sprintf(" to %d..%d", sec(p.EndEarliestMs), sec(p.EndMs))
	case p.EndMs != nil:
		s += fmt.Sprintf(" to %d", sec(p.EndMs))
	}
	if p.PlannedStartMs != nil {
		s += fmt.Sprintf(" planned %d", sec(p.PlannedStartMs))
	}
	for _, n := range p.Placements {
		s += " " + n.Node + ":" + ranges(n.GpuIndex)
		if n.FromMs != nil {
			s += fmt.Sprintf("[from %d]", sec(n.FromMs))
		}
		if n.ToMs != nil {
			s += fmt.Sprintf("[to %d]", sec(n.ToMs))
		}
	}
	return s
}

func briefs(records []event.Record) []string {
	var out []string
	for _, r := range records {
		out = append(out, brief(r))
	}
	return out
}

// expect polls once and compares.
func (r *rig) expect(jobs Jobs, want ...string) {
	r.t.Helper()
	r.now = r.now.Add(10 * time.Second)
	records, _, err := r.p.Observe(jobs, SourceSqueue, r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	r.p.Commit()
	if diff := cmp.Diff(want, briefs(records)); diff != "" {
		r.t.Errorf("poll at %d (-want +got):\n%s", r.now.Unix()-1795959000, diff)
	}
}

func (r *rig) giveUp(want ...string) {
	r.t.Helper()
	records, err := r.p.GiveUp(time.Time{}, r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	r.p.Commit()
	if diff := cmp.Diff(want, briefs(records)); diff != "" {
		r.t.Errorf("given up (-want +got):\n%s", diff)
	}
}

func (r *rig) account(jobs Jobs, want ...string) {
	r.t.Helper()
	records, _, err := r.p.Account(jobs, SourceSacct, r.now, false)
	if err != nil {
		r.t.Fatal(err)
	}
	r.p.Commit()
	if diff := cmp.Diff(want, briefs(records)); diff != "" {
		r.t.Errorf("accounting (-want +got):\n%s", diff)
	}
}

const held = " from 500 n1:0-3 n2:1-2"

func TestOnlyChangesAreRecords(t *testing.T) {
	r := newRig(t)
	r.expect(docJobs(runningJob(1, "a", 0), pendingJob(2, "b", 0, "")), "1 RUNNING run a"+held, "2 PENDING run b")
	r.expect(docJobs(runningJob(1, "a", 0), pendingJob(2, "b", 0, "")))
	r.expect(textJobs(unchanged))
	r.expect(docJobs(runningJob(1, "a", 0), pendingJob(2, "b", 0, `,"start_time":1795969000`)), "2 PENDING run b planned 10000")
	r.expect(docJobs(runningJob(1, "a", 0), pendingJob(2, "b", 0, `,"start_time":1795969030`))) // a plan that moved a little
	r.expect(docJobs(runningJob(1, "a", 0), pendingJob(2, "b", 0, `,"start_time":1795970000`)), "2 PENDING run b planned 11000")
	r.now = r.now.Add(16 * time.Minute)
	r.expect(textJobs(unchanged)) // nothing to refresh from
	r.expect(docJobs(runningJob(1, "a", 0), pendingJob(2, "b", 0, `,"start_time":1795970000`)),
		"1 RUNNING run a"+held, "2 PENDING run b planned 11000")
	r.expect(docJobs(runningJob(1, "a", 0), pendingJob(2, "b", 0, `,"start_time":1795970000`)))
}

func TestAnEndIsToldOnceAndKeepsTheGPUs(t *testing.T) {
	r := newRig(t)
	ended := polled(1, "COMPLETED", `"step_id":{"sluid":"a"},"restart_cnt":0,"start_time":1795959500,"end_time":1795960015,"nodes":"n[1-2]","gres_detail":[]`)
	r.expect(docJobs(runningJob(1, "a", 0)), "1 RUNNING run a"+held)
	r.expect(docJobs(ended), "1 COMPLETED run a from 500 to 1015 n1:0-3 n2:1-2")
	r.expect(docJobs(ended, runningJob(3, "c", 0)), "3 RUNNING run c"+held)
	r.now = r.now.Add(time.Hour)
	r.expect(docJobs(ended, runningJob(3, "c", 0)), "3 RUNNING run c"+held) // a refresh is of what goes on
	r.expect(docJobs(runningJob(3, "c", 0)))                                // forgotten by Slurm, and told before
	if ids, _ := r.p.Missing(); len(ids) > 0 || len(r.p.state.known) != 1 {
		t.Errorf("missing %v, known %v", ids, r.p.state.known)
	}
}

func TestARefusedDocumentChangesNothing(t *testing.T) {
	good := `{"jobs":[` + runningJob(1, "a", 0) + "," + runningJob(2, "b", 0) + `],"meta":{"slurm":{"cluster":"nvl"}},"errors":[],"warnings":[]}`
	for i := range len(good) {
		r := newRig(t)
		r.expect(docJobs(runningJob(1, "a", 0), pendingJob(3, "c", 0, "")), "1 RUNNING run a"+held, "3 PENDING run c")
		records, _, err := r.p.Observe(textJobs(good[:i]), SourceSqueue, r.now)
		if err == nil || len(records) > 0 {
			t.Fatalf("the first %d bytes of a document were taken: %v", i, briefs(records))
		}
		r.p.Commit()
		r.expect(docJobs(runningJob(1, "a", 0), pendingJob(3, "c", 0, "")))
	}
	for name, doc := range map[string]string{
		"errors beside jobs":  strings.Replace(good, `"errors":[]`, `"errors":[{"error":"x"}]`, 1),
		"a job listed twice":  strings.Replace(good, `"job_id":2`, `"job_id":1`, 1),
		"a job without an id": strings.Replace(good, `"job_id":2`, `"job_id":0`, 1),
		"two documents":       good + good,
		"no cluster anywhere": strings.Replace(good, `"cluster":"nvl"`, `"cluster":""`, 1),
		"not JSON":            "slurm_load_jobs error: Unable to contact slurm controller",
	} {
		t.Run(name, func(t *testing.T) {
			p := newRig(t).p
			records, _, err := p.Observe(textJobs(doc), SourceSqueue, time.Unix(1795960000, 0))
			if err == nil || len(records) > 0 {
				t.Errorf("taken: %v", briefs(records))
			}
			p.Commit()
			if p.Known() != 0 {
				t.Errorf("%d jobs are known", p.Known())
			}
		})
	}
}

func TestWhatIsNotCommittedIsProposedAgain(t *testing.T) {
	r := newRig(t)
	for range 3 {
		records, _, err := r.p.Observe(docJobs(runningJob(1, "a", 0)), SourceSqueue, r.now)
		if err != nil || len(records) != 1 {
			t.Fatalf("%d records, %v", len(records), err)
		}
	}
	r.p.Commit()
	for range 3 { // the end by accounting, too
		records, _, err := r.p.Observe(docJobs(runningJob(2, "b", 0)), SourceSqueue, r.now)
		if err != nil || len(records) != 1 {
			t.Fatalf("%d records, %v", len(records), err)
		}
	}
	r.p.Commit()
	for range 2 {
		records, err := r.p.GiveUp(time.Time{}, r.now)
		if err != nil || len(records) != 1 {
			t.Fatalf("%d records, %v", len(records), err)
		}
	}
}

func TestARunThatIsNoLongerListed(t *testing.T) {
	vanished := func(t *testing.T) *rig {
		r := newRig(t)
		r.expect(docJobs(runningJob(1, "a", 0), runningJob(2, "b", 0)), "1 RUNNING run a"+held, "2 RUNNING run b"+held)
		r.expect(docJobs(runningJob(2, "b", 0)))
		if ids, since := r.p.Missing(); len(ids) != 1 || ids[0] != 1 || since.Unix() != 1795960010 {
			t.Fatalf("missing %v since %v", ids, since)
		}
		return r
	}
	sacct := func(state, more string) string {
		return fmt.Sprintf(`{"job_id":1,"name":"j","user":"u","sluid":"a","state":{"current":["%s"]},"time":{"submission":1795959000,"start":1795959500,"end":1795960013},"nodes":"n[1-2]"%s}`,
			strings.ReplaceAll(state, ",", `","`), more)
	}
	t.Run("accounting knows the end, and the GPUs are remembered", func(t *testing.T) {
		r := vanished(t)
		r.account(docJobs(sacct("FAILED", "")), "1 FAILED run a from 500 to 1013 n1:0-3 n2:1-2")
		r.giveUp()
		r.expect(docJobs(runningJob(2, "b", 0)))
	})
	t.Run("accounting is behind and says that it runs", func(t *testing.T) {
		r := vanished(t)
		r.account(docJobs(sacct("RUNNING", "")))
		r.giveUp("1 VANISHED run a from 500 to 1010..1020 n1:0-3 n2:1-2")
	})
	t.Run("accounting knows only another run of the job", func(t *testing.T) {
		r := vanished(t)
		r.account(docJobs(strings.Replace(sacct("CANCELLED", ""), `"a"`, `"z"`, 1)), "1 CANCELLED run z from 500 to 1013 n1: n2:")
		r.giveUp("1 VANISHED run a from 500 to 1010..1020 n1:0-3 n2:1-2")
	})
	t.Run("it waits while there is hope", func(t *testing.T) {
		r := vanished(t)
		if records, err := r.p.GiveUp(r.now.Add(-time.Second), r.now); err != nil || len(records) > 0 {
			t.Errorf("given up: %v, %v", briefs(records), err)
		}
		r.p.Commit()
		r.expect(docJobs(runningJob(2, "b", 0)))
		r.giveUp("1 VANISHED run a from 500 to 1010..1020 n1:0-3 n2:1-2") // not 1030: it was not listed at 1020
	})
	t.Run("it is listed again", func(t *testing.T) {
		r := vanished(t)
		r.expect(docJobs(runningJob(1, "a", 0), runningJob(2, "b", 0)), "1 RUNNING run a"+held)
		r.giveUp()
	})
	t.Run("no change and failed answers end nothing", func(t *testing.T) {
		r := newRig(t)
		r.expect(docJobs(runningJob(1, "a", 0)), "1 RUNNING run a"+held)
		r.expect(textJobs(unchanged))
		if _, _, err := r.p.Observe(func(func(*slurmjson.Job) error) (slurmjson.Meta, error) { return slurmjson.Meta{}, io.ErrUnexpectedEOF }, SourceREST, r.now); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
		r.giveUp()
		r.expect(docJobs(runningJob(1, "a", 0)))
	})
	t.Run("a pending job that is gone never started", func(t *testing.T) {
		r := newRig(t)
		r.expect(docJobs(runningJob(1, "a", 0), pendingJob(2, "b", 0, `,"start_time":1795969000,"state_reason":"Priority"`)), "1 RUNNING run a"+held, "2 PENDING run b planned 10000")
		r.expect(docJobs(runningJob(1, "a", 0)))
		r.giveUp("2 VANISHED run b to 1010..1020")
	})
	t.Run("a run last seen completing has told its end", func(t *testing.T) {
		r := newRig(t)
		r.expect(docJobs(runningJob(1, "a", 0), runningJob(2, "b", 0)), "1 RUNNING run a"+held, "2 RUNNING run b"+held)
		r.expect(docJobs(polled(1, "TIMEOUT,COMPLETING", `"step_id":{"sluid":"a"},"restart_cnt":0,"start_time":1795959500,"end_time":1795960018,"nodes":"n2"`), runningJob(2, "b", 0)),
			"1 COMPLETING run a from 500 n2:1-2 n1:0-3") // no job_resources: the memory has the rest
		r.expect(docJobs(runningJob(2, "b", 0)))
		r.giveUp("1 TIMEOUT run a from 500 to 1018 n2:1-2 n1:0-3")
	})
}

func TestRequeues(t *testing.T) {
	for name, sluids := range map[string][2]string{"runs named by sluid": {"a", "b"}, "runs told apart by the restart count": {"", ""}} {
		t.Run(name, func(t *testing.T) {
			run := func(i int) string {
				if sluids[i] == "" {
					return ""
				}
				return " run " + sluids[i]
			}
			r := newRig(t)
			completing := polled(1, "PENDING,COMPLETING", fmt.Sprintf(`"step_id":{"sluid":"%s"},"restart_cnt":1,"start_time":1795960018,"end_time":1795961018,"nodes":"n[1-2]"`, sluids[0]))
			next := strings.Replace(pendingJob(1, sluids[1], 1, ""), "1795959000", "1795960025", 1)
			r.expect(docJobs(runningJob(1, sluids[0], 0)), "1 RUNNING"+run(0)+held)
			r.expect(docJobs(completing), "1 COMPLETING"+run(0)+held)
			r.expect(docJobs(completing))
			r.expect(docJobs(next), "1 PENDING"+run(1))
			r.giveUp("1 REQUEUED" + run(0) + " from 500 to 1010..1040 n1:0-3 n2:1-2") // the submit time of the next run is before the last sight
			r.expect(docJobs(runningJob(1, sluids[1], 1)), "1 RUNNING"+run(1)+held)
		})
	}
	t.Run("between two polls", func(t *testing.T) {
		r := newRig(t)
		r.expect(docJobs(runningJob(1, "a", 0)), "1 RUNNING run a"+held)
		r.expect(docJobs(strings.Replace(pendingJob(1, "b", 1, ""), "1795959000", "1795960014", 1)), "1 PENDING run b")
		r.giveUp("1 REQUEUED run a from 500 to 1010..1014 n1:0-3 n2:1-2")
	})
	t.Run("from running to running", func(t *testing.T) {
		r := newRig(t)
		r.expect(docJobs(runningJob(1, "a", 0)), "1 RUNNING run a"+held)
		r.expect(docJobs(strings.Replace(runningJob(1, "b", 1), "1795959500", "1795960015", 1)), "1 RUNNING run b from 1015 n1:0-3 n2:1-2")
		r.giveUp("1 REQUEUED run a from 500 to 1010..1020 n1:0-3 n2:1-2")
	})
	t.Run("first seen completing: when it started is not known", func(t *testing.T) {
		r := newRig(t)
		r.expect(docJobs(polled(1, "PENDING,COMPLETING", `"step_id":{"sluid":"a"},"restart_cnt":1,"start_time":1795960018,"nodes":"n[1-2]"`)))
		if r.notes["start_unknown"] != 1 {
			t.Errorf("notes %v", r.notes)
		}
		r.expect(docJobs(pendingJob(1, "b", 1, "")), "1 PENDING run b")
		r.giveUp()
	})
}

func TestANodeThatJoinedARunIsHeldSinceTheResize(t *testing.T) {
	r := newRig(t)
	r.expect(docJobs(runningJob(1, "a", 0)), "1 RUNNING run a"+held)
	grown := polled(1, "RUNNING", `"step_id":{"sluid":"a"},"restart_cnt":0,"start_time":1795959500,"resize_time":1795960017,"nodes":"n[1,3]","gres_detail":["gpu:4(IDX:0-3)","gpu:4(IDX:0-3)"]`)
	r.expect(docJobs(grown), "1 RUNNING run a from 500 n1:0-3 n3:0-3[from 1017]")
	r.expect(docJobs(grown))
}

func TestAnEmptyAnswerIsNotBelievedAtOnce(t *testing.T) {
	r := newRig(t)
	r.expect(docJobs()) // an idle cluster
	r.expect(docJobs(runningJob(1, "a", 0)), "1 RUNNING run a"+held)
	empty := func() error {
		r.now = r.now.Add(10 * time.Second)
		_, _, err := r.p.Observe(docJobs(), SourceSqueue, r.now)
		return err
	}
	if err := empty(); err == nil || !strings.Contains(err.Error(), "PrivateData") {
		t.Errorf("the first empty answer: %v", err)
	}
	r.expect(docJobs(runningJob(1, "a", 0)))
	for i := range emptyPolls {
		if err := empty(); (err == nil) != (i == emptyPolls-1) {
			t.Errorf("empty answer %d: %v", i+1, err)
		}
	}
	r.p.Commit()
	r.giveUp("1 VANISHED run a from 500 to 1040..1070 n1:0-3 n2:1-2")
}

func TestAJobThatCannotBeReadIsNotMissing(t *testing.T) {
	r := newRig(t)
	r.expect(docJobs(runningJob(1, "a", 0)), "1 RUNNING run a"+held)
	r.expect(docJobs(polled(1, "FLYING", `"nodes":"n1"`)))
	r.giveUp()
	r.expect(docJobs(runningJob(1, "a", 0)))
	if r.notes["state_unknown"] != 1 {
		t.Errorf("notes %v", r.notes)
	}
}

// TestSinceWhenAllIsTold: only what is told of the whole list makes void what an earlier run of the collector told.
func TestSinceWhenAllIsTold(t *testing.T) {
	flying := polled(2, "FLYING", `"nodes":"n1"`)
	for name, c := range map[string]struct {
		polls []Jobs
		want  int64 // seconds after 1795960000; -1 = not
	}{
		"the first answer":                  {[]Jobs{docJobs(runningJob(1, "a", 0))}, 10},
		"later answers":                     {[]Jobs{docJobs(runningJob(1, "a", 0)), docJobs(runningJob(1, "a", 0), pendingJob(2, "b", 0, "")), textJobs(unchanged)}, 10},
		"nothing read yet":                  {nil, -1},
		"no job at all":                     {[]Jobs{docJobs(), docJobs()}, -1},
		"no job at all, again and again":    {[]Jobs{docJobs(), docJobs(), docJobs()}, 10},
		"no job, and nothing changed":       {[]Jobs{docJobs(), textJobs(unchanged), textJobs(unchanged)}, 10},
		"a job that cannot be read":         {[]Jobs{docJobs(runningJob(1, "a", 0), flying)}, -1},
		"a job that can be read again":      {[]Jobs{docJobs(runningJob(1, "a", 0), flying), docJobs(runningJob(1, "a", 0), runningJob(2, "b", 0))}, 10},
		"a job that is gone":                {[]Jobs{docJobs(runningJob(1, "a", 0), flying), docJobs(runningJob(1, "a", 0))}, 10},
		"a job that breaks the contract":    {[]Jobs{docJobs(runningJob(1, "a", 0), strings.Replace(runningJob(2, "b", 0), "1795959500", "4195959500", 1))}, -1},
		"a job that could be read at first": {[]Jobs{docJobs(runningJob(1, "a", 0), runningJob(2, "b", 0)), docJobs(runningJob(1, "a", 0), flying)}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, jobs := range c.polls {
				r.now = r.now.Add(10 * time.Second)
				if _, _, err := r.p.Observe(jobs, SourceSqueue, r.now); err != nil {
					t.Fatal(err)
				}
				r.p.Commit()
			}
			got := int64(-1)
			if since := r.p.ToldSince(); !since.IsZero() {
				got = since.Unix() - 1795960000
			}
			if got != c.want {
				t.Errorf("told since %d, want %d; %v", got, c.want, r.notes)
			}
		})
	}
}

func TestTextThatIsNotUTF8CostsNoDocument(t *testing.T) {
	r := newRig(t)
	r.expect(docJobs(strings.Replace(runningJob(1, "a", 0), `"name":"j"`, "\"name\":\"caf\xe9\"", 1), runningJob(2, "b", 0)),
		"1 RUNNING run a"+held, "2 RUNNING run b"+held)
	if name := mustDecode(t, r.p.state.known[jobKey{"", 1}].rec).Name; name != "caf\uFFFD" {
		t.Errorf("the name is %q", name)
	}
}

func mustDecode(t *testing.T, b []byte) *event.Placement {
	t.Helper()
	p, err := decodePlacement(b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAccountingOfManyRuns(t *testing.T) {
	r := newRig(t)
	r.account(fileJobs(samples+"rest_slurmdb_job14.json"),
		"14 REQUEUED run s2MSM8KRTECY00 from 896 to 1175 gb-r01-n15:", "14 CANCELLED run s2MSM8KS2Z7E00 from 1296 to 1422 gb-r01-n12:")
	for open, want := range map[bool]map[bool]int{false: {true: 6}, true: {true: 6, false: 15}} {
		records, _, err := r.p.Account(fileJobs(samples+"sacct.json"), SourceSacct, r.now, open)
		if err != nil {
			t.Fatal(err)
		}
		got := map[bool]int{} // by whether it ended
		for _, p := range collecttest.Placements(records) {
			got[p.State.Ended()]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with what goes on %v (-want +got):\n%s", open, diff)
		}
	}
}

func docNodes(nodes ...string) Nodes {
	doc := `{"nodes":[` + strings.Join(nodes, ",") + `],"meta":{"slurm":{"cluster":"nvl"}},"errors":[],"warnings":[]}`
	return func(yield func(*slurmjson.Node) error) (slurmjson.Meta, error) {
		return slurmjson.DecodeNodes(strings.NewReader(doc), yield)
	}
}

func TestNodeChanges(t *testing.T) {
	cfg := testConfig()
	p := NewNodePoller(&cfg, quiet(), func(string, int) {})
	now := time.Unix(1795960000, 0)
	node := func(name, state string) string {
		return fmt.Sprintf(`{"name":"%s","state":["%s"],"gres":"gpu:gb200:4"}`, name, strings.ReplaceAll(state, ",", `","`))
	}
	expect := func(doc Nodes, want ...string) {
		t.Helper()
		now = now.Add(time.Minute)
		records, _, err := p.Observe(doc, now)
		if err != nil {
			t.Fatal(err)
		}
		p.Commit()
		var got []string
		for _, r := range records {
			n := r.(*event.Node)
			s := fmt.Sprintf("%s %s %d", n.RecordKey(), n.StateRaw, n.GetGpusPresent())
			if n.Removed {
				s = n.RecordKey() + " removed"
			} else if !n.GetSchedulable() {
				s += " not schedulable"
			}
			got = append(got, s)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if since := p.ToldSince(); !since.IsZero() {
		t.Errorf("before the first answer all is told since %v", since)
	}
	expect(docNodes(node("n1", "IDLE"), node("n2", "MIXED")), "nvl/n1 IDLE 4", "nvl/n2 MIXED 4")
	first := now
	defer func() {
		if since := p.ToldSince(); !since.Equal(first) {
			t.Errorf("all is told since %v, want %v", since, first)
		}
		expect(docNodes(node("n1", "IDLE"), node(`n\u0001`, "IDLE")))
		if since := p.ToldSince(); !since.IsZero() {
			t.Errorf("with a node whose record breaks the contract all is told since %v", since)
		}
	}()
	expect(docNodes(node("n1", "ALLOCATED,PLANNED"), node("n2", "IDLE")))
	expect(docNodes(node("n1", "ALLOCATED,DRAIN"), node("n2", "IDLE")), "nvl/n1 ALLOCATED,DRAIN 4 not schedulable")
	expect(docNodes(node("n1", "ALLOCATED,DRAIN")), "nvl/n2 removed")
	expect(docNodes(node("n1", "IDLE")), "nvl/n1 IDLE 4")
	if _, _, err := p.Observe(docNodes(), now); err == nil {
		t.Error("an empty answer was believed at once")
	}
	if _, _, err := p.Observe(docNodes(node("n1", "IDLE"), node("n1", "IDLE")), now); err == nil {
		t.Error("a node listed twice was taken")
	}
	expect(docNodes(node("n1", "IDLE")))
	now = now.Add(cfg.Refresh)
	expect(docNodes(node("n1", "IDLE")), "nvl/n1 IDLE 4")
}

func TestRunsAreToldApartByTheBestKeyBothHave(t *testing.T) {
	for name, c := range map[string]struct {
		a, b runKey
		same bool
	}{
		"one sluid, whatever the rest":         {runKey{"x", 0, 10}, runKey{"x", 1, 20}, true},
		"two sluids, whatever the rest":        {runKey{"x", 0, 10}, runKey{"y", 0, 10}, false},
		"one has no sluid: the restart":        {runKey{"x", 1, 10}, runKey{"", 1, 20}, true},
		"another restart":                      {runKey{"x", 1, 10}, runKey{"", 2, 10}, false},
		"one has no restart either: the start": {runKey{"", -1, 10}, runKey{"", 2, 10}, true},
		"another start":                        {runKey{"", -1, 10}, runKey{"", -1, 20}, false},
		"nothing in common":                    {runKey{"x", 0, 0}, runKey{"", -1, 20}, true},
	} {
		if c.a.same(c.b) != c.same || c.b.same(c.a) != c.same {
			t.Errorf("%s: %+v and %+v", name, c.a, c.b)
		}
	}
}

func TestTheClusterCanBeNamedByConfiguration(t *testing.T) {
	cfg := testConfig()
	cfg.Cluster = "prod"
	p := NewPoller(&cfg, quiet(), func(string, int) {})
	records, _, err := p.Observe(docJobs(runningJob(1, "a", 0)), SourceSqueue, time.Unix(1795960000, 0))
	if err != nil || records[0].RecordKey() != "prod/1" || p.Cluster() != "prod" {
		t.Errorf("%v, %v", records, err)
	}
}

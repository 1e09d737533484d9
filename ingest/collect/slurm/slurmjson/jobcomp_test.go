package slurmjson

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func completions(t testing.TB, name string) (out []*Completion, lines [][]byte) {
	t.Helper()
	sc := bufio.NewScanner(bytes.NewReader(open(t, name)))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		c, err := DecodeRecordedCompletion(sc.Bytes(), "")
		if err != nil {
			t.Fatalf("%v in %s", err, sc.Bytes())
		}
		if c.Unread != nil {
			t.Errorf("unread %v", c.Unread)
		}
		out, lines = append(out, c), append(lines, bytes.Clone(sc.Bytes()))
	}
	return out, lines
}

func TestRecordedCompletions(t *testing.T) {
	for name, want := range map[string]map[CompletionKind]int{
		"jobcomp_kafka.jsonl":         {JobStarted: 58, JobFinished: 96, JobRequeued: 1},
		"run1/jobcomp_kafka.jsonl.gz": {JobStarted: 52, JobFinished: 76, JobRequeued: 5},
	} {
		all, _ := completions(t, name)
		got := map[CompletionKind]int{}
		for _, c := range all {
			got[c.Kind]++
			j := c.Job
			if c.Topic == "" || c.Time.IsZero() || j.Cluster != "nvl" || j.SLUID == "" || j.Start.IsZero() || (c.Kind == JobStarted) != j.End.IsZero() {
				t.Errorf("%s %d: %+v", c.Topic, c.Offset, j)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	all, _ := completions(t, "jobcomp_kafka.jsonl")
	pick := func(kind CompletionKind, id uint32) *Job {
		for _, c := range all {
			if c.Kind == kind && c.Job.JobID == id {
				return c.Job
			}
		}
		t.Fatalf("no %s of job %d", kind, id)
		return nil
	}
	task := &Job{
		Cluster: "nvl", JobID: 9, SLUID: "s2MSM8KRTDYJ00", OriginalSLUID: "s2MSM8KRTDYJ00", ArrayJobID: 6, ArrayTaskID: new(uint32(0)),
		Name: "sweep", User: "user3", Account: "ml-post", Partition: "gpu", QOS: "normal", Submit: sec(1795959895), Eligible: sec(1795959895), Start: sec(1795959896),
		TimeLimit: Limit{Set: true, Duration: 30 * time.Minute}, Nodes: "gb-r01-n11", NodeCount: new(uint32(1)),
		TresReq: "cpu=2,mem=200M,node=1,billing=2,gres/gpu=1", TresAlloc: "cpu=2,mem=200M,node=1,billing=2,gres/gpu=1,gres/gpu:gb200=1",
	}
	if diff := cmp.Diff(task, pick(JobStarted, 9)); diff != "" {
		t.Errorf("start of an array task (-want +got):\n%s", diff)
	}
	for name, ok := range map[string]bool{
		"a job that failed has its code":               *pick(JobFinished, 12).ExitCode.ReturnCode == 3,
		"a job cancelled while pending has no nodes":   pick(JobFinished, 23).Nodes == "" && *pick(JobFinished, 23).NodeCount == 0 && pick(JobFinished, 23).Start.Equal(pick(JobFinished, 23).End) && pick(JobFinished, 23).TresAlloc == "",
		"a held job was never eligible":                pick(JobFinished, 21).Eligible.IsZero(),
		"a requeue ends the run":                       pick(JobRequeued, 14).End.Equal(sec(1795960175)) && pick(JobRequeued, 14).States[0] == "PENDING",
		"the next run has its own SLUID":               pick(JobStarted, 14).SLUID != "" && pick(JobFinished, 14).SLUID != pick(JobRequeued, 14).SLUID,
		"a component names its leader":                 pick(JobFinished, 8).HetJobID == 7 && *pick(JobFinished, 8).HetOffset == 1,
		"a plain job has no component number":          pick(JobFinished, 1).HetOffset == nil && pick(JobFinished, 1).HetJobID == 0,
		"the comment and a spanning hostlist are read": pick(JobStarted, 1).Comment == "one full rack" && pick(JobStarted, 2).Nodes == "gb-r01-n[01-02],gb-r02-n[01-18]",
	} {
		if !ok {
			t.Errorf("wrong: %s", name)
		}
	}
}

// The bare message, as it comes from Kafka, decodes as the wrapped one.
func TestBareMessage(t *testing.T) {
	all, lines := completions(t, "jobcomp_kafka.jsonl")
	for i, line := range lines {
		var rec struct{ Value json.RawMessage }
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatal(err)
		}
		c, err := DecodeCompletion(rec.Value, all[i].Kind == JobStarted)
		if err != nil || c.Kind != all[i].Kind || c.Topic != "" {
			t.Fatalf("%v: %+v", err, c)
		}
		if diff := cmp.Diff(all[i].Job, c.Job); diff != "" {
			t.Errorf("(-wrapped +bare):\n%s", diff)
		}
	}
}

// Accounting must tell of each finished run what its last message told.
func TestCompletionsAgainstAccounting(t *testing.T) {
	acct, _ := jobs(t, open(t, "run1/sacct.json.gz"))
	runs := map[string]*Job{}
	for _, j := range acct {
		runs[j.SLUID] = j
	}
	all, _ := completions(t, "run1/jobcomp_kafka.jsonl.gz")
	compared := 0
	for _, c := range all {
		a := runs[c.Job.SLUID]
		if a == nil || c.Kind == JobStarted || c.Job.Nodes == "" {
			continue
		}
		compared++
		of := func(j *Job) string {
			return fmt.Sprint(j.JobID, j.ArrayJobID, j.Name, j.User, j.Account, j.Partition, j.Nodes, *j.NodeCount, j.States[0], j.Submit, j.Start, j.TimeLimit, j.TresReq, j.TresAlloc)
		}
		if of(a) != of(c.Job) {
			t.Errorf("job %d:\naccounting %s\nmessage    %s", c.Job.JobID, of(a), of(c.Job))
		}
		// Slurm stamps the two ends apart.
		if d := a.End.Sub(c.Job.End).Abs(); d > time.Second {
			t.Errorf("job %d: ends %v apart", c.Job.JobID, d)
		}
	}
	if compared < 50 {
		t.Errorf("only %d runs compared", compared)
	}
}

func TestCompletionShapes(t *testing.T) {
	for name, c := range map[string]struct {
		value string
		start bool
		want  *Completion
		says  string
	}{
		"a resize": {`{"jobid":7,"state":"RESIZING","@start":"2026-11-29T13:44:56","@end":"2026-11-29T13:49:35","nodes":"n[1-4]"}`, false,
			&Completion{Kind: JobResized, Job: &Job{JobID: 7, States: []string{"RESIZING"}, Start: sec(1795959896), End: sec(1795960175), Nodes: "n[1-4]"}}, ""},
		"limits that are no limits": {`{"jobid":7,"state":"COMPLETED","exit_code":"0:9","time_limit":257698037700,"array_task_id":4294967294,"total_nodes":4294967294}`, false,
			&Completion{Kind: JobFinished, Job: &Job{JobID: 7, States: []string{"COMPLETED"}, ExitCode: ExitCode{ReturnCode: new(uint32(0)), Signal: new(uint32(9))}}}, ""},
		"an exit code of another shape is counted": {`{"jobid":7,"state":"FAILED","exit_code":"x"}`, false,
			&Completion{Kind: JobFinished, Job: &Job{JobID: 7, States: []string{"FAILED"}}, Unread: map[string]int{".exit_code": 1}}, ""},
		"a finish on the topic of starts":  {`{"jobid":7,"state":"FAILED","exit_code":"1:0"}`, true, nil, "check topic_job_start"},
		"a start on the topic of finishes": {`{"jobid":7,"state":null,"@start":"2026-11-29T13:44:56"}`, false, nil, "check topic_job_start"},
		"a finish without a state":         {`{"jobid":7,"elapsed":1}`, false, nil, "without a state"},
		"a message without a job":          {`{"state":"FAILED","elapsed":1}`, false, nil, "no jobid"},
		"a time of another form":           {`{"jobid":7,"@end":"yesterday","state":"FAILED"}`, false, nil, `"yesterday"`},
		"an empty message":                 {``, false, nil, "EOF"},
		"a message that is a list":         {`[]`, false, nil, "no jobid"},
		"two messages in one":              {`{"jobid":7,"state":"FAILED","elapsed":1}{}`, false, nil, "more data"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeCompletion([]byte(c.value), c.start)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("error %v, want one with %q", err, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got.ended = false
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(Completion{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if c, err := DecodeRecordedCompletion([]byte(`{"value":{"jobid":1,"state":null},"topic":"begun"}`), "begun"); err != nil || c.Kind != JobStarted {
		t.Errorf("a configured topic of starts: %+v, %v", c, err)
	}
	if _, err := DecodeRecordedCompletion([]byte(`{"topic":"nvl-job-start"}`), ""); err == nil || !strings.Contains(err.Error(), "no value") {
		t.Errorf("a record without a value: %v", err)
	}
}

func TestEveryPrefixOfAMessage(t *testing.T) {
	_, lines := completions(t, "jobcomp_kafka.jsonl")
	line := lines[0]
	for n := range line {
		if c, err := DecodeRecordedCompletion(line[:n:n], ""); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %+v, %v", n, c, err)
		}
	}
}

func FuzzDecodeCompletion(f *testing.F) {
	_, lines := completions(f, "jobcomp_kafka.jsonl")
	for _, l := range lines[:8] {
		f.Add(l, true)
	}
	f.Add([]byte(`{"jobid":7,"state":"RESIZING","@start":"2026-11-29T13:44:56","exit_code":"0:9","time_limit":257698037700}`), false)
	f.Fuzz(func(t *testing.T, b []byte, start bool) {
		for _, decode := range []func() (*Completion, error){
			func() (*Completion, error) { return DecodeCompletion(b, start) },
			func() (*Completion, error) { return DecodeRecordedCompletion(b, "") },
		} {
			if c, err := decode(); err == nil && (c.Kind == "" || c.Job.JobID == 0) {
				t.Errorf("%+v without an error", c)
			}
		}
	})
}

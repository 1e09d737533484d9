package slurmjson

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// open returns a recorded document, unpacked.
func open(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(name, ".gz") {
		return b
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = io.ReadAll(z); err != nil {
		t.Fatal(err)
	}
	return b
}

func jobs(t testing.TB, doc []byte) ([]*Job, Meta) {
	t.Helper()
	var out []*Job
	meta, err := DecodeJobs(bytes.NewReader(doc), func(j *Job) error {
		out = append(out, j)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, meta
}

// one decodes a document that is the given jobs list and nothing else.
func one(t testing.TB, record string) *Job {
	t.Helper()
	js, meta := jobs(t, []byte(`{"jobs":[`+record+`]}`))
	if len(js) != 1 || len(meta.Unread) != 0 {
		t.Fatalf("%d jobs, unread %v", len(js), meta.Unread)
	}
	return js[0]
}

func find(t testing.TB, js []*Job, id uint32) *Job {
	t.Helper()
	for _, j := range js {
		if j.JobID == id {
			return j
		}
	}
	t.Fatalf("no job %d", id)
	return nil
}

func sec(n int64) time.Time { return time.Unix(n, 0).UTC() }

func TestRecordedDocumentsAreReadWhole(t *testing.T) {
	for name, count := range map[string]int{
		"squeue.json": 20, "squeue_after.json": 23, "squeue_spill_segments.json": 11, "rest_jobs.json": 23, "scontrol_jobs.json": 23,
		"squeue_job4_v0.0.42.json": 1, "squeue_job4_v0.0.43.json": 1, "squeue_job4_v0.0.44.json": 1, "squeue_job4_v0.0.45.json": 1,
		"sacct.json": 21, "rest_slurmdb_job14.json": 2, "rest_jobs_state.json": 96,
	} {
		t.Run(name, func(t *testing.T) {
			js, meta := jobs(t, open(t, name))
			want := Meta{DataParser: "v0.0.45", Slurm: Version{26, 5, 3}, Cluster: "nvl", Records: count}
			if strings.Contains(name, "job4") {
				want.DataParser = name[len("squeue_job4_") : len(name)-len(".json")]
			}
			got := meta
			got.LastUpdate = time.Time{}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("meta (-want +got):\n%s", diff)
			}
			if isPoll := !js[0].Accounting && name != "rest_jobs_state.json"; isPoll != !meta.LastUpdate.IsZero() {
				t.Errorf("last update %v", meta.LastUpdate)
			}
			if len(js) != count {
				t.Errorf("%d jobs", len(js))
			}
		})
	}
}

func TestRecordedJobs(t *testing.T) {
	poll, _ := jobs(t, open(t, "squeue.json"))
	after, _ := jobs(t, open(t, "squeue_after.json"))
	acct, _ := jobs(t, open(t, "sacct.json"))
	flags := []string{"EXACT_CPU_COUNT_REQUESTED", "JOB_WAS_RUNNING", "USING_DEFAULT_PARTITION", "USING_DEFAULT_QOS", "USING_DEFAULT_WCKEY", "PARTITION_ASSIGNED"}
	success := ExitCode{Status: "SUCCESS", ReturnCode: new(uint32(0))}
	running := &Job{
		Cluster: "nvl", JobID: 9, SLUID: "s2MSM8KRTDYJ00", RestartCnt: new(uint32(0)), Priority: new(uint32(1)), ArrayJobID: 6, ArrayTaskID: new(uint32(0)),
		Name: "sweep", User: "user3", Account: "ml-post", QOS: "normal", Partition: "gpu",
		States: []string{"RUNNING"}, StateReason: "None",
		Submit: sec(1795959895), Eligible: sec(1795959895), Start: sec(1795959896), End: sec(1795961696), PreSusSeconds: new(uint64(0)),
		TimeLimit: Limit{Set: true, Duration: 30 * time.Minute}, Nodes: "gb-r01-n11", NodeCount: new(uint32(1)),
		GresDetail: []string{"gpu:gb200:1(IDX:3)"}, AllocNodeNames: []string{"gb-r01-n11"}, WholeNodes: new(false),
		TresReq: "cpu=2,mem=200M,node=1,billing=2,gres/gpu=1", TresAlloc: "cpu=2,mem=200M,node=1,billing=2,gres/gpu=1,gres/gpu:gb200=1",
		TresPerNode: "gres/gpu:1", TresPerTask: "cpu=2", SegmentSize: new(uint32(0)), RequiredSwitches: new(uint32(0)), MaxSwitchWait: new(time.Duration(0)),
		Flags: flags, ExitCode: success,
	}
	for name, c := range map[string]struct{ got, want *Job }{
		"a running array task": {find(t, poll, 9), running},
		"the accounting record of the first run of a requeued job": {find(t, acct, 14), &Job{
			Accounting: true, Cluster: "nvl", JobID: 14, SLUID: "s2MSM8KRTECY00", OriginalSLUID: "s2MSM8KRTECY00", RestartCnt: new(uint32(0)), Priority: new(uint32(1)),
			Name: "requeued", User: "user4", Account: "serving", QOS: "normal", Partition: "gpu", States: []string{"PENDING", "REQUEUED"}, StateReason: "None",
			Submit: sec(1795959896), Eligible: sec(1795959896), Start: sec(1795959896), End: sec(1795960175), TimeLimit: Limit{Set: true, Duration: time.Hour},
			Nodes: "gb-r01-n15", NodeCount: new(uint32(1)), TresReq: "cpu=1,mem=100M,node=1,billing=1,gres/gpu=1",
			TresAlloc: "cpu=1,mem=100M,node=1,billing=1,gres/gpu=1,gres/gpu:gb200=1", SegmentSize: new(uint32(0)),
			Flags: []string{"STARTED_ON_BACKFILL", "START_RECEIVED"}, Exclusive: "NO", ExitCode: success,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}

	for name, ok := range map[string]bool{
		"tasks not split off keep the array's id":          find(t, poll, 6).ArrayTaskString == "2-3%2" && find(t, poll, 6).ArrayTaskID == nil && find(t, poll, 6).ArrayJobID == 6,
		"a component names its leader":                     find(t, poll, 8).HetJobID == 7 && *find(t, poll, 8).HetOffset == 1 && find(t, poll, 8).HetSet == "7-8",
		"a plain job has no component number":              find(t, poll, 4).HetOffset == nil && find(t, poll, 4).ArrayJobID == 0,
		"a spanning job has its nodes in order":            len(find(t, poll, 2).AllocNodeNames) == 20 && find(t, poll, 2).AllocNodeNames[2] == "gb-r02-n01",
		"segments are read":                                *find(t, poll, 3).SegmentSize == 2 && *find(t, poll, 19).SegmentSize == 16,
		"a pending job has a plan":                         find(t, poll, 18).Start.Equal(sec(1795967095)) && find(t, poll, 18).ScheduledNodes == "gb-r03-n[01-18]" && find(t, poll, 18).Nodes == "",
		"a held job has no start":                          find(t, poll, 21).Start.IsZero() && find(t, poll, 21).StateReason == "JobHeldUser",
		"switches and their wait are read":                 *find(t, poll, 20).RequiredSwitches == 1 && *find(t, poll, 20).MaxSwitchWait == 300*time.Second,
		"whole nodes are read":                             *find(t, poll, 17).WholeNodes && !*find(t, poll, 1).WholeNodes,
		"an ended job keeps nodes but not GRES":            find(t, after, 13).Nodes == "gb-r01-n15" && find(t, after, 13).GresDetail == nil,
		"a failed job has its code":                        *find(t, after, 12).ExitCode.ReturnCode == 3 && find(t, after, 12).ExitCode.Status == "ERROR",
		"a timed out job has its signal":                   *find(t, after, 11).ExitCode.Signal == 15 && find(t, after, 11).ExitCode.ReturnCode == nil,
		"a resumed job has its run time before":            *find(t, after, 15).PreSusSeconds > 0 && !find(t, after, 15).Suspend.IsZero(),
		"accounting: cancelled while pending has no start": find(t, acct, 23).Start.IsZero() && find(t, acct, 23).Nodes == "" && *find(t, acct, 23).NodeCount == 0,
		"accounting: exclusive nodes":                      find(t, acct, 17).Exclusive == "NODE",
		"accounting: an array task":                        find(t, acct, 10).ArrayJobID == 6 && *find(t, acct, 10).ArrayTaskID == 1,
		"accounting: a component":                          find(t, acct, 8).HetJobID == 7 && *find(t, acct, 8).HetOffset == 1,
		"accounting: the second run has its own SLUID":     acct[20].JobID == 14 && acct[20].SLUID == "s2MSM8KS2Z7E00" && *acct[20].RestartCnt == 1,
		"comments are read":                                find(t, poll, 1).Comment == "one full rack",
	} {
		if !ok {
			t.Errorf("wrong: %s", name)
		}
	}
}

func TestShapesOfOtherVersions(t *testing.T) {
	for name, c := range map[string]struct {
		record string
		want   Job
	}{
		"v0.0.39: plain words and numbers": {
			`{"job_id":7,"job_state":"RUNNING","start_time":1700000000,"end_time":0,"submit_time":4294967294,"time_limit":4294967295,"exit_code":256,"flags":["JOB_WAS_RUNNING"],"array_job_id":0,"array_task_id":null,"tres_per_node":"gres:gpu:4","job_resources":{"nodes":"n[1-2]","allocated_hosts":2,"allocated_nodes":{"0":{"nodename":"n1","sockets":{"0":"x"}},"1":{"nodename":"n2"}}}}`,
			Job{JobID: 7, States: []string{"RUNNING"}, Start: sec(1700000000), TimeLimit: Limit{Set: true, Infinite: true}, ExitCode: ExitCode{ReturnCode: new(uint32(1)), Signal: new(uint32(0))},
				Flags: []string{"JOB_WAS_RUNNING"}, TresPerNode: "gres:gpu:4", AllocNodeNames: []string{"n1", "n2"}},
		},
		"v0.0.40: a list of allocated nodes": {
			`{"job_id":7,"job_state":["RUNNING","COMPLETING"],"minimum_switches":1,"shared":["none"],"exclusive":["true"],"job_resources":{"nodes":"n[1-2]","allocated_nodes":[{"nodename":"n1","cpus_used":0},{"nodename":"n2"}]}}`,
			Job{JobID: 7, States: []string{"RUNNING", "COMPLETING"}, RequiredSwitches: new(uint32(1)), Exclusive: "NODE", AllocNodeNames: []string{"n1", "n2"}},
		},
		"v0.0.42: shared words and empty flag arrays": {
			`{"job_id":7,"job_state":["PENDING"],"flags":"","shared":["topo"],"gres_detail":[""],"job_resources":{},"time_limit":{"set":false,"infinite":true,"number":0},"node_count":{"set":false,"infinite":false,"number":9}}`,
			Job{JobID: 7, States: []string{"PENDING"}, Exclusive: "TOPO", TimeLimit: Limit{Set: true, Infinite: true}},
		},
		"v0.0.45: accounting of an exclusive block": {
			`{"job_id":7,"exclusive":"TOPO","state":{"current":["CANCELLED"],"reason":"None"},"time":{"start":4294967294,"end":1700000000,"limit":{"set":true,"infinite":false,"number":4294967295}},"nodes":"None assigned","tres":{"allocated":[{"type":"cpu","name":"","id":1,"count":2},{"type":"energy","name":"","id":3,"count":-2},{"type":"fs","name":"disk","count":18446744073709551614}]}}`,
			Job{Accounting: true, JobID: 7, Exclusive: "TOPO", States: []string{"CANCELLED"}, StateReason: "None", End: sec(1700000000), TimeLimit: Limit{Set: true, Infinite: true}, TresAlloc: "cpu=2"},
		},
		"accounting of the oldest versions": {
			`{"job_id":7,"state":{"current":"COMPLETED","reason":"None"},"time":{"start":1700000000,"limit":90},"exit_code":{"status":"SIGNALED","return_code":0,"signal":{"signal_id":9,"name":"KILL"}},"reservation":{"id":1,"name":"maint"},"comment":{"administrator":"a","job":"b","system":"c"}}`,
			Job{Accounting: true, JobID: 7, States: []string{"COMPLETED"}, StateReason: "None", Start: sec(1700000000), TimeLimit: Limit{Set: true, Duration: 90 * time.Minute},
				ExitCode: ExitCode{Status: "SIGNALED", ReturnCode: new(uint32(0)), Signal: new(uint32(9))}, Reservation: "maint", Comment: "b", AdminComment: "a"},
		},
		"jobs/state: an array task":        {`{"job_id":"9_0","state":["RUNNING"]}`, Job{JobID: 9, States: []string{"RUNNING"}}},
		"jobs/state: a component":          {`{"job_id":"8+1","state":["RUNNING"]}`, Job{JobID: 8, States: []string{"RUNNING"}}},
		"jobs/state: the rest of an array": {`{"job_id":"6_*","state":["PENDING"]}`, Job{JobID: 6, States: []string{"PENDING"}}},
		"numbers as strings and as fractions": {`{"job_id":7,"restart_cnt":"2","segment_size":4.0,"required_switches":{"set":true,"infinite":false,"number":3.0}}`,
			Job{JobID: 7, RestartCnt: new(uint32(2)), SegmentSize: new(uint32(4)), RequiredSwitches: new(uint32(3))}},
		"invalid UTF-8 alone":       {"{\"job_id\":7,\"name\":\"caf\xe9\"}", Job{JobID: 7, Name: "caf\ufffd"}},
		"escapes and invalid UTF-8": {"{\"job_id\":7,\"name\":\"a\\/b \\u00e9 \\ud83d \xff\",\"comment\":\"\\\"\"}", Job{JobID: 7, Name: "a/b é \ufffd \ufffd", Comment: `"`}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(&c.want, one(t, c.record)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownShapesAreCountedAndAbsent(t *testing.T) {
	js, meta := jobs(t, []byte(`{"jobs":[{"job_id":1,"time_limit":["x"],"name":"a"},{"job_id":2,"time_limit":{"set":true,"number":"soon"},"node_count":8589934592,"start_time":1e15,"flags":{"a":1},"gres_detail":[1],"nodes":7,"array_task_id":-5}]}`))
	if len(js) != 2 || js[0].TimeLimit.Set || js[1].NodeCount != nil || js[0].Name != "a" || js[1].Nodes != "" {
		t.Errorf("jobs %+v", js)
	}
	want := map[string]int{".jobs.time_limit": 1, ".jobs.time_limit.number": 1, ".jobs.node_count": 1, ".jobs.start_time": 1, ".jobs.flags": 1, ".jobs.gres_detail": 1, ".jobs.nodes": 1, ".jobs.array_task_id": 1}
	if diff := cmp.Diff(want, meta.Unread); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
}

func TestAnswersThatAreNotTheJobs(t *testing.T) {
	none := func(*Job) error { return errors.New("a job was handed over") }
	t.Run("nothing changed is not an empty cluster", func(t *testing.T) {
		meta, err := DecodeJobs(strings.NewReader(`{"jobs":[],"last_backfill":{"set":true,"infinite":false,"number":0},"last_update":{"set":true,"infinite":false,"number":0},"meta":{},"errors":[],"warnings":[{"description":"No job changes since update_time[1795960143]=2026-11-29T13:49:03","source":"_op_handler_jobs"}]}`), none)
		if err != nil || !meta.Unchanged || !meta.LastUpdate.IsZero() {
			t.Errorf("meta %+v, error %v", meta, err)
		}
	})
	t.Run("an empty cluster is not unchanged", func(t *testing.T) {
		meta, err := DecodeJobs(strings.NewReader(`{"jobs":[],"warnings":[],"errors":[]}`), none)
		if err != nil || meta.Unchanged {
			t.Errorf("meta %+v, error %v", meta, err)
		}
	})
	for name, c := range map[string]struct{ doc, says string }{
		"slurm reports an error":         {`{"jobs":[],"errors":[{"description":"Unable to query jobs","error_number":7000,"error":"Unable to connect to database","source":"slurmdb_jobs_get"}],"warnings":[]}`, "Unable to connect to database: Unable to query jobs (7000)"},
		"an error without a list":        {`{"errors":["slurmctld down"]}`, "slurmctld down"},
		"a text answer":                  {"Authentication failure", `begins with "Authentication failure"`},
		"a list without a document":      {"[]", "not a JSON object"},
		"nothing":                        {"", "empty"},
		"blanks":                         {" \n", "unexpected EOF"},
		"an object without jobs":         {`{"meta":{}}`, `no list "jobs"`},
		"jobs that are null":             {`{"jobs":null}`, `no list "jobs"`},
		"jobs that are an object":        {`{"jobs":{}}`, `no list "jobs"`},
		"a document after the document":  {`{"jobs":[]}{"jobs":[]}`, "more data follows"},
		"a tail that is no JSON":         {`{"jobs":[]} slurm_load_jobs error`, "byte 12"},
		"a job without an id":            {`{"jobs":[{"name":"a"}]}`, "no job_id"},
		"a comma missing between values": {`{"jobs":[] "meta":{}}`, "byte 11"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeJobs(strings.NewReader(c.doc), none)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one with %q", err, c.says)
			}
		})
	}
}

// A document cut anywhere hands over the jobs before the cut, and says that it is incomplete.
func TestEveryPrefix(t *testing.T) {
	doc := open(t, "squeue_job4_v0.0.44.json")
	i := bytes.LastIndex(doc, []byte(`}],"last_backfill"`)) + 1
	doc = slices.Concat(doc[:i], []byte(`,{"job_id":5}`), doc[i:]) // two jobs
	complete := len(bytes.TrimSpace(doc))
	for n := range complete {
		got := 0
		meta, err := DecodeJobs(bytes.NewReader(doc[:n:n]), func(*Job) error { got++; return nil })
		var cut *DocumentError
		if !errors.As(err, &cut) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: error %v", n, err)
		}
		want := 0
		if n >= i {
			want++
		}
		if n >= i+len(`,{"job_id":5}`) {
			want++
		}
		if got != want || cut.Records != got || meta.Records != got || cut.Offset > int64(n) {
			t.Fatalf("cut at %d: %d jobs, want %d; %v", n, got, want, err)
		}
	}
}

func TestErrorNamesPlaceAndRemedy(t *testing.T) {
	_, err := DecodeJobs(strings.NewReader(`{"jobs":[{"job_id":1},{"job_id":2},{"job_id":x}]}`), func(*Job) error { return nil })
	for _, part := range []string{"byte 45", "jobs[2]", "refuse the document whole"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v lacks %q", err, part)
		}
	}
}

func TestYieldEndsTheReading(t *testing.T) {
	stop := errors.New("enough")
	n := 0
	_, err := DecodeJobs(bytes.NewReader(open(t, "squeue.json")), func(*Job) error {
		if n++; n == 3 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || n != 3 {
		t.Errorf("after %d jobs: %v", n, err)
	}
}

func TestSourceErrorIsKept(t *testing.T) {
	broken := errors.New("connection reset")
	_, err := DecodeJobs(io.MultiReader(strings.NewReader(`{"jobs":[{"job_id":1},`), errReader{broken}), func(*Job) error { return nil })
	var cut *DocumentError
	if !errors.Is(err, broken) || !errors.As(err, &cut) || cut.Records != 1 {
		t.Errorf("error %v", err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestMetaBeforeTheJobs(t *testing.T) {
	doc := `{"errors":[],"warnings":[],"meta":{"plugin":{"type":"openapi/v0.0.39"},"Slurm":{"version":{"major":23,"minor":2,"micro":"7"}}},"jobs":[{"job_id":1}]}`
	_, meta := jobs(t, []byte(doc))
	if diff := cmp.Diff(Meta{DataParser: "v0.0.39", Slurm: Version{23, 2, 7}, Records: 1}, meta); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNodes(t *testing.T) {
	var got []*Node
	meta, err := DecodeNodes(bytes.NewReader(open(t, "nodes.json")), func(n *Node) error { got = append(got, n); return nil })
	if err != nil || len(got) != 54 || meta.Unread != nil || meta.LastUpdate != sec(1795960144) {
		t.Fatalf("%d nodes, meta %+v, error %v", len(got), meta, err)
	}
	want := &Node{Name: "gb-r01-n01", States: []string{"MIXED", "PLANNED"}, Gres: "gpu:gb200:4", GresUsed: "gpu:gb200:4(IDX:0-3)", GresDrained: "N/A", Partitions: []string{"gpu"},
		Features: []string{"nvl72"}, CPUs: new(uint32(144)), Tres: "cpu=144,mem=900000M,billing=144,gres/gpu=4,gres/gpu:gb200=4", TresUsed: "cpu=8,mem=800M,gres/gpu=4,gres/gpu:gb200=4", Version: "26.05.3"}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err = DecodeNodes(strings.NewReader(`{"nodes":[{"name":"n1","state":"IDLE","state_flags":["DRAIN"],"partitions":["a"]}]}`), func(n *Node) error { got[0] = n; return nil })
	if diff := cmp.Diff(&Node{Name: "n1", States: []string{"IDLE", "DRAIN"}, Partitions: []string{"a"}}, got[0]); diff != "" || err != nil {
		t.Errorf("v0.0.39: %v (-want +got):\n%s", err, diff)
	}
}

func FuzzDecode(f *testing.F) {
	// Small seeds: one allocated node without its cores, so that most of the mutated bytes matter.
	doc := open(f, "squeue.json")
	i := bytes.Index(doc, []byte(`"job_resources":`))
	f.Add(slices.Concat([]byte(`{"jobs":[{"job_id":1,`), doc[i:i+600]))
	f.Add([]byte(`{"jobs":[{"job_id":4,"start_time":{"set":true,"infinite":false,"number":1795959896},"job_resources":{"nodes":{"whole":true,"allocation":[{"name":"n\/1","sockets":[{"cores":[]}]}]}}}],"meta":{"plugin":{"data_parser":"data_parser\/v0.0.45"},"slurm":{"version":{"major":"26"}}}}`))
	f.Add([]byte(`{"jobs":[{"job_id":"9_0","state":"x","time":{"limit":{"set":true}},"tres":{"allocated":[{"type":"cpu","count":-2}]},"exit_code":9}],"warnings":["a"]}`))
	f.Add([]byte(`{"nodes":[{"name":"n1","node":"n1","state":[""],"gres":[{"index":"0-1"}]}],"errors":[{"error_number":1}]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		n := 0
		meta, err := DecodeJobs(bytes.NewReader(doc), func(j *Job) error {
			if j.JobID == 0 {
				t.Error("a job without an id")
			}
			n++
			return nil
		})
		if meta.Records != n || err == nil && meta.Unchanged && n > 0 {
			t.Errorf("%d jobs, meta %+v", n, meta)
		}
		DecodeNodes(bytes.NewReader(doc), func(*Node) error { return nil })
	})
}

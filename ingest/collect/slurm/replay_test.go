package slurm

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/schemas/event"
)

func replayErr(t testing.TB, paths ...string) ([]event.Record, error) {
	t.Helper()
	var out keep
	err := ReplayFiles(t.Context(), paths, ReplayOptions{Config: testConfig(), Log: quiet()}, &out)
	return out.records, err
}

func put(t testing.TB, name string, body []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, body, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFilesAreRecognizedByContent(t *testing.T) {
	for path, want := range map[string]Kind{
		samples + "squeue.json": KindJobs, samples + "rest_jobs.json": KindJobs, samples + "rest_jobs_state.json": KindJobs,
		"testdata/run1/squeue-20261129T142035Z.json.gz": KindJobs,
		samples + "sacct.json":                          KindAccounting, samples + "rest_slurmdb_job14.json": KindAccounting, "testdata/run1/sacct.json.gz": KindAccounting,
		samples + "nodes.json": KindNodes, samples + "scontrol_resources_job2.json": KindOther, samples + "scontrol_jobs.txt": KindOther,
		samples + "jobcomp_kafka.jsonl": KindJobComp, "testdata/run1/jobcomp_kafka.jsonl.gz": KindJobComp,
		"prolog/testdata/prolog_epilog_env.txt": KindEvents,
		put(t, "a", []byte(`{"jobs":[]}`)):      KindJobs,
		put(t, "b", []byte(`{"meta":{"x":[1,{"jobs":2}]},"errors":[],"nodes":[{"gres":"","name":"n"}]}`)):         KindNodes,
		put(t, "c", []byte(`{"jobid":1,"@start":""}`+"\n")):                                                       KindJobComp,
		put(t, "d", []byte("PATH=/bin\nSLURM_JOB_ID=1\nSLURM_SCRIPT_CONTEXT=prolog_slurmd\n")):                    KindEvents,
		put(t, "e", []byte(`{"SLURM_JOB_ID":"1","SLURM_SCRIPT_CONTEXT":"prolog_slurmd","SLURMD_NODENAME":"n1"}`)): KindEvents,
		put(t, "f", nil): KindOther,
		put(t, "g", []byte("BlockName=rack01 Nodes=n[1-2]")): KindOther,
		put(t, "h", []byte("- topology: nvl\n")):             KindOther,
		put(t, "i", []byte(`{"topic":"x"`)):                  KindOther,
		put(t, "j", []byte(`[1]`)):                           KindOther,
		put(t, "k", []byte(`{"partitions":[]}`)):             KindOther,
	} {
		kind, err := Recognize(path)
		if kind != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", path, kind, err, want)
		}
	}
}

func TestTheTimeOfAFile(t *testing.T) {
	named := put(t, "squeue-20261129T142633Z.json", document(t, samples+"squeue.json"))
	first := func(path string) int64 { return collecttest.Placements(replayed(t, path))[0].ObservedAtMs / 1000 }
	if got := first(named); got != 1795962393 {
		t.Errorf("by its name: %d", got)
	}
	if got := first(samples + "squeue.json"); got != 1795960143 {
		t.Errorf("by last_update: %d", got)
	}
	if got := first(samples + "sacct.json"); got != 1795960296 {
		t.Errorf("accounting, by its newest fact: %d", got)
	}
	bare := bytes.Replace(document(t, samples+"squeue.json"), []byte(`"last_update"`), []byte(`"last_uptate"`), 1)
	unnamed := put(t, "jobs.json", bare)
	at := time.Unix(1795961000, 0)
	if err := os.Chtimes(unnamed, at, at); err != nil {
		t.Fatal(err)
	}
	if got := first(unnamed); got != at.Unix() {
		t.Errorf("by the time it was written: %d", got)
	}
}

func TestReplayDeclaresNodesSinceEver(t *testing.T) {
	early, late := "testdata/run1/nodes-20261129T142035Z.json.gz", "testdata/run1/nodes-20261129T142419Z.json.gz"
	declared, changed := 0, 0
	for _, r := range replayed(t, late, early) { // the order of the arguments does not matter
		n, ok := r.(*event.Node)
		switch {
		case !ok:
		case n.ValidFromMs != nil && *n.ValidFromMs == collect.RecordedSince.UnixMilli():
			declared++
		default:
			changed++
		}
	}
	if declared != 54 || changed == 0 || changed > 3 {
		t.Errorf("%d nodes declared, %d changes", declared, changed)
	}
}

func TestALoneDocumentEndsNothing(t *testing.T) {
	for _, r := range collecttest.Placements(replayed(t, samples+"squeue.json")) {
		if r.State.Ended() {
			t.Errorf("ended: %v", r)
		}
	}
	// An empty one neither, and it is no error: the cluster was idle.
	if records, err := replayErr(t, put(t, "squeue-20261129T142633Z.json", []byte(`{"jobs":[],"meta":{"slurm":{"cluster":"nvl"}}}`))); err != nil || len(collecttest.Placements(records)) > 0 {
		t.Errorf("%v, %v", records, err)
	}
}

func TestFilesThatCannotBeReplayed(t *testing.T) {
	squeue, sacct := document(t, samples+"squeue.json"), document(t, samples+"sacct.json")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(squeue)
	z.Close()
	messages := bytes.SplitAfter(document(t, samples+"jobcomp_kafka.jsonl"), []byte("\n"))
	for name, c := range map[string]struct {
		file string
		body []byte
		says string
	}{
		"not of Slurm":              {"x.txt", []byte("hello"), "squeue --json"},
		"empty":                     {"x.json", nil, "squeue --json"},
		"cut in the middle":         {"squeue-20261129T142633Z.json", squeue[:len(squeue)/2], "byte"},
		"cut, and without a name":   {"squeue.json", squeue[:len(squeue)/2], "byte"},
		"cut before the last brace": {"squeue-20261129T142633Z.json", squeue[:len(squeue)-2], "byte"},
		"accounting that is cut":    {"sacct.json", sacct[:len(sacct)/2], "byte"},
		"a gzip file that is cut":   {"squeue-20261129T142633Z.json.gz", packed.Bytes()[:packed.Len()/2], "EOF"},
		"a gzip header alone":       {"x.gz", []byte{0x1f, 0x8b}, "unpack"},
		"states only":               {"state.json", document(t, samples+"rest_jobs_state.json"), "jobs/state"},
		"an error of Slurm":         {"squeue-20261129T142633Z.json", []byte(`{"jobs":[],"errors":[{"error":"Unable to contact slurm controller"}]}`), "Unable to contact"},
		"a message that is cut":     {"jobcomp.jsonl", append(bytes.Clone(messages[0]), messages[1][:100]...), "line 2"},
		"an environment without id": {"env.txt", []byte("== x\nSLURM_SCRIPT_CONTEXT=prolog_slurmd\nSLURMD_NODENAME=n1\n"), "line 2"},
		"the same job twice":        {"squeue-20261129T142633Z.json", bytes.Replace(squeue, []byte(`"job_id":2,`), []byte(`"job_id":1,`), 1), "listed twice"},
	} {
		t.Run(name, func(t *testing.T) {
			path := put(t, c.file, c.body)
			records, err := replayErr(t, path)
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want the file and %q", err, c.says)
			}
			if len(records) > 0 {
				t.Errorf("%d records all the same", len(records))
			}
		})
	}
	if _, err := replayErr(t, "/nonexistent/squeue.json"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	refuse := emitFunc(func(context.Context, ...event.Record) error { return errors.New("full") })
	if err := ReplayFiles(t.Context(), []string{samples + "squeue.json"}, ReplayOptions{Log: quiet()}, refuse); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("a pipeline that refuses: %v", err)
	}
}

type emitFunc func(context.Context, ...event.Record) error

func (f emitFunc) Emit(ctx context.Context, records ...event.Record) error { return f(ctx, records...) }

// Whatever a file holds: no panic, and every record that comes out keeps the contract.
func FuzzReplay(f *testing.F) {
	for _, path := range []string{samples + "squeue_job4_v0.0.45.json", samples + "rest_slurmdb_job14.json", samples + "rest_jobs_state.json", "prolog/testdata/prolog_epilog_env.txt"} {
		f.Add(document(f, path))
	}
	for _, doc := range []string{
		unchanged, `{"jobs":[` + runningJob(1, "a", 0) + `,` + pendingJob(2, "b", 1, `,"scheduled_nodes":"n[1-4]"`) + `],"meta":{"slurm":{"cluster":"nvl"}}}`,
		`{"jobs":[` + polled(1, "PENDING,COMPLETING", `"restart_cnt":1,"start_time":1,"nodes":"n1"`) + `],"last_update":1795960000}`,
		`{"nodes":[{"name":"n1","state":["IDLE"],"gres":"gpu:gb200:4"}],"last_update":1795960000}`,
	} {
		f.Add([]byte(doc))
	}
	for _, line := range bytes.SplitAfter(document(f, samples+"jobcomp_kafka.jsonl"), []byte("\n"))[:3] {
		f.Add(line)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, body []byte) {
		path := filepath.Join(dir, "squeue-20261129T142633Z.json")
		if err := os.WriteFile(path, body, 0o644); err != nil {
			t.Fatal(err)
		}
		records, err := replayErr(t, path)
		if err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("the error does not name the file: %v", err)
		}
		for _, r := range records {
			if _, _, err := event.Encode(r); err != nil {
				t.Errorf("%v: %v", err, r)
			}
		}
	})
}

// Every prefix of a document is refused whole, through the replay as well.
func TestEveryPrefixIsRefused(t *testing.T) {
	whole := document(t, samples+"squeue_job4_v0.0.45.json")
	whole = bytes.TrimRight(whole, "\n")
	path := filepath.Join(t.TempDir(), "squeue-20261129T142633Z.json")
	for i := 0; i < len(whole); i += 7 {
		if err := os.WriteFile(path, whole[:i:i], 0o644); err != nil {
			t.Fatal(err)
		}
		if records, err := replayErr(t, path); err == nil || len(records) > 0 {
			t.Fatalf("the first %d bytes gave %d records, %v", i, len(records), err)
		}
	}
}

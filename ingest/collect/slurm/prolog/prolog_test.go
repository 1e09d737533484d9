package prolog

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func recording(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/prolog_epilog_env.txt")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// blocks are the recorded environments, each as lines.
func blocks(t testing.TB) (out [][]byte) {
	for b := range strings.SplitSeq(string(recording(t)), "== ") {
		if _, lines, ok := strings.Cut(b, "\n"); ok {
			out = append(out, []byte(lines))
		}
	}
	return out
}

func TestRecording(t *testing.T) {
	var got []*NodeEvent
	if err := DecodeRecording(bytes.NewReader(recording(t)), func(e *NodeEvent, err error) error {
		got = append(got, e)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	sec := func(n int64) time.Time { return time.Unix(n, 0).UTC() }
	common := NodeEvent{
		Cluster: "nvl", JobID: 51, SLUID: "s2MSM8KSHVGR00", RestartCnt: new(uint32(0)), User: "user3", Account: "ml-post", Partition: "gpu", QOS: "normal",
		Nodes: "gb-r03-n[01-02]", NodeCount: new(uint32(2)), Start: sec(1795960664), End: sec(1795962464), Exclusive: "NO",
	}
	node := func(name string, begin bool) *NodeEvent {
		e := common
		e.Node, e.Begin, e.GPUs = name, begin, []uint16{0, 1}
		if !begin {
			e.End, e.ExitCode, e.Signal = sec(1795960670), new(uint32(0)), new(uint32(0))
		}
		return &e
	}
	controller := func(begin bool) *NodeEvent {
		e := node("", begin)
		e.Controller, e.GPUs, e.Name, e.ArrayJobID, e.ArrayTaskID = true, nil, "prologtest", 51, new(uint32(5))
		return e
	}
	want := []*NodeEvent{
		controller(true), node("gb-r03-n02", true), node("gb-r03-n01", true),
		controller(false), node("gb-r03-n02", false), node("gb-r03-n01", false),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Lines, NUL bytes and JSON are three forms of the same environment.
func TestFormsAgree(t *testing.T) {
	var lines []byte
	for _, block := range blocks(t) {
		want, err := Decode(block)
		if err != nil {
			t.Fatal(err)
		}
		env := map[string]any{}
		for kv := range strings.SplitSeq(strings.TrimSpace(string(block)), "\n") {
			k, v, _ := strings.Cut(kv, "=")
			env[k] = v
		}
		env["SLURM_JOB_COMMENT"] = "two\nlines"
		env["SLURM_JOB_ID"] = 51 // a hook may send numbers
		asJSON, _ := json.Marshal(env)
		lines = append(append(lines, asJSON...), '\n')
		nul := append(bytes.ReplaceAll(block, []byte("\n"), []byte{0}), "SLURM_JOB_COMMENT=two\nlines\x00"...)
		for form, b := range map[string][]byte{"JSON": asJSON, "NUL bytes": nul, "CRLF": bytes.ReplaceAll(block, []byte("\n"), []byte("\r\n"))} {
			if got, err := Decode(b); err != nil || cmp.Diff(want, got) != "" {
				t.Errorf("%s: %v (-lines +%s):\n%s", form, err, form, cmp.Diff(want, got))
			}
		}
	}
	n := 0
	if err := DecodeRecording(bytes.NewReader(lines), func(e *NodeEvent, err error) error { n++; return err }); err != nil || n != 6 {
		t.Errorf("a recording of JSON lines gives %d events, %v", n, err)
	}
}

func TestEnvironments(t *testing.T) {
	const base = "SLURM_SCRIPT_CONTEXT=prolog_slurmd\nSLURM_JOB_ID=7\nSLURMD_NODENAME=n1\n"
	for name, c := range map[string]struct {
		env  string
		want *NodeEvent
		says string
	}{
		"a job without GPUs":                    {base, &NodeEvent{Begin: true, JobID: 7, Node: "n1"}, ""},
		"ranges of GPUs":                        {base + "SLURM_JOB_GPUS=0-2,5\n", &NodeEvent{Begin: true, JobID: 7, Node: "n1", GPUs: []uint16{0, 1, 2, 5}}, ""},
		"UUIDs elsewhere do not matter":         {base + "CUDA_VISIBLE_DEVICES=GPU-0a\nSLURM_JOB_GPUS=3", &NodeEvent{Begin: true, JobID: 7, Node: "n1", GPUs: []uint16{3}}, ""},
		"a component and no values":             {base + "SLURM_HET_JOB_ID=6\nSLURM_HET_JOB_OFFSET=1\nSLURM_JOB_END_TIME=4294967294\nSLURM_JOB_START_TIME=0", &NodeEvent{Begin: true, JobID: 7, Node: "n1", HetJobID: 6, HetOffset: new(uint32(1))}, ""},
		"an epilog of a killed job":             {strings.Replace(base, "prolog", "epilog", 1) + "SLURM_JOB_EXIT_CODE2=0:15", &NodeEvent{JobID: 7, Node: "n1", ExitCode: new(uint32(0)), Signal: new(uint32(15))}, ""},
		"refused: a task prolog":                {strings.Replace(base, "prolog_slurmd", "prolog_task", 1), nil, "call the hook from Prolog"},
		"refused: no context":                   {"SLURM_JOB_ID=7", nil, "SLURM_SCRIPT_CONTEXT"},
		"refused: no job":                       {"SLURM_SCRIPT_CONTEXT=prolog_slurmd\nSLURMD_NODENAME=n1", nil, "SLURM_JOB_ID is missing"},
		"refused: no node":                      {"SLURM_SCRIPT_CONTEXT=epilog_slurmd\nSLURM_JOB_ID=7", nil, "SLURMD_NODENAME is missing"},
		"refused: GPUs that are no indices":     {base + "SLURM_JOB_GPUS=GPU-0a", nil, `SLURM_JOB_GPUS="GPU-0a"`},
		"refused: a job id that is no number":   {base + "SLURM_JOB_ID=x", nil, `SLURM_JOB_ID="x"`},
		"refused: an exit code of another form": {strings.Replace(base, "prolog", "epilog", 1) + "SLURM_JOB_EXIT_CODE2=x", nil, "SLURM_JOB_EXIT_CODE2"},
		"refused: JSON cut short":               {`{"SLURM_JOB_ID":"7"`, nil, "send one flat object"},
		"refused: two JSON objects":             {`{"SLURM_JOB_ID":"7"}{}`, nil, "more data"},
		"refused: JSON that is not flat":        {`{"SLURM_JOB_ID":{"a":1}}`, nil, "SLURM_SCRIPT_CONTEXT"},
		"refused: nothing":                      {"", nil, "SLURM_SCRIPT_CONTEXT"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decode([]byte(c.env))
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("error %v, want one with %q", err, c.says)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestABadEnvironmentLosesNoOther(t *testing.T) {
	b := bytes.Replace(recording(t), []byte("SLURM_JOB_GPUS=0,1"), []byte("SLURM_JOB_GPUS=zero"), 1)
	var good int
	var bad []string
	err := DecodeRecording(bytes.NewReader(b), func(e *NodeEvent, err error) error {
		if err != nil {
			bad = append(bad, err.Error())
		} else {
			good++
		}
		return nil
	})
	if err != nil || good != 5 || len(bad) != 1 || !strings.Contains(bad[0], "line 33") {
		t.Errorf("%d good, bad %q, %v", good, bad, err)
	}
	stop := errors.New("enough")
	if err := DecodeRecording(bytes.NewReader(b), func(*NodeEvent, error) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	if err := DecodeRecording(strings.NewReader(strings.Repeat("x", 2<<20)), func(*NodeEvent, error) error { return nil }); err == nil || !strings.Contains(err.Error(), "after line 0") {
		t.Errorf("a line without end: %v", err)
	}
}

// A cut environment is refused or lacks values; it never gives wrong ones for what it needs to have.
func TestEveryPrefix(t *testing.T) {
	for _, block := range blocks(t) {
		whole, _ := Decode(block)
		for n := range block {
			e, err := Decode(block[:n:n])
			if err == nil && (e.JobID == 0 || !e.Controller && !strings.HasPrefix(whole.Node, e.Node)) {
				t.Fatalf("cut at %d: %+v", n, e)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, b := range blocks(f) {
		f.Add(b)
		f.Add(bytes.ReplaceAll(b, []byte("\n"), []byte{0}))
	}
	f.Add([]byte(`{"SLURM_JOB_ID":51,"SLURM_SCRIPT_CONTEXT":"prolog_slurmctld","SLURM_JOB_GPUS":"0-3"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := Decode(slices.Clip(b)); err == nil && (e.JobID == 0 || e.Node == "" && !e.Controller) {
			t.Errorf("%+v without an error", e)
		}
		DecodeRecording(bytes.NewReader(b), func(e *NodeEvent, err error) error {
			if (e == nil) == (err == nil) {
				t.Errorf("%+v and %v", e, err)
			}
			return nil
		})
	})
}

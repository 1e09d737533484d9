package slurmjson

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect/slurm/hostlist"
)

// The same moment seen by scontrol's text output, read by an independent, simple parser: a record is a list of Key=Value
// with blanks between. Values with blanks (the submit line) are not compared.
type truth map[string]string

var pair = regexp.MustCompile(`(?:^|\s)([A-Za-z][A-Za-z/:_]*)=(\S*)`)

func readTruth(t testing.TB, text string, separator string) map[uint32]truth {
	t.Helper()
	out := map[uint32]truth{}
	for rec := range strings.SplitSeq(text, separator) {
		if strings.TrimSpace(rec) == "" {
			continue
		}
		// Options inside the submit line look like keys ("--wrap=…" does not, "-J x=1" would).
		head, tail, _ := strings.Cut(rec, "SubmitLine=")
		if _, after, ok := strings.Cut(tail, "WorkDir="); ok {
			tail = "WorkDir=" + after
		}
		tr := truth{"details": head}
		for _, m := range pair.FindAllStringSubmatch(head+" "+tail, -1) {
			if _, seen := tr[m[1]]; !seen {
				tr[m[1]] = m[2]
			}
		}
		id, err := strconv.ParseUint(tr["JobId"], 10, 32)
		if err != nil {
			t.Fatalf("record without JobId: %.200q", rec)
		}
		out[uint32(id)] = tr
	}
	return out
}

// text gives a value as it is, "" for the words that mean none.
func (tr truth) text(key string) string {
	switch v := tr[key]; v {
	case "(null)", "N/A", "None", "Unknown", "4294967294":
		return ""
	default:
		return v
	}
}

func (tr truth) time(t testing.TB, key string) time.Time {
	t.Helper()
	v := tr.text(key)
	if v == "" {
		return time.Time{}
	}
	at, err := time.Parse("2006-01-02T15:04:05", v)
	if err != nil {
		t.Errorf("%s: %v", key, err)
	}
	return at
}

// limit reads [days-]hours:minutes:seconds.
func (tr truth) limit(t testing.TB) Limit {
	t.Helper()
	v := tr["TimeLimit"]
	if v == "UNLIMITED" {
		return Limit{Set: true, Infinite: true}
	}
	days, clock, ok := strings.Cut(v, "-")
	if !ok {
		days, clock = "0", v
	}
	var d, h, m, s int
	if _, err := fmt.Sscanf(days+" "+strings.ReplaceAll(clock, ":", " "), "%d %d %d %d", &d, &h, &m, &s); err != nil {
		t.Errorf("time limit %q: %v", v, err)
	}
	return Limit{Set: true, Duration: time.Duration(((d*24+h)*60+m)*60+s) * time.Second}
}

var detail = regexp.MustCompile(`Nodes=(\S+) CPU_IDs=\S+ Mem=\d+ GRES=(\S*)`)

// gres gives the GRES of each node.
func (tr truth) gres(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, m := range detail.FindAllStringSubmatch(tr["details"], -1) {
		names, err := hostlist.Expand(m[1])
		if err != nil {
			t.Error(err)
		}
		for _, n := range names {
			out[n] = m[2]
		}
	}
	return out
}

// compare reports how j differs from the text.
func compare(t *testing.T, j *Job, tr truth) {
	t.Helper()
	eq := func(what string, got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("job %d: %s (-scontrol text +decoded):\n%s", j.JobID, what, diff)
		}
	}
	eq("name", strings.Fields(j.Name + " ")[:1], strings.Fields(tr["JobName"] + " ")[:1])
	eq("sluid", j.SLUID, tr["SLUID"])
	eq("user", j.User, tr["UserId"][:strings.IndexByte(tr["UserId"], '(')])
	eq("account", j.Account, tr.text("Account"))
	eq("qos", j.QOS, tr.text("QOS"))
	eq("partition", j.Partition, tr["Partition"])
	eq("restarts", strconv.Itoa(int(*j.RestartCnt)), tr["Restarts"])
	eq("submit", j.Submit, tr.time(t, "SubmitTime"))
	eq("eligible", j.Eligible, tr.time(t, "EligibleTime"))
	eq("start", j.Start, tr.time(t, "StartTime"))
	eq("suspend", j.Suspend, tr.time(t, "SuspendTime"))
	eq("seconds before the suspension", strconv.FormatUint(*j.PreSusSeconds, 10), tr["SecsPreSuspend"])
	eq("time limit", j.TimeLimit, tr.limit(t))
	eq("nodes", j.Nodes, tr.text("NodeList"))
	eq("required nodes", j.RequiredNodes, tr.text("ReqNodeList"))
	eq("excluded nodes", j.ExcludedNodes, tr.text("ExcNodeList"))
	fewest, _, _ := strings.Cut(tr["NumNodes"], "-")
	eq("node count", strconv.Itoa(int(*j.NodeCount)), fewest)
	eq("requested TRES", j.TresReq, tr.text("ReqTRES"))
	eq("allocated TRES", j.TresAlloc, tr.text("AllocTRES"))
	eq("TRES per job", j.TresPerJob, tr["TresPerJob"])
	eq("TRES per node", j.TresPerNode, tr["TresPerNode"])
	eq("TRES per task", j.TresPerTask, tr["TresPerTask"])
	eq("network", j.Network, tr.text("Network"))
	segment := "" // the text leaves out no segments
	if *j.SegmentSize > 0 {
		segment = strconv.Itoa(int(*j.SegmentSize))
	}
	eq("segment size", segment, tr["SegmentSize"])
	switches := ""
	if *j.RequiredSwitches > 0 {
		switches = fmt.Sprintf("%d@%s", *j.RequiredSwitches, time.Time{}.Add(*j.MaxSwitchWait).Format("15:04:05"))
	}
	eq("switches", switches, tr["Switches"])
	array, task := "", ""
	if j.ArrayJobID > 0 {
		array, task = strconv.Itoa(int(j.ArrayJobID)), j.ArrayTaskString
		if j.ArrayTaskID != nil {
			task = strconv.Itoa(int(*j.ArrayTaskID))
		}
	}
	eq("array", array, tr["ArrayJobId"])
	eq("array task", task, tr.text("ArrayTaskId"))
	het, offset := "", ""
	if j.HetJobID > 0 {
		het, offset = strconv.Itoa(int(j.HetJobID)), strconv.Itoa(int(*j.HetOffset))
	}
	eq("heterogeneous job", het, tr["HetJobId"])
	eq("component", offset, tr["HetJobOffset"])
	eq("components", j.HetSet, tr["HetJobIdSet"])

	names, err := hostlist.Expand(j.Nodes)
	if err != nil {
		t.Errorf("job %d: %v", j.JobID, err)
	}
	if j.AllocNodeNames != nil {
		eq("order of the nodes", j.AllocNodeNames, names)
	}
	got := map[string]string{}
	for i, g := range j.GresDetail {
		got[j.AllocNodeNames[i]] = g
	}
	want := tr.gres(t)
	for n, g := range want {
		if g == "" && got[n] == "" {
			delete(want, n)
		}
	}
	eq("GRES of each node", got, want)
	// The indices of all nodes are as many as the GPUs allocated.
	indices, gpus := 0, uint64(0)
	for _, s := range j.GresDetail {
		list, err := ParseGres(s)
		if err != nil {
			t.Errorf("job %d: %v", j.JobID, err)
		}
		for _, g := range list {
			indices += len(g.Index)
		}
	}
	if tres, err := ParseTres(j.TresAlloc); err != nil {
		t.Errorf("job %d: %v", j.JobID, err)
	} else if gpus, _ = tres.GPUs(); len(j.GresDetail) > 0 && uint64(indices) != gpus {
		t.Errorf("job %d: %d indices, %d GPUs", j.JobID, indices, gpus)
	}
}

func TestPollAgainstScontrolText(t *testing.T) {
	type moment struct{ doc, text, separator string }
	moments := map[string]moment{"scenario": {"scontrol_jobs.json", "scontrol_jobs.txt", "\n\n"}}
	polls, err := filepath.Glob("testdata/run1/squeue-*.json.gz")
	if err != nil || len(polls) < 5 {
		t.Fatalf("%d recorded polls, %v", len(polls), err)
	}
	for _, p := range polls {
		at := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(p), "squeue-"), ".json.gz")
		moments[at] = moment{"run1/" + filepath.Base(p), "run1/truth-" + at + ".txt.gz", "\n"}
	}
	for name, m := range moments {
		t.Run(name, func(t *testing.T) {
			texts := readTruth(t, string(open(t, m.text)), m.separator)
			js, meta := jobs(t, open(t, m.doc))
			if meta.Unread != nil {
				t.Errorf("unread %v", meta.Unread)
			}
			compared, moved := 0, 0
			for _, j := range js {
				tr, ok := texts[j.JobID]
				reason := j.StateReason
				if j.StateDescription != "" {
					reason = strings.ReplaceAll(j.StateDescription, " ", "_")
				}
				// The text was taken a moment after the document. A job that changed in between cannot be compared.
				if !ok || tr["JobState"] != j.States[0] || tr["Reason"] != reason || !tr.time(t, "StartTime").Equal(j.Start) || tr.text("SchedNodeList") != j.ScheduledNodes {
					moved++
					continue
				}
				compared++
				compare(t, j, tr)
			}
			if moved > len(js)/20 || compared < 10 {
				t.Errorf("%d jobs compared, %d changed in between: too few to mean anything", compared, moved)
			}
		})
	}
}

// The documents of one moment, taken by different tools, must decode to the same jobs.
func TestPollsAgree(t *testing.T) {
	rest, _ := jobs(t, open(t, "rest_jobs.json"))
	cli, _ := jobs(t, open(t, "squeue.json"))
	for _, j := range cli {
		other := find(t, rest, j.JobID)
		if diff := cmp.Diff(j, other); diff != "" && j.States[0] == other.States[0] && j.States[0] != "PENDING" {
			t.Errorf("job %d (-squeue +REST):\n%s", j.JobID, diff)
		}
	}
	old, _ := jobs(t, open(t, "squeue_job4_v0.0.45.json"))
	for _, v := range []string{"v0.0.42", "v0.0.43", "v0.0.44"} {
		js, _ := jobs(t, open(t, "squeue_job4_"+v+".json"))
		want := *old[0]
		if v < "v0.0.44" {
			want.SLUID = ""
		}
		if v < "v0.0.43" {
			want.SegmentSize = nil
		}
		if diff := cmp.Diff(&want, js[0]); diff != "" {
			t.Errorf("%s (-v0.0.45 +%s):\n%s", v, v, diff)
		}
	}
}

// The accounting must tell of a run what the last poll told, in the fields both have.
func TestAccountingAgainstPoll(t *testing.T) {
	for name, c := range map[string]struct{ poll, acct string }{
		"scenario": {"squeue_after.json", "sacct.json"},
		"run":      {"run1/squeue-20261129T142555Z.json.gz", "run1/sacct.json.gz"},
	} {
		t.Run(name, func(t *testing.T) {
			poll, _ := jobs(t, open(t, c.poll))
			acct, meta := jobs(t, open(t, c.acct))
			if meta.Unread != nil {
				t.Errorf("unread %v", meta.Unread)
			}
			runs := map[string]*Job{}
			for _, j := range acct {
				if !j.Accounting {
					t.Errorf("job %d is not taken for accounting", j.JobID)
				}
				runs[j.SLUID] = j
			}
			compared := 0
			for _, p := range poll {
				a := runs[p.SLUID]
				// Accounting has no job that is not eligible yet, no nodes of one cancelled while pending, and still the
				// run that ends where the poll already counts a requeue.
				if a == nil || p.Nodes == "" || slices.Equal(p.States, []string{"PENDING", "COMPLETING"}) {
					continue
				}
				compared++
				type both struct {
					JobID, ArrayJobID, HetJobID       uint32
					Name, User, Account, QOS, Nodes   string
					Partition, TresReq, TresAlloc     string
					Submit, Start                     time.Time
					TimeLimit                         Limit
					Segment, Restarts, NodeCount, Het *uint32
				}
				of := func(j *Job) both {
					return both{j.JobID, j.ArrayJobID, j.HetJobID, j.Name, j.User, j.Account, j.QOS, j.Nodes, j.Partition, j.TresReq, j.TresAlloc, j.Submit, j.Start, j.TimeLimit, j.SegmentSize, j.RestartCnt, j.NodeCount, j.HetOffset}
				}
				if diff := cmp.Diff(of(p), of(a)); diff != "" {
					t.Errorf("job %d (-poll +accounting):\n%s", p.JobID, diff)
				}
			}
			if compared < 10 {
				t.Errorf("only %d runs compared", compared)
			}
		})
	}
}

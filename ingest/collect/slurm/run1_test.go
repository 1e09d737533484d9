package slurm

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/ingest/collect/slurm/hostlist"
	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
	"github.com/spillway-io/spillway/schemas/event"
)

// run1 is a recorded series: about five minutes of a live cluster with cancels, requeues and suspensions, one squeue
// document every ten seconds, and right after each the text view of the same jobs. The text is read here with code of its
// own, so that a mistake in the JSON path cannot hide.

// holder is what one job holds: node -> GPU indices as printed, "?" where the text does not say.
type holder map[string]string

// textJob is one job of the text view.
type textJob struct {
	held               holder // nil = it holds nothing
	submit, start, end time.Time
}

func unpacked(t testing.TB, path string) *bufio.Scanner {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	s := bufio.NewScanner(z)
	s.Buffer(nil, 1<<20)
	return s
}

var (
	textField = regexp.MustCompile(`(?:^| )([A-Za-z]+)=([^ ]*)`)
	textGroup = regexp.MustCompile(` Nodes=([^ ]+) CPU_IDs=[^ ]* Mem=[^ ]* GRES=([^ ]*)`)
	textIndex = regexp.MustCompile(`^gpu(?::[^:(]+)?:\d+\(IDX:([0-9,-]+)\)$`)
)

// truth reads `scontrol show job -d -o`: which jobs hold which nodes and GPUs.
func truth(t *testing.T, path string) map[string]textJob {
	t.Helper()
	jobs := map[string]textJob{}
	for s := unpacked(t, path); s.Scan(); {
		line := s.Text()
		first := map[string]string{}
		for _, m := range textField.FindAllStringSubmatch(line, -1) {
			if _, had := first[m[1]]; !had {
				first[m[1]] = m[2]
			}
		}
		clock := func(key string) time.Time {
			at, _ := time.Parse("2006-01-02T15:04:05", first[key])
			return at
		}
		j := textJob{submit: clock("SubmitTime"), start: clock("StartTime"), end: clock("EndTime")}
		switch first["JobState"] {
		case "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING":
		default:
			jobs[first["JobId"]] = j
			continue
		}
		h := holder{}
		names, err := hostlist.Expand(first["NodeList"])
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			h[n] = "?"
		}
		for _, m := range textGroup.FindAllStringSubmatch(line, -1) {
			index := textIndex.FindStringSubmatch(m[2])
			names, err := hostlist.Expand(m[1])
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range names {
				if index != nil {
					h[n] = index[1]
				}
			}
		}
		j.held = h
		jobs[first["JobId"]] = j
	}
	return jobs
}

// ranges prints indices as Slurm does: 0-1,3.
func ranges(index []uint32) string {
	var parts []string
	for i := 0; i < len(index); {
		k := i
		for k+1 < len(index) && index[k+1] == index[k]+1 {
			k++
		}
		if k == i {
			parts = append(parts, strconv.Itoa(int(index[i])))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", index[i], index[k]))
		}
		i = k + 1
	}
	return strings.Join(parts, ",")
}

// fleet folds records in the simplest way: the newest record of a run is the run.
type fleet map[string]*event.Placement

func (f fleet) apply(records []event.Record) {
	for _, p := range collecttest.Placements(records) {
		f[p.JobId+"/"+p.Component+"/"+p.RunId] = p
	}
}

func (f fleet) held() map[string]holder {
	out := map[string]holder{}
	for _, p := range f {
		if !p.State.Holding() {
			continue
		}
		id := p.JobId
		if p.Component != "" {
			id = p.Component
		}
		h := holder{}
		for _, n := range p.Placements {
			if n.ToMs == nil {
				h[n.Node] = ranges(n.GpuIndex)
			}
		}
		out[id] = h
	}
	return out
}

func run1Polls(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/run1/squeue-*.json.gz")
	if err != nil || len(paths) != 26 {
		t.Fatal(paths, err)
	}
	slices.Sort(paths)
	return paths
}

func fileJobs(path string) Jobs {
	return func(yield func(*slurmjson.Job) error) (slurmjson.Meta, error) {
		f, err := collect.OpenRecorded(path)
		if err != nil {
			return slurmjson.Meta{}, err
		}
		defer f.Close()
		return slurmjson.DecodeJobs(f, yield)
	}
}

func observedAt(t testing.TB, path string) time.Time {
	t.Helper()
	at, err := time.Parse("20060102T150405", stampInName.FindStringSubmatch(path)[1])
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestRunHoldsWhatSlurmSaysAtEveryPoll(t *testing.T) {
	cfg := testConfig()
	drops := map[string]int{}
	p := NewPoller(&cfg, quiet(), func(reason string, n int) { drops[reason] += n })
	runs := fleet{}
	compared, raced := 0, 0
	for _, path := range run1Polls(t) {
		records, meta, err := p.Observe(fileJobs(path), SourceSqueue, observedAt(t, path))
		if err != nil {
			t.Fatal(path, err)
		}
		if len(records) > meta.Records+5 {
			t.Errorf("%s: %d records of %d jobs", path, len(records), meta.Records)
		}
		p.Commit()
		runs.apply(records)
		// Runs that were requeued wait for accounting; here nobody asks it.
		gone, err := p.GiveUp(time.Time{}, observedAt(t, path))
		if err != nil {
			t.Fatal(err)
		}
		p.Commit()
		runs.apply(gone)

		textPath := strings.NewReplacer("squeue-", "truth-", ".json.", ".txt.").Replace(path)
		if _, err := os.Stat(textPath); err != nil {
			continue // the last one was not taken
		}
		want, got := truth(t, textPath), runs.held()
		second := meta.LastUpdate
		for id, h := range got {
			w := want[id]
			if w.held == nil {
				// It ended in the moment between the two.
				if !runs.completing(id) && w.end.Before(second) && w.submit.Before(second) {
					t.Errorf("%s: job %s holds %v by the records, and nothing since %v by the text", path, id, h, w.end)
				}
				raced++
				continue
			}
			if len(w.held) != len(h) {
				t.Errorf("%s: job %s: %d nodes, the text has %d", path, id, len(h), len(w.held))
			}
			for node, index := range w.held {
				if got, ok := h[node]; !ok || index != "?" && got != index {
					t.Errorf("%s: job %s on %s: GPUs %q, the text says %q", path, id, node, got, index)
				}
			}
			compared++
		}
		for id, w := range want {
			if w.held != nil && got[id] == nil {
				if w.start.Before(second) {
					t.Errorf("%s: job %s holds nodes since %v by the text and not by the records", path, id, w.start)
				}
				raced++ // it began in the moment between the two
			}
		}
	}
	t.Logf("%d holdings compared, %d began or ended between the two recordings", compared, raced)
	if compared < 200 || raced > compared/5 || len(drops) > 0 {
		t.Errorf("compared %d, raced %d, dropped %v", compared, raced, drops)
	}
}

func (f fleet) completing(id string) bool {
	for _, p := range f {
		if (p.JobId == id || p.Component == id) && p.State == event.State_COMPLETING {
			return true
		}
	}
	return false
}

func TestRunEndsAsAccountingSays(t *testing.T) {
	paths := run1Polls(t)
	for name, extra := range map[string][]string{
		"polls alone know an interval for requeued runs":      nil,
		"accounting gives every run its end":                  {"testdata/run1/sacct.json.gz"},
		"completion messages tell the same":                   {"testdata/run1/jobcomp_kafka.jsonl.gz"},
		"all sources together, and the order does not matter": {"testdata/run1/jobcomp_kafka.jsonl.gz", "testdata/run1/sacct.json.gz"},
	} {
		t.Run(name, func(t *testing.T) {
			type end struct {
				state      event.State
				start, end int64
			}
			want := map[string]end{}
			for _, p := range collecttest.Placements(replayed(t, "testdata/run1/sacct.json.gz")) {
				want[p.JobId+"/"+p.RunId] = end{p.State, p.GetStartMs(), p.GetEndMs()}
			}
			if len(want) != 79 {
				t.Fatalf("accounting has %d runs", len(want))
			}
			got := map[string]end{}
			exact := map[string]bool{}
			for _, p := range collecttest.Placements(replayed(t, append(slices.Clone(extra), paths...)...)) {
				key := p.JobId + "/" + p.RunId
				if !p.State.Ended() {
					continue
				}
				if p.EndEarliestMs != nil {
					w := want[key]
					if w.end < *p.EndEarliestMs || w.end > *p.EndMs || p.State != event.State_REQUEUED || w.state != p.State {
						t.Errorf("run %s ended at %d as %v, outside of [%d, %d] as %v", key, w.end, w.state, *p.EndEarliestMs, *p.EndMs, p.State)
					}
					continue
				}
				got[key] = end{p.State, p.GetStartMs(), p.GetEndMs()}
				exact[key] = true
			}
			requeued := 0
			for key, w := range want {
				if !exact[key] {
					if w.state != event.State_REQUEUED || len(extra) > 0 {
						t.Errorf("run %s has no exact end", key)
					}
					requeued++
					delete(want, key)
				}
			}
			if len(extra) == 0 && requeued != 5 {
				t.Errorf("%d runs with an interval", requeued)
			}
			// The recording has one job that accounting's question left out, as it was not eligible yet.
			for key := range got {
				if _, ok := want[key]; !ok {
					t.Logf("accounting does not have %s", key)
					delete(got, key)
				}
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(end{})); diff != "" {
				t.Errorf("ends (-accounting +got):\n%s", diff)
			}
		})
	}
}

func TestRequeuedJobHasTwoRuns(t *testing.T) {
	runs := map[string][]string{}
	for _, p := range collecttest.Placements(replayed(t, append(run1Polls(t), "testdata/run1/sacct.json.gz")...)) {
		if p.JobId != "245" {
			continue
		}
		var nodes []string
		for _, n := range p.Placements {
			nodes = append(nodes, n.Node+":"+ranges(n.GpuIndex))
		}
		runs[p.RunId] = append(runs[p.RunId], fmt.Sprintf("%d %v %d %v", p.GetRestart(), p.State, p.GetStartMs()/1000, nodes))
	}
	want := map[string][]string{
		"s2MSM8KTWJ4S00": {
			"0 PENDING 0 []", "0 RUNNING 1795962064 [gb-r01-n10:0-3]",
			"0 COMPLETING 1795962064 [gb-r01-n10:0-3]", // told as PENDING,COMPLETING of restart 1 with a start of its own
			"0 REQUEUED 1795962064 [gb-r01-n10:0-3]",
		},
		"s2MSM8KTYSY900": {
			"1 PENDING 0 []", "1 RUNNING 1795962260 [gb-r01-n10:0-3]", "1 RUNNING 1795962260 [gb-r01-n10:0-3]",
			"1 FAILED 1795962260 [gb-r01-n10:0-3]", "1 FAILED 1795962260 [gb-r01-n10:]",
		},
	}
	if diff := cmp.Diff(want, runs); diff != "" {
		t.Errorf("runs of job 245 (-want +got):\n%s", diff)
	}
}

func TestCompletingRunKeepsItsNodesAndSaysWhichAreFree(t *testing.T) {
	var got []string
	for _, p := range collecttest.Placements(replayed(t, run1Polls(t)...)) {
		if p.JobId != "246" || p.State == event.State_PENDING {
			continue
		}
		s := fmt.Sprint(p.State)
		for _, n := range p.Placements {
			s += " " + strings.TrimPrefix(n.Node, "gb-r01-") + ":" + ranges(n.GpuIndex)
			if n.ToMs != nil {
				s += fmt.Sprintf(" until %d", *n.ToMs/1000)
			}
		}
		got = append(got, s)
	}
	all := " n11:0-3 n12:0-3 n13:0-3 n14:0-3 n15:0-3 n16:0-3 n17:0-3 n18:0-3"
	want := []string{"RUNNING" + all, "COMPLETING" + strings.Replace(all, "n12:0-3", "n12:0-3 until 1795962116", 1), "COMPLETED" + all}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records of job 246 (-want +got):\n%s", diff)
	}
}

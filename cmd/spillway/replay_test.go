package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/read"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// The recordings are of one cluster: three racks of 18 nodes x 4 GPUs, whose node names tell the rack (gb-r02-n07).
const (
	slurmData    = "../../ingest/collect/slurm/slurmjson/testdata/"
	run1Data     = "../../ingest/collect/slurm/testdata/run1/"
	topologyData = "../../ingest/collect/topology/testdata/"
	rackGPUs     = 72
)

// replayed runs the command and gives what it printed.
func replayed(t *testing.T, args ...string) []read.Outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(context.Background(), append([]string{"replay", "-o", "json"}, args...), &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	var out []read.Outcome
	for dec := json.NewDecoder(&stdout); ; {
		var o read.Outcome
		if err := dec.Decode(&o); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
}

// placed is one run as the recording has it, read here without any of the code under test.
type placed struct {
	job        string
	start, end int64 // Unix seconds; end 0 = running
	nodes      []string
	gpus       int
	segment    int
	limit      int64 // seconds; 0 = none
}

func (p placed) key() string { return fmt.Sprintf("%s@%d", p.job, p.start) }

// number reads the several shapes in which Slurm prints one.
func number(v any) int64 {
	switch n := v.(type) {
	case float64:
		return int64(n)
	case map[string]any:
		if set, ok := n["set"].(bool); ok && !set {
			return 0
		}
		return number(n["number"])
	}
	return 0
}

var brackets = regexp.MustCompile(`^(.*)\[(.*)\]$`)

// expand reads the node lists of these recordings: one bracket an item, two digits.
func expand(list string) (out []string) {
	if list == "" || list == "None assigned" {
		return nil
	}
	for _, item := range regexp.MustCompile(`[^,\[]+(\[[^\]]*\])?`).FindAllString(list, -1) {
		m := brackets.FindStringSubmatch(item)
		if m == nil {
			out = append(out, item)
			continue
		}
		for _, r := range strings.Split(m[2], ",") {
			lo, hi, ranged := strings.Cut(r, "-")
			if !ranged {
				hi = lo
			}
			from, _ := strconv.Atoi(lo)
			to, _ := strconv.Atoi(hi)
			for i := from; i <= to; i++ {
				out = append(out, fmt.Sprintf("%s%0*d", m[1], len(lo), i))
			}
		}
	}
	return out
}

func rack(node string) string { return "rack" + node[4:6] }

// recorded reads every run that was placed and holds GPUs from a document of squeue, scontrol or sacct.
func recorded(t *testing.T, path string) map[string]placed {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	var doc struct{ Jobs []map[string]any }
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string]placed{}
	for _, j := range doc.Jobs {
		p := placed{job: fmt.Sprint(number(j["job_id"])), nodes: expand(fmt.Sprint(j["nodes"])), segment: int(number(j["segment_size"]))}
		words := fmt.Sprint(j["job_state"])
		if times, ok := j["time"].(map[string]any); ok { // sacct
			p.start, p.end, p.limit = number(times["start"]), number(times["end"]), 60*number(times["limit"])
			for _, tres := range j["tres"].(map[string]any)["allocated"].([]any) {
				if m := tres.(map[string]any); m["type"] == "gres" && m["name"] == "gpu" {
					p.gpus = int(number(m["count"]))
				}
			}
		} else {
			p.start, p.end, p.limit = number(j["start_time"]), number(j["end_time"]), 60*number(j["time_limit"])
			if m := regexp.MustCompile(`gres/gpu=(\d+)`).FindStringSubmatch(fmt.Sprint(j["tres_alloc_str"])); m != nil {
				p.gpus, _ = strconv.Atoi(m[1])
			}
			if strings.Contains(words, "RUNNING") || strings.Contains(words, "SUSPENDED") {
				p.end = 0 // a plan by the time limit
			}
			if strings.Contains(words, "PENDING") {
				continue
			}
		}
		if len(p.nodes) == 0 || p.gpus == 0 {
			continue
		}
		// Components of a heterogeneous job are one application.
		leader := number(j["het_job_id"])
		if het, ok := j["het"].(map[string]any); ok {
			leader = number(het["job_id"])
		}
		if leader > 0 {
			p.job = fmt.Sprint(leader)
			if first, ok := out[p.key()]; ok {
				p.nodes, p.gpus = append(first.nodes, p.nodes...), p.gpus+first.gpus
			}
		}
		out[p.key()] = p
	}
	return out
}

// compare holds the verdicts against what follows from the recorded nodes alone.
func compare(t *testing.T, got []read.Outcome, want map[string]placed) {
	t.Helper()
	seen := map[string]bool{}
	for _, o := range got {
		if o.GPUs == nil || *o.GPUs == 0 {
			continue
		}
		p, ok := want[fmt.Sprintf("%s@%d", o.JobID, o.Start.Unix())]
		if !ok {
			t.Errorf("job %s started %s is not in the recording", o.JobID, o.Start)
			continue
		}
		seen[p.key()] = true
		racks := map[string]int{}
		for _, n := range p.nodes {
			racks[rack(n)]++
		}
		fewest := (p.gpus + rackGPUs - 1) / rackGPUs
		aligned := p.segment > 0 && len(p.nodes)%p.segment == 0
		met := aligned
		for _, n := range racks {
			met = met && n%p.segment == 0
		}
		outcome := "one_domain"
		switch {
		case len(racks) == 1:
		case aligned && !met:
			outcome = "spill"
		case met || len(racks) <= fewest:
			outcome = "minimal_spread"
		default:
			outcome = "spill"
		}
		fault := func(what string, got, want any) {
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %s is %v, want %v (nodes %v)", p.key(), what, got, want, p.nodes)
			}
		}
		if o.Outcome == nil || o.DomainsUsed == nil || o.DomainsMin == nil || o.ExcessDomains == nil {
			t.Errorf("%s: no verdict: %+v", p.key(), o)
			continue
		}
		fault("outcome", *o.Outcome, outcome)
		fault("domains_used", *o.DomainsUsed, len(racks))
		fault("domains_min", *o.DomainsMin, fewest)
		fault("excess_domains", *o.ExcessDomains, len(racks)-fewest)
		fault("gpus", *o.GPUs, p.gpus)
		fault("unknown_nodes", *o.UnknownNodes, 0)
		nodes, sorted := slices.Sorted(slices.Values(p.nodes)), slices.Sorted(slices.Values(o.Nodes))
		fault("nodes", sorted, nodes)
		for name, n := range racks {
			if o.Shape[name] == nil || int(*o.Shape[name])*len(p.nodes) != n*p.gpus {
				t.Errorf("%s: shape %v, want %d of %d GPUs in %s", p.key(), o.Shape, n*p.gpus/len(p.nodes), p.gpus, name)
			}
		}
		if (o.Cause != nil) != (outcome == "spill") {
			t.Errorf("%s: %s has cause %v", p.key(), outcome, o.Cause)
		}
		if aligned != (o.IntentMet != nil && strings.Contains(*o.Intent, "segment")) || aligned && *o.IntentMet != met {
			t.Errorf("%s: segment %d over %v: intent_met is %v", p.key(), p.segment, racks, o.IntentMet)
		}
		if o.Cause != nil {
			fault("cause", *o.Cause, cause(p, want, fewest))
		}
	}
	for key := range want {
		if !seen[key] {
			t.Errorf("%s is in the recording and has no verdict", key)
		}
	}
}

// cause works out from the other recorded runs what was free when one began, and what would have been within the
// default window by their time limits.
func cause(p placed, all map[string]placed, fewest int) string {
	const window = 15 * 60
	free := map[string]int{"rack01": rackGPUs, "rack02": rackGPUs, "rack03": rackGPUs}
	later := map[string]int{"rack01": rackGPUs, "rack02": rackGPUs, "rack03": rackGPUs}
	for _, q := range all {
		if q.key() == p.key() || q.start > p.start || q.end != 0 && q.end <= p.start {
			continue
		}
		for _, n := range q.nodes {
			free[rack(n)] -= q.gpus / len(q.nodes)
			if q.limit == 0 || q.start+q.limit > p.start+window {
				later[rack(n)] -= q.gpus / len(q.nodes)
			}
		}
	}
	best := func(of map[string]int) (most, total int) {
		var each []int
		for _, n := range of {
			each = append(each, n)
			total += n
		}
		slices.Sort(each)
		slices.Reverse(each)
		for _, n := range each[:fewest] {
			most += n
		}
		return most, total
	}
	now, total := best(free)
	soon, _ := best(later)
	switch {
	case now >= p.gpus:
		return "policy"
	case soon >= p.gpus:
		return "timing"
	case total >= p.gpus:
		return "repack"
	}
	return "capacity"
}

func TestReplayOfRecordedSlurmOutputGivesWhatTheNodesSay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ jobs, topology string }{
		"running jobs, topology.yaml":             {slurmData + "squeue.json", "testdata/topology.yaml"},
		"running jobs, topology.conf":             {slurmData + "squeue.json", "testdata/topology.conf"},
		"running jobs, scontrol show topology":    {slurmData + "squeue.json", topologyData + "scontrol_topology_block18.txt"},
		"scontrol show job --json":                {slurmData + "scontrol_jobs.json", "testdata/topology.conf"},
		"slurmrestd":                              {slurmData + "rest_jobs.json", "testdata/topology.conf"},
		"after requeue, suspend, cancel, timeout": {slurmData + "squeue_after.json", "testdata/topology.conf"},
		"accounting":                              {slurmData + "sacct.json", "testdata/topology.conf"},
		"spills and segments":                     {slurmData + "squeue_spill_segments.json", "testdata/topology.yaml"},
		"data_parser v0.0.42":                     {slurmData + "squeue_job4_v0.0.42.json", "testdata/topology.conf"},
		"data_parser v0.0.45":                     {slurmData + "squeue_job4_v0.0.45.json", "testdata/topology.conf"},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, replayed(t, test.jobs, test.topology), recorded(t, test.jobs))
		})
	}
}

func TestReplayOfAPollSeriesGivesWhatAccountingSays(t *testing.T) {
	polls, err := filepath.Glob(run1Data + "squeue-*.json.gz")
	if err != nil || len(polls) < 20 {
		t.Fatalf("got %d polls %v", len(polls), err)
	}
	want := recorded(t, run1Data+"sacct.json.gz")
	files := append([]string{"testdata/topology.yaml", run1Data + "sacct.json.gz", run1Data + "jobcomp_kafka.jsonl.gz"}, polls...)
	got := replayed(t, files...)
	// The first poll lists jobs that had ended before accounting was asked for.
	first := recorded(t, polls[0])
	for key, p := range first {
		if _, ok := want[key]; !ok {
			want[key] = p
		}
	}
	compare(t, got, want)
	for _, o := range got {
		if p, ok := want[fmt.Sprintf("%s@%d", o.JobID, o.Start.Unix())]; ok && p.end != 0 && (o.End == nil || o.End.Unix() != p.end) {
			t.Errorf("%s ended at %v, want %s", p.key(), o.End, time.Unix(p.end, 0).UTC())
		}
	}
}

func TestReplayRefusesWhatItCannotUseAndPrintsNoVerdict(t *testing.T) {
	whole, err := os.ReadFile(slurmData + "squeue.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"nothing named":           {nil, exitUsage, "spillway replay squeue.json"},
		"a file that is not":      {[]string{filepath.Join(dir, "absent.json")}, exitNotFound, "absent.json"},
		"a truncated document":    {[]string{write("cut.json", whole[:len(whole)/2]), "testdata/topology.conf"}, exitFailed, "cut.json"},
		"something else":          {[]string{write("other.json", []byte(`{"hello": 1}`))}, exitFailed, "other.json"},
		"an empty file":           {[]string{write("empty.json", nil)}, exitFailed, "empty.json"},
		"a topology with a cycle": {[]string{slurmData + "squeue.json", write("topology.conf", []byte("SwitchName=a Switches=b\nSwitchName=b Switches=a\n"))}, exitFailed, "topology.conf"},
		"a topology alone":        {[]string{"testdata/topology.conf"}, exitUsage, "--cluster"},
		"an unknown output":       {[]string{"-o", "xml", "testdata/topology.conf"}, exitUsage, "table or json"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(context.Background(), append([]string{"replay"}, test.args...), &stdout, &stderr)
			if code != test.code || !strings.Contains(stderr.String(), test.says) || stdout.Len() > 0 {
				t.Errorf("got code %d, stderr %q, stdout %q; want %d and %q", code, stderr.String(), stdout.String(), test.code, test.says)
			}
		})
	}
}

func TestReplayWithoutATopologyIsUnknownNotFine(t *testing.T) {
	got := replayed(t, slurmData+"squeue.json")
	if len(got) == 0 {
		t.Fatal("no attempts")
	}
	for _, o := range got {
		if o.GPUs != nil && *o.GPUs > 0 && (o.Outcome == nil || *o.Outcome != "unknown" || o.DomainsUsed != nil) {
			t.Errorf("job %s: got %+v, want unknown", o.JobID, o)
		}
	}
}

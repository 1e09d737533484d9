package pass

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-io/spillway/schemas/event"
)

var update = flag.Bool("update", false, "write the verdicts that come out into the cases")

// TestCases runs every file of testdata/cases: records in, verdicts out. Each case runs three times, because neither the
// order of records nor how they are cut into batches may matter: all at once; last first; shuffled with duplicates. All
// run side by side in one database, each in clusters of its own: once long after it happened, and once at the time, with
// what jobs hold in memory.
func TestCases(t *testing.T) {
	t.Run("long after", func(t *testing.T) { testCases(t, time.Now) })
	t.Run("at the time", func(t *testing.T) { testCases(t, func() time.Time { return time.UnixMilli(day) }) })
}

func testCases(t *testing.T, now func() time.Time) {
	files, err := filepath.Glob("testdata/cases/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases found (%v)", err)
	}
	s := newStore(t)
	s.Passes.now = now
	passes := make([][]event.Record, 2)
	hows := []string{"all at once", "last first", "shuffled, with duplicates"}
	for _, file := range files {
		records := parseCase(t, section(t, file, "records"))
		reversed := slices.Clone(records)
		slices.Reverse(reversed)
		rng := rand.New(rand.NewPCG(1, uint64(len(records))))
		shuffled := append(slices.Clone(records), records...)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		passes[0] = append(passes[0], inClusters(records, clusterOf(file, 0))...)
		for how, list := range map[int][]event.Record{1: reversed, 2: shuffled} {
			list = inClusters(list, clusterOf(file, how))
			for i := range passes {
				passes[i] = append(passes[i], list[i*len(list)/len(passes):(i+1)*len(list)/len(passes)]...)
			}
		}
	}
	for _, records := range passes {
		s.feed(records...)
		s.once()
	}
	text := s.verdictText()
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			for how := range hows {
				got := ""
				for line := range strings.Lines(text) {
					if says, ok := strings.CutPrefix(line, clusterOf(file, how)); ok {
						got += says
					}
				}
				if *update && how == 0 && !t.Failed() {
					archive, err := txtar.ParseFile(file)
					if err != nil {
						t.Fatal(err)
					}
					archive.Files[1].Data = []byte(got)
					if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if want := section(t, file, "verdicts"); got != want {
					t.Errorf("%s: verdicts are\n%s\nwant\n%s", hows[how], got, want)
				}
			}
		})
	}
}

// clusterOf is what the clusters of one run of a case begin with.
func clusterOf(file string, how int) string {
	return fmt.Sprintf("%s.%d.", strings.TrimSuffix(filepath.Base(file), ".txtar"), how)
}

// inClusters copies records into clusters of their own.
func inClusters(records []event.Record, prefix string) []event.Record {
	out := make([]event.Record, len(records))
	for i, r := range records {
		switch r := proto.Clone(r).(type) {
		case *event.Placement:
			r.Cluster = prefix + r.Cluster
			out[i] = r
		case *event.Membership:
			r.Cluster = prefix + r.Cluster
			out[i] = r
		case *event.Node:
			r.Cluster = prefix + r.Cluster
			out[i] = r
		}
	}
	return out
}

// section is one of the two parts of a case.
func section(t *testing.T, file, name string) string {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(archive.Files) != 2 || archive.Files[0].Name != "records" || archive.Files[1].Name != "verdicts" {
		t.Fatalf("%s: a case has the sections records and verdicts", file)
	}
	for _, f := range archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// parseCase reads the records of a case. A line is `TIME KIND key=value...`, # begins a comment, and values hold no
// spaces. TIME and all times are HH:MM:SS[.mmm] on one day, or "declared" for a file that always held.
//
//	10:00:00 membership nodes=a[01-18] source=nvml uuid=A clique=1
//	10:00:00 node       nodes=a[01-18] gpus=4
//	10:05:00 job        id=7 state=running start=10:05:00 nodes=a[01-02] gpus=8
func parseCase(t *testing.T, text string) []event.Record {
	t.Helper()
	var out []event.Record
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		l := caseLine{t: t, n: n + 1, values: map[string]string{}}
		for _, w := range words[2:] {
			key, value, _ := strings.Cut(w, "=")
			l.values[key] = value
		}
		at, declared := int64(0), words[0] == "declared"
		if declared {
			at = event.Time(l.time("00:00:00")).UnixMilli()
		} else {
			at = *l.time(words[0])
		}
		switch words[1] {
		case "membership":
			out = append(out, l.membership(at, declared)...)
		case "node":
			out = append(out, l.nodes(at, declared)...)
		case "job":
			out = append(out, l.jobs(at)...)
		default:
			t.Fatalf("line %d: %q is not a kind of record", n+1, words[1])
		}
		for key := range l.values {
			t.Fatalf("line %d: %q is not a field of %s", n+1, key, words[1])
		}
	}
	return out
}

type caseLine struct {
	t      *testing.T
	n      int
	values map[string]string
}

func (l *caseLine) take(key, def string) string {
	v, ok := l.values[key]
	if !ok {
		return def
	}
	delete(l.values, key)
	return v
}

func (l *caseLine) time(text string) *int64 {
	if text == "" {
		return nil
	}
	t, err := time.Parse("2006-01-02 15:04:05", "2026-01-01 "+text)
	if err != nil {
		l.t.Fatalf("line %d: %v", l.n, err)
	}
	return event.Millis(t)
}

func (l *caseLine) number(text string) *uint32 {
	if text == "" {
		return nil
	}
	v, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		l.t.Fatalf("line %d: %v", l.n, err)
	}
	return new(uint32(v))
}

// names expands a[01-03],b7.
func (l *caseLine) names(text string) []string {
	var out []string
	for _, part := range strings.Split(text, ",") {
		head, rest, ok := strings.Cut(part, "[")
		if !ok {
			if part != "" {
				out = append(out, part)
			}
			continue
		}
		lo, hi, _ := strings.Cut(strings.TrimSuffix(rest, "]"), "-")
		from, to := l.number(lo), l.number(hi)
		for i := *from; i <= *to; i++ {
			out = append(out, fmt.Sprintf("%s%0*d", head, len(lo), i))
		}
	}
	return out
}

func (l *caseLine) membership(at int64, declared bool) []event.Record {
	var out []event.Record
	nodes, source, uuid, clique := l.names(l.take("nodes", "")), l.take("source", "nvml"), l.take("uuid", ""), l.number(l.take("clique", ""))
	state, status, gpus, cluster, removed := l.take("state", "completed"), l.take("status", "success"), l.number(l.take("gpus", "1")), l.take("cluster", "c"), l.take("removed", "")
	var levels []*event.Level
	for _, level := range []string{"spine", "leaf", "rack", "block_group", "block", "domain", "partition"} {
		if v := l.take(level, ""); v != "" {
			levels = append(levels, &event.Level{Level: level, Value: v})
		}
	}
	for _, n := range nodes {
		m := &event.Membership{Cluster: cluster, Node: n, Source: source, Levels: levels, ObservedAtMs: at, Revision: uint64(at) * 1000, Removed: removed != ""}
		if declared {
			m.ValidFromMs = new(event.Time(l.time("00:00:00")).AddDate(-26, 0, 0).UnixMilli())
		}
		if uuid != "" {
			for g := range *gpus {
				m.Gpus = append(m.Gpus, &event.GpuFabric{Index: g, ClusterUuid: uuid, CliqueId: clique, State: state, Status: status})
			}
		}
		out = append(out, m)
	}
	return out
}

func (l *caseLine) nodes(at int64, declared bool) []event.Record {
	var out []event.Record
	nodes, gpus, cluster, schedulable := l.names(l.take("nodes", "")), l.number(l.take("gpus", "")), l.take("cluster", "c"), l.take("schedulable", "yes") == "yes"
	for _, n := range nodes {
		r := &event.Node{Cluster: cluster, Node: n, Source: "slurm", GpusPresent: gpus, Schedulable: &schedulable, ObservedAtMs: at, Revision: uint64(at) * 1000}
		if declared {
			r.ValidFromMs = new(event.Time(l.time("00:00:00")).AddDate(-26, 0, 0).UnixMilli())
		}
		out = append(out, r)
	}
	return out
}

// jobs makes one record, or one for each task of an array.
func (l *caseLine) jobs(at int64) []event.Record {
	state, ok := event.State_value[strings.ToUpper(l.take("state", "running"))]
	if !ok {
		l.t.Fatalf("line %d: no such state", l.n)
	}
	base := event.Placement{
		Cluster: l.take("cluster", "c"), JobId: l.take("id", ""), Component: l.take("component", ""), RunId: l.take("run", ""), Restart: l.number(l.take("restart", "")),
		Scheduler: "slurm", Source: l.take("source", "slurm.squeue"), State: event.State(state), Probe: l.take("probe", "") != "", Partial: l.take("partial", "") != "",
		StartMs: l.time(l.take("start", "")), EndMs: l.time(l.take("end", "")), EndEarliestMs: l.time(l.take("end_earliest", "")), Gpus: l.number(l.take("gpus", "")), RequestedNodes: l.number(l.take("asked", "")),
		ObservedAtMs: at, Revision: uint64(at) * 1000,
	}
	if limit := l.take("limit", ""); limit != "" {
		d, err := time.ParseDuration(limit)
		if err != nil {
			l.t.Fatalf("line %d: %v", l.n, err)
		}
		base.TimeLimitMs = new(d.Milliseconds())
	}
	in := &event.Intent{Level: l.take("level", ""), SegmentNodes: l.number(l.take("segment", "")), SpreadSegments: l.take("spread", "") != "",
		ExclusiveDomain: l.take("exclusive", "") != "", MaxSwitches: l.number(l.take("switches", ""))}
	in.Mode = event.Intent_Mode(event.Intent_Mode_value[strings.ToUpper(l.take("mode", "none"))])
	base.Intent = in
	per := strings.Split(l.take("pergpus", ""), ",")
	from, to := l.take("nodefrom", ""), l.take("nodeto", "")
	for i, n := range l.names(l.take("nodes", "")) {
		p := &event.NodePlacement{Node: n}
		if per[0] != "" {
			p.Gpus = l.number(per[min(i, len(per)-1)])
		}
		if name, when, ok := strings.Cut(from, "@"); ok && name == n {
			p.FromMs = l.time(when)
		}
		if name, when, ok := strings.Cut(to, "@"); ok && name == n {
			p.ToMs = l.time(when)
		}
		base.Placements = append(base.Placements, p)
	}
	tasks := l.number(l.take("tasks", ""))
	if tasks == nil {
		return []event.Record{&base}
	}
	var out []event.Record
	for i := range *tasks {
		one := placementOf(&base)
		one.ArrayJobId, one.ArrayTask, one.JobId = base.JobId, new(i), strconv.Itoa(int(i)+100000)
		out = append(out, one)
	}
	return out
}

func placementOf(p *event.Placement) *event.Placement {
	return &event.Placement{Cluster: p.Cluster, Restart: p.Restart, Scheduler: p.Scheduler, Source: p.Source, State: p.State, StartMs: p.StartMs, EndMs: p.EndMs,
		Gpus: p.Gpus, ObservedAtMs: p.ObservedAtMs, Revision: p.Revision, Intent: p.Intent, Placements: p.Placements}
}

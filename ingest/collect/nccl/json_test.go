package nccl

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// reportOf writes a result as nccl-tests would with -J: truth values and roots as texts, numbers with six decimals.
func reportOf(r Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"version":2,"start_time":"2026-11-03 12:00:00","args":["/opt/%s","-b","8M"],"env":["TOKEN=secret"],"nccl_version":23007,`, r.Collective)
	fmt.Fprint(&b, `"config":{"nthreads":1,"ngpus":1,"minimum_bytes":8,"graph":0,"blocking_collectives":"false","devices":[`)
	for i, rank := range r.Ranks {
		fmt.Fprintf(&b, `%s{"rank":%d,"group":%d,"pid":%d,"hostname":"%s","device":%d,"device_hex":"%s","device_info":"%s"}`, comma(i),
			rank.Rank, rank.Group, rank.PID, rank.Host, rank.Device, rank.Bus, rank.Model)
	}
	fmt.Fprint(&b, `]},"results":[`)
	measure := func(m *Measure) string {
		if m == nil {
			return "null"
		}
		wrong := "null"
		if !math.IsNaN(m.Wrong) {
			wrong = fmt.Sprintf("%f", m.Wrong)
		}
		return fmt.Sprintf(`{"time":%f,"alg_bw":%f,"bus_bw":%f,"nwrong":%s}`, m.Seconds*1e6, m.AlgBytesPerSecond/1e9, m.BusBytesPerSecond/1e9, wrong)
	}
	for i, row := range r.Rows {
		op := row.Op
		if op == "" {
			op = "none"
		}
		fmt.Fprintf(&b, `%s{"size":%d,"count":%d,"type":"%s","redop":"%s","root":"%6d","out_of_place":%s,"in_place":%s,"actual_iterations":20,"experiment_name":"x"}`,
			comma(i), row.Size, row.Count, row.Type, op, row.Root, measure(row.OutOfPlace), measure(row.InPlace))
	}
	okay := "unchecked"
	if r.Passed != nil {
		okay = fmt.Sprint(*r.Passed)
	}
	fmt.Fprintf(&b, `],"out_of_bounds":{"count":%d,"okay":"true"},"average_bus_bandwidth":{"bandwidth":%f,"okay":"%s"},"errors":[""],"end_time":"2026-11-03 12:01:00"}`,
		*r.OutOfBounds, r.Average/1e9, okay)
	return b.String()
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}

var endedRuns = []string{"h100_8gpu", "gb200_72gpu_one_domain", "gb200_16gpu_two_domains"}

// TestAReportSaysWhatTheOutputSays: the report of a run gives the record that its output for people gives.
func TestAReportSaysWhatTheOutputSays(t *testing.T) {
	for _, name := range endedRuns {
		t.Run(name, func(t *testing.T) {
			want := parseOne(t, sample(t, "nccl_all_reduce_perf_"+name+".txt"))
			got, err := ParseReport(strings.NewReader(reportOf(want)))
			if err != nil {
				t.Fatal(err)
			}
			want.Version = "" // a report does not tell
			if diff := cmp.Diff(want, *got, cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
				t.Error(diff)
			}
			dir := t.TempDir()
			put(t, filepath.Join(dir, "a"), sample(t, "nccl_all_reduce_perf_"+name+".txt"), written)
			put(t, filepath.Join(dir, "b"), reportOf(want), written)
			text, err := ReadFile(filepath.Join(dir, "a"), "c1", false)
			if err != nil {
				t.Fatal(err)
			}
			report, err := ReadFile(filepath.Join(dir, "b"), "c1", false)
			if err != nil || len(report) != 1 || report[0].RunId != text[0].RunId || report[0].Validate() != nil {
				t.Errorf("%v, %v: the report is of another run than the output", report, err)
			}
		})
	}
}

func TestReports(t *testing.T) {
	whole := reportOf(parseOne(t, sample(t, "nccl_all_reduce_perf_h100_8gpu.txt")))
	for name, c := range map[string]struct {
		change []string
		want   func(*Result) bool
	}{
		"several GPUs in a process": {[]string{`"nthreads":1,"ngpus":1`, `"nthreads":2,"ngpus":2`}, func(r *Result) bool { return len(r.Ranks) == 32 && r.Ranks[1].Bus != r.Ranks[0].Bus }},
		"times of the CPU":          {[]string{`"time":`, `"cpu_time":`}, func(r *Result) bool { return len(r.Rows) == 11 && r.Rows[0].InPlace.Seconds > 0 }},
		"an error":                  {[]string{`"errors":[""]`, `"errors":["no route to host"]`}, func(r *Result) bool { return r.Failure == "no route to host" }},
		"an error of none":          {[]string{`"errors":[""]`, `"errors":[null]`}, func(r *Result) bool { return r.Failure == "" }},
		"an average of none":        {[]string{`"bandwidth":365.309000`, `"bandwidth":"nan"`}, func(r *Result) bool { return math.IsNaN(r.Average) && !r.Truncated }},
		"no end of the table":       {[]string{`"average_bus_bandwidth"`, `"later"`}, func(r *Result) bool { return r.Truncated }},
		"a time of none":            {[]string{`"time":111.720000`, `"time":"nan"`}, func(r *Result) bool { return r.Rows[0].OutOfPlace == nil && r.Rows[0].InPlace != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := ParseReport(strings.NewReader(strings.NewReplacer(c.change...).Replace(whole)))
			if err != nil || !c.want(r) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	for i := 1; i < len(whole); i += 3 {
		if _, err := ParseReport(strings.NewReader(whole[:i])); err == nil {
			t.Fatalf("%d bytes of it are read", i)
		}
	}
	for _, text := range []string{`{}`, `{"a":[1]}`, `[1]`, `{"args":["x"],"config":{"nthreads":1000000,"ngpus":1000000,"devices":[{}]}}`} {
		if r, err := ParseReport(strings.NewReader(text)); err == nil {
			t.Errorf("%s: read as %+v", text, r)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add(reportOf(parseOne(f, sample(f, "nccl_all_reduce_perf_h100_8gpu.txt"))))
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseReport(strings.NewReader(text))
		if err != nil {
			return
		}
		b := record(r, &Log{}, func(host string) string { return host })
		for i := range b.SizeBytes {
			if b.Seconds[i] < 0 || math.IsNaN(b.BusBytesPerSecond[i]) {
				t.Errorf("row %d: %v s, %v B/s", i, b.Seconds[i], b.BusBytesPerSecond[i])
			}
		}
	})
}

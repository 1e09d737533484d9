package nccl

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func sample(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func parseOne(t testing.TB, text string) Result {
	t.Helper()
	results, err := ParseTests(strings.NewReader(text))
	if err != nil || len(results) != 1 {
		t.Fatalf("%d results, error %v", len(results), err)
	}
	return results[0]
}

var close64 = cmpopts.EquateApprox(1e-12, 0)

func TestSamples(t *testing.T) {
	yes, no, zero := true, false, int64(0)
	for name, c := range map[string]struct {
		version, collective string
		ranks, hosts, rows  int
		largest, average    float64 // GB/s
		bounds              *int64
		passed              *bool
		truncated           bool
		failure             string
	}{
		"nccl_all_reduce_perf_h100_8gpu.txt":               {"2.19.6", "all_reduce_perf", 8, 1, 11, 481.20, 365.309, &zero, nil, false, ""},
		"nccl_all_reduce_perf_gb200_72gpu_one_domain.txt":  {"2.19.6", "all_reduce_perf", 72, 18, 6, 842, 749.267, &zero, nil, false, ""},
		"nccl_all_reduce_perf_gb200_16gpu_two_domains.txt": {"2.19.6", "all_reduce_perf", 16, 4, 5, 182.60, 166.72, &zero, &no, false, ""},
		"nccl_all_reduce_perf_old_format_truncated.txt":    {"", "", 16, 2, 3, 145.50, math.NaN(), nil, nil, true, "gpu-h100-018: Test NCCL failure common.cu:1005 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '"},
	} {
		t.Run(name, func(t *testing.T) {
			r := parseOne(t, sample(t, name))
			want := Result{Version: c.version, Collective: c.collective, Average: c.average * 1e9, OutOfBounds: c.bounds, Passed: c.passed, Truncated: c.truncated, Failure: c.failure}
			if diff := cmp.Diff(want, r, cmpopts.IgnoreFields(Result{}, "Ranks", "Rows"), cmpopts.EquateNaNs(), close64); diff != "" {
				t.Error(diff)
			}
			hosts := map[string]bool{}
			for _, rank := range r.Ranks {
				hosts[rank.Host] = true
			}
			if len(r.Ranks) != c.ranks || len(hosts) != c.hosts || len(r.Rows) != c.rows {
				t.Errorf("%d ranks, %d hosts, %d rows", len(r.Ranks), len(hosts), len(r.Rows))
			}
			if got := r.Largest(); math.Abs(got-c.largest*1e9) > 1 {
				t.Errorf("the largest message has %v B/s", got)
			}
			// Every row keeps the rule of its collective, as far as its digits go.
			factor, ok := BusFactor("all_reduce_perf", c.ranks)
			for _, row := range r.Rows {
				for _, m := range []*Measure{row.OutOfPlace, row.InPlace} {
					if !ok || math.Abs(m.BusBytesPerSecond/m.AlgBytesPerSecond/factor-1) > 0.002 || math.Abs(float64(row.Size)/m.Seconds/m.AlgBytesPerSecond-1) > 0.002 {
						t.Errorf("size %d: %+v", row.Size, *m)
					}
				}
			}
		})
	}
	if r := parseOne(t, strings.Replace(sample(t, "nccl_all_reduce_perf_gb200_16gpu_two_domains.txt"), "166.72 FAILED", "166.72 OK", 1)); r.Passed == nil || *r.Passed != yes {
		t.Errorf("passed %v", r.Passed)
	}
}

func TestRanksAndRows(t *testing.T) {
	r := parseOne(t, sample(t, "nccl_all_reduce_perf_old_format_truncated.txt"))
	if diff := cmp.Diff(Rank{Rank: 9, Group: 0, PID: 30063, Host: "gpu-h100-018", Device: 1, Bus: "0x43", Model: "NVIDIA H100 80GB HBM3"}, r.Ranks[9]); diff != "" {
		t.Error(diff)
	}
	want := Row{
		Size: 16777216, Count: 4194304, Type: "float", Op: "sum", Root: -1,
		OutOfPlace: &Measure{320.67e-6, 52.32e9, 98.10e9, 0}, InPlace: &Measure{317.11e-6, 52.91e9, 99.20e9, 0},
	}
	if diff := cmp.Diff(want, r.Rows[1], close64); diff != "" {
		t.Error(diff)
	}
}

const header = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n#\n# Using devices\n"

func TestLayouts(t *testing.T) {
	nan := math.NaN()
	both := func(op string, root int) Row {
		return Row{Size: 1024, Count: 256, Type: "float", Op: op, Root: root, OutOfPlace: &Measure{10e-6, 1e9, 2e9, 0}, InPlace: &Measure{20e-6, 3e9, 4e9, 0}}
	}
	for name, c := range map[string]struct {
		columns, row string
		want         Row
	}{
		"new":                      {"size count type redop root time algbw busbw #wrong time algbw busbw #wrong", "1024 256 float sum -1 10 1 2 0 20 3 4 0", both("sum", -1)},
		"no operation":             {"size count type redop root time algbw busbw #wrong time algbw busbw #wrong", "1024 256 float none -1 10 1 2 0 20 3 4 0", both("", -1)},
		"operation and root blank": {"size count type redop root time algbw busbw #wrong time algbw busbw #wrong", "1024 256 float 10 1 2 0 20 3 4 0", both("", -1)},
		"a root":                   {"size count type redop root time algbw busbw #wrong time algbw busbw #wrong", "1024 256 float none 3 10 1 2 0 20 3 4 0", both("", 3)},
		"old without those columns": {"size count type time algbw busbw error time algbw busbw error", "1024 256 float 10 1 2 1e-07 20 3 4 0e+00",
			Row{Size: 1024, Count: 256, Type: "float", Root: -1, OutOfPlace: &Measure{10e-6, 1e9, 2e9, nan}, InPlace: &Measure{20e-6, 3e9, 4e9, nan}}},
		"cpu time":                   {"size count type redop root cputime algbw busbw #wrong cputime algbw busbw #wrong", "1024 256 float sum -1 10 1 2 0 20 3 4 0", both("sum", -1)},
		"a time of day at the end":   {"size count type redop root time algbw busbw #wrong time algbw busbw #wrong", "1024 256 float sum -1 10 1 2 0 20 3 4 0 2026-11-03 12:00:00", both("sum", -1)},
		"spread columns in the rows": {"size count type redop root time algbw busbw #wrong i_min i_max time algbw busbw #wrong i_min i_max", "1024 256 float sum -1 10 1 2 0 9 11 20 3 4 0 19 21", both("sum", -1)},
		"numbers in the thousands":   {"size count type redop root time algbw busbw #wrong time algbw busbw #wrong", "1024 256 float sum -1 1e+01 1.0 2 0 20 3 4.00 0", both("sum", -1)},
		"not validated": {"size count type redop root time algbw busbw #wrong time algbw busbw #wrong", "1024 256 float sum -1 10 1 2 N/A 20 3 4 N/A",
			Row{Size: 1024, Count: 256, Type: "float", Op: "sum", Root: -1, OutOfPlace: &Measure{10e-6, 1e9, 2e9, nan}, InPlace: &Measure{20e-6, 3e9, 4e9, nan}}},
		"in place alone": {"size count type redop root time algbw busbw #wrong time algbw busbw #wrong", "1024 256 float sum -1 20 3 4 0",
			Row{Size: 1024, Count: 256, Type: "float", Op: "sum", Root: -1, InPlace: &Measure{20e-6, 3e9, 4e9, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := parseOne(t, header+"# "+c.columns+"\n"+c.row+"\n")
			if len(r.Rows) != 1 || r.Malformed != 0 {
				t.Fatalf("%d rows, %d malformed", len(r.Rows), r.Malformed)
			}
			if diff := cmp.Diff(c.want, r.Rows[0], close64, cmpopts.EquateNaNs()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatCannotBeReadIsCounted(t *testing.T) {
	for name, row := range map[string]string{
		"too few columns":        "1024 256 float sum -1 10 1",
		"a word for a number":    "1024 256 float sum -1 fast 1 2 0 20 3 4 0",
		"a number past all size": "99999999999999999999 256 float sum -1 10 1 2 0 20 3 4 0",
		"a negative bandwidth":   "1024 256 float sum -1 10 1 -2 0 20 3 4 0",
		"a NaN":                  "1024 256 float sum -1 10 1 nan 0 20 3 4 0",
	} {
		if r := parseOne(t, header+row+"\n"); len(r.Rows) != 0 || r.Malformed != 1 {
			t.Errorf("%s: %d rows, %d malformed", name, len(r.Rows), r.Malformed)
		}
	}
	if r := parseOne(t, header+"12:00:01 starting\n3 ranks left\n"); r.Malformed != 0 {
		t.Errorf("lines of other programs count as %d malformed", r.Malformed)
	}
}

func TestSeveralRunsAndLabels(t *testing.T) {
	h100, gb200, old := sample(t, "nccl_all_reduce_perf_h100_8gpu.txt"), sample(t, "nccl_all_reduce_perf_gb200_16gpu_two_domains.txt"), sample(t, "nccl_all_reduce_perf_old_format_truncated.txt")
	results, err := ParseTests(strings.NewReader("srun: starting\n" + h100 + old + gb200 + "done\n"))
	if err != nil || len(results) != 3 {
		t.Fatalf("%d results, error %v", len(results), err)
	}
	for i, text := range []string{h100, old, gb200} {
		want := parseOne(t, text)
		if diff := cmp.Diff(want, results[i], cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("run %d:\n%s", i, diff)
		}
		for _, label := range []string{"[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", " 0: "} {
			var labelled strings.Builder
			for line := range strings.Lines(text) {
				labelled.WriteString(label + line)
			}
			got := parseOne(t, labelled.String())
			if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("run %d with the label %q:\n%s", i, label, diff)
			}
		}
	}
	if _, err := ParseTests(strings.NewReader("hello\n")); err == nil {
		t.Error("a text without a run is one")
	}
}

func TestLargestOfNoRows(t *testing.T) {
	if r := parseOne(t, header); !math.IsNaN(r.Largest()) || !r.Truncated {
		t.Errorf("%+v", r)
	}
}

func TestBusFactors(t *testing.T) {
	for collective, want := range map[string]float64{"all_reduce_perf": 1.75, "all_gather_perf": 0.875, "alltoall": 0.875, "sendrecv_perf": 1, "broadcast_perf": 1} {
		if got, ok := BusFactor(collective, 8); got != want || !ok {
			t.Errorf("%s: %v %v", collective, got, ok)
		}
	}
	if _, ok := BusFactor("new_perf", 8); ok {
		t.Error("an unknown collective has a factor")
	}
}

// TestEveryPrefix cuts outputs at every byte: what is read of a part is a part of the whole.
func TestEveryPrefix(t *testing.T) {
	for _, name := range []string{"nccl_all_reduce_perf_h100_8gpu.txt", "nccl_all_reduce_perf_old_format_truncated.txt"} {
		text := []byte(sample(t, name))
		whole := parseOne(t, string(text))
		for i := range text {
			results, err := ParseTests(bytes.NewReader(text[:i:i]))
			if err != nil {
				continue
			}
			r := results[0]
			if len(r.Rows) > len(whole.Rows) || !cmp.Equal(r.Rows, whole.Rows[:len(r.Rows)], cmpopts.EquateEmpty()) || !slices.Equal(r.Ranks, whole.Ranks[:len(r.Ranks)]) {
				t.Fatalf("%s cut at %d: %+v", name, i, r)
			}
			if !r.Truncated && len(r.Rows) != len(whole.Rows) {
				t.Fatalf("%s cut at %d is said to be whole", name, i)
			}
		}
	}
}

func FuzzParseTests(f *testing.F) {
	for _, name := range []string{"nccl_all_reduce_perf_h100_8gpu.txt", "nccl_all_reduce_perf_old_format_truncated.txt"} {
		f.Add(sample(f, name))
	}
	f.Fuzz(func(t *testing.T, text string) {
		results, err := ParseTests(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, r := range results {
			r.Largest()
			for _, row := range r.Rows {
				if row.OutOfPlace == nil && row.InPlace == nil {
					t.Errorf("a row without a measure: %+v", row)
				}
			}
		}
	})
}

func TestLog(t *testing.T) {
	l, err := ParseLog(strings.NewReader(sample(t, "nccl_debug_info_excerpt.txt")))
	if err != nil {
		t.Fatal(err)
	}
	const rack3, rack5 = "6e11e5ce-f087-4640-a473-03d6fcc509ab", "7eba19ab-f3ce-44bf-a1d3-eacbee4abba4"
	yes, no := true, false
	want := &Log{
		Fabrics: []Fabric{
			{Process{"gb200-r03-t07", 41001, 0}, "0x801000", rack3, 32766, 3, 0xaa},
			{Process{"gb200-r03-t07", 41002, 1}, "0x901000", rack3, 32766, 3, 0xaa},
			{Process{"gb200-r05-t02", 41003, 0}, "0x801000", rack5, 32766, 3, 0xaa},
			{Process{"gb200-r05-t02", 41004, 1}, "0x901000", rack5, 32766, 3, 0xaa},
			{Process{"gpu-h100-017", 512, 0}, "0x1b000", "00000000-0000-0000-0000-000000000000", 0, 3, 0},
		},
		Comms: []Comm{
			{Process: Process{"gb200-r03-t07", 41001, 0}, Handle: "0xaaab10c0de00", Rank: 0, Ranks: 16, Nodes: 4, LocalRanks: 4, LocalRank: 0, MNNVL: &no},
			{Process: Process{"gb200-r04-t01", 51001, 0}, Handle: "0xaaab20c0de00", Rank: 0, Ranks: 72, Nodes: 18, LocalRanks: 4, LocalRank: 0, MNNVL: &yes},
		},
		Rails: []Rails{{Process{"gb200-r03-t07", 41001, 0}, []string{"mlx5_0:1/IB", "mlx5_1:1/IB", "mlx5_3:1/IB", "mlx5_4:1/IB"}}},
	}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Error(diff)
	}
	domains := map[string]string{"gb200-r03-t07": rack3, "gb200-r05-t02": rack5, "gpu-h100-017": "node:gpu-h100-017"}
	if diff := cmp.Diff(domains, l.Domains()); diff != "" {
		t.Error(diff)
	}
}

func TestLogLines(t *testing.T) {
	const prefix = "[2026-11-03 12:00:00] n1:1:2 [0] NCCL INFO "
	for name, c := range map[string]struct {
		line                               string
		fabrics, comms, rails, bad, placed int
	}{
		"a time before the line":      {prefix + "MNNVL busId 0x1 fabric UUID 1.0 cliqueId 0x1 state 3 healthMask 0xaa\n", 1, 0, 0, 0, 1},
		"not registered yet":          {prefix + "MNNVL busId 0x1 fabric UUID 1.0 cliqueId 0x1 state 2 healthMask 0x0\n", 1, 0, 0, 0, 0},
		"a fabric that was cut":       {prefix + "MNNVL busId 0x1 fabric UUID 1.0 cliqueId\n", 0, 0, 0, 1, 0},
		"a line without its end":      {prefix + "MNNVL busId 0x1 fabric UUID 1.0 cliqueId 0x1 state 3 healthMask 0xa", 0, 0, 0, 1, 0},
		"a communicator of old":       {prefix + "comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0\n", 0, 1, 0, 0, 0},
		"a communicator that was cut": {prefix + "comm 0x1 rank 0 nRanks 8\n", 0, 0, 0, 1, 0},
		"rails without any":           {prefix + "NET/IB : Using \n", 0, 0, 0, 1, 0},
		"another line of NCCL":        {prefix + "Bootstrap : Using eth0:192.0.2.1<0>\n", 0, 0, 0, 0, 0},
		"another program":             {"MNNVL busId 0x1\n", 0, 0, 0, 0, 0},
	} {
		l, err := ParseLog(strings.NewReader(c.line))
		if err != nil || len(l.Fabrics) != c.fabrics || len(l.Comms) != c.comms || len(l.Rails) != c.rails || l.Malformed != c.bad || len(l.Domains()) != c.placed {
			t.Errorf("%s: %+v, error %v", name, l, err)
		}
	}
}

func TestEveryPrefixOfALog(t *testing.T) {
	text := []byte(sample(t, "nccl_debug_info_excerpt.txt"))
	whole, err := ParseLog(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		l, err := ParseLog(bytes.NewReader(text[:i:i]))
		if err != nil || !slices.Equal(l.Fabrics, whole.Fabrics[:len(l.Fabrics)]) || len(l.Comms) > len(whole.Comms) {
			t.Fatalf("cut at %d: %+v, error %v", i, l, err)
		}
	}
}

func FuzzParseLog(f *testing.F) {
	f.Add(sample(f, "nccl_debug_info_excerpt.txt"))
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLog(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, fabric := range l.Fabrics {
			if len(fabric.ClusterUUID) != 36 {
				t.Errorf("cluster UUID %q", fabric.ClusterUUID)
			}
		}
		l.Domains()
	})
}

package nccl

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var written = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

// put writes a file as a whole, as of a time.
func put(t testing.TB, path, text string, at time.Time) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path+".new", at, at); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// show prints records, a line a measurement.
func show(records []*event.Benchmark) string {
	optional := func(v any, set bool) string {
		if !set {
			return "-"
		}
		return fmt.Sprint(v)
	}
	var b strings.Builder
	for _, r := range records {
		fmt.Fprintf(&b, "%s of %s by %s %q on %q at %s\n", r.RecordKey(), r.Operation, r.Source, r.Version, r.GpuModel, time.UnixMilli(r.ObservedAtMs).UTC().Format(time.RFC3339))
		fmt.Fprintf(&b, "  joined=%s wrong=%s passed=%s truncated=%v failure=%q\n", optional(r.GetMultiNodeNvlink(), r.MultiNodeNvlink != nil),
			optional(r.GetWrongTotal(), r.WrongTotal != nil), optional(r.GetPassed(), r.Passed != nil), r.Truncated, r.Failure)
		for i, node := range r.Node {
			fmt.Fprintf(&b, "  %s %d GPUs %s\n", node, r.NodeGpus[i], r.NodeClusterUuid[i])
		}
		for i, size := range r.SizeBytes {
			fmt.Fprintf(&b, "  %d %s %s in_place=%v %.6g s, %.4g B/s, bus %.4g B/s, wrong %v\n", size, r.DataType[i], r.Reduction[i], r.InPlace[i],
				r.Seconds[i], r.AlgorithmBytesPerSecond[i], r.BusBytesPerSecond[i], r.WrongValues[i])
		}
	}
	return b.String()
}

// TestGolden holds the records of every recorded output.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*perf*.txt")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d samples, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			put(t, path, sample(t, name+".txt"), written)
			records, err := ReadFile(path, "c1", false)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				if _, _, err := event.Encode(r); err != nil {
					t.Error(err)
				}
			}
			golden := filepath.Join("testdata", name+".golden")
			got := show(records)
			if os.Getenv("SPILLWAY_UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v; run `make golden` and read the diff", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("records differ (-want +got); if that is right, run `make golden`:\n%s", diff)
			}
		})
	}
}

const twoDomains = "nccl_all_reduce_perf_gb200_16gpu_two_domains.txt"

// TestTheLogTellsHowNodesWereJoined puts lines of NCCL_DEBUG=INFO before the table, where a run prints them.
func TestTheLogTellsHowNodesWereJoined(t *testing.T) {
	run := sample(t, twoDomains)
	comm := func(host string, pid, ranks int, joined string) string {
		return fmt.Sprintf("%s:%d:1 [0] NCCL INFO comm 0xa rank 0 nRanks %d nNodes 4 localRanks 4 localRank 0%s\n", host, pid, ranks, joined)
	}
	fabric := "gb200-r03-t00:30000:1 [0] NCCL INFO MNNVL busId 0x801000 fabric UUID 404687f0cee5116e.ab09c5fcd60373a4 cliqueId 0x7ffe state 3 healthMask 0xaa\n"
	for name, c := range map[string]struct{ log, joined, domain string }{
		"no log":                     {"", "-", ""},
		"not joined":                 {comm("gb200-r03-t00", 30000, 16, " MNNVL 0"), "false", ""},
		"joined":                     {comm("gb200-r03-t00", 30000, 16, " MNNVL 1"), "true", ""},
		"one says no":                {comm("gb200-r03-t00", 30000, 16, " MNNVL 1") + comm("gb200-r03-t01", 30028, 16, " MNNVL 0"), "false", ""},
		"an old line":                {comm("gb200-r03-t00", 30000, 16, ""), "-", ""},
		"of a smaller communicator":  {comm("gb200-r03-t00", 30000, 4, " MNNVL 1"), "-", ""},
		"of another run's process":   {comm("gb200-r03-t00", 9, 16, " MNNVL 1"), "-", ""},
		"and the domain of one node": {fabric, "-", "6e11e5ce-f087-4640-a473-03d6fcc509ab"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run")
			put(t, path, c.log+run, written)
			records, err := ReadFile(path, "c1", false)
			if err != nil || len(records) != 1 {
				t.Fatalf("%d records, error %v", len(records), err)
			}
			joined := "-"
			if v := records[0].MultiNodeNvlink; v != nil {
				joined = fmt.Sprint(*v)
			}
			if joined != c.joined || records[0].NodeClusterUuid[0] != c.domain || records[0].NodeClusterUuid[1] != "" {
				t.Errorf("joined %s, domains %q", joined, records[0].NodeClusterUuid)
			}
		})
	}
}

// TestARunKeepsItsName: an output that grew, or moved, is the same run; another run is another.
func TestARunKeepsItsName(t *testing.T) {
	dir, text := t.TempDir(), sample(t, twoDomains)
	id := func(name, text string) []string {
		put(t, filepath.Join(dir, name), text, written)
		records, err := ReadFile(filepath.Join(dir, name), "c1", false)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, r := range records {
			out = append(out, r.RunId)
		}
		return out
	}
	whole := id("a", text)[0]
	if got := id("b", text[:strings.Index(text, "# Out of bounds")])[0]; got != whole {
		t.Errorf("a part of the output is the run %s, the whole %s", got, whole)
	}
	if got := id("a", strings.Replace(text, "Pid  30000", "Pid  30001", 1))[0]; got == whole {
		t.Error("another process is the same run")
	}
	row := regexp.MustCompile(`(?m)^( +\d+ +\d+ +float +sum +-1 +)(\d)`)
	first := row.FindStringIndex(text)
	if first == nil {
		t.Fatal("the sample has no row")
	}
	other := text[:first[1]-1] + "9" + text[first[1]:]
	if got := id("a", other)[0]; got == whole {
		t.Error("a run of processes of the same names, as containers give them, is the same run")
	}
	if got := id("a", text+text); len(got) != 2 || got[0] != whole || got[1] == whole {
		t.Errorf("two runs in one file are %q", got)
	}
}

// TestProgramNames: what is appended to the name of a program is not of the operation.
func TestProgramNames(t *testing.T) {
	path, text := filepath.Join(t.TempDir(), "run"), sample(t, twoDomains)
	report := reportOf(parseOne(t, text))
	for name, want := range map[string]string{
		"all_reduce_perf": "all_reduce", "all_reduce_perf_mpi": "all_reduce", "alltoall_perf-2.17": "alltoall", "my_test": "my_test",
	} {
		for _, text := range []string{text, report} {
			put(t, path, strings.ReplaceAll(text, "all_reduce_perf", name), written)
			records, err := ReadFile(path, "c1", false)
			if err != nil || records[0].Operation != want {
				t.Errorf("%s: %v, error %v", name, records, err)
			}
		}
	}
}

// TestADeviationIsNoCount: the column of old versions that tells how far off values are is not how many are wrong.
func TestADeviationIsNoCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	table := func(column, value string) string {
		return header + "#  Rank  0 Group  0 Pid  1 on n1 device  0 [0x1b] NVIDIA V100\n" +
			"# size count type redop time algbw busbw " + column + " time algbw busbw " + column + "\n" +
			"  1024 256 float sum 10.00 1.00 2.00 " + value + " 20.00 3.00 4.00 N/A\n"
	}
	for column, want := range map[string]struct {
		value string
		wrong float64
	}{"error": {"1e-07", math.NaN()}, "#wrong": {"3", 3}} {
		put(t, path, table(column, want.value), written)
		records, err := ReadFile(path, "c1", false)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]float64{want.wrong, math.NaN()}, records[0].WrongValues, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s: %s", column, diff)
		}
	}
}

func TestHostsAndGPUs(t *testing.T) {
	text := header + "#  Rank  0 Group  0 Pid  1 on n1.example.com device  0 [0000:1b:00] NVIDIA H100\n" +
		"#  Rank  1 Group  0 Pid  2 on n1.example.com device  0 [0000:1b:00] NVIDIA H100\n" + // two ranks on one GPU
		"#  Rank  2 Group  0 Pid  3 on n2.example.com device  0 [0000:1b:00] NVIDIA H200\n"
	path := filepath.Join(t.TempDir(), "run")
	put(t, path, text, written)
	records, err := ReadFile(path, "c1", true)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("n1 1, n2 1, ", fmt.Sprintf("%s %d, %s %d, %s", records[0].Node[0], records[0].NodeGpus[0], records[0].Node[1], records[0].NodeGpus[1], records[0].GpuModel)); diff != "" {
		t.Error(diff)
	}
	if records[0].Operation != unknownOperation {
		t.Errorf("the operation of a run without a row is %s", records[0].Operation)
	}
}

func testCollector(t *testing.T, cfg Config, now func() time.Time) *Collector {
	t.Helper()
	cfg.Cluster, cfg.Interval = "c1", 20*time.Millisecond
	c, err := New(cfg, Deps{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	path, old := filepath.Join(dir, "a.log"), time.Now().Add(-time.Hour)
	whole := sample(t, twoDomains)
	put(t, path, whole, old)
	records, err := ReadFile(path, "c1", false)
	if err != nil {
		t.Fatal(err)
	}
	collecttest.Run(t, collecttest.Source{
		Cluster: "c1",
		Full:    []string{collecttest.Key(records[0])},
		New: func(t *testing.T) collect.Collector {
			cfg := DefaultConfig()
			cfg.Files = []string{filepath.Join(dir, "*.log")}
			return testCollector(t, cfg, nil)
		},
		Change: func(t *testing.T) []string {
			other := filepath.Join(dir, "b.log")
			put(t, other, sample(t, "nccl_all_reduce_perf_h100_8gpu.txt"), old)
			records, err := ReadFile(other, "c1", false)
			if err != nil {
				t.Fatal(err)
			}
			return []string{collecttest.Key(records[0])}
		},
		Break: func(t *testing.T) { put(t, path, "slurmstepd: error: no such file\n", old) },
		Mend:  func(t *testing.T) { put(t, path, whole, old) },
	})
}

// TestARunIsEmittedOnceItIsOver: not while it goes on, but when it ended, or has not gone on for long.
func TestARunIsEmittedOnceItIsOver(t *testing.T) {
	dir, whole := t.TempDir(), sample(t, twoDomains)
	path := filepath.Join(dir, "a.log")
	part := whole[:strings.Index(whole, "# Out of bounds")]
	now := written
	cfg := DefaultConfig()
	cfg.Files = []string{filepath.Join(dir, "*.log")}
	c, out := testCollector(t, cfg, func() time.Time { return now }), &collecttest.Sink{}
	runs := func(want int) {
		t.Helper()
		c.poll(t.Context(), out)
		if n := len(out.Records()); n != want || len(c.failing) > 0 {
			t.Errorf("%d records, want %d; problem %q", n, want, collect.Summary(c.failing, "files"))
		}
	}
	runs(0) // no file yet
	put(t, path, "srun: job 7 queued\n", written)
	runs(0) // not begun
	put(t, path, part, written)
	runs(0) // goes on
	now = now.Add(cfg.Settle)
	runs(1) // died
	runs(1) // is told once
	put(t, path, whole, now)
	runs(2) // did not: it is told again, as a whole
	first, second := out.Records()[0].(*event.Benchmark), out.Records()[1].(*event.Benchmark)
	if first.RunId != second.RunId || !first.Truncated || second.Truncated || second.Revision <= first.Revision {
		t.Errorf("%v\n%v", first, second)
	}
	now = now.Add(2 * cfg.Settle)
	put(t, path, "srun: job 7 cancelled\n", now.Add(-cfg.Settle))
	c.poll(t.Context(), out)
	if p := collect.Summary(c.failing, "files"); !strings.Contains(p, "not an output of nccl-tests") || !strings.Contains(p, "a.log") {
		t.Errorf("problem %q", p)
	}
	cfg.Files = []string{filepath.Join(dir, "gone", "*.log")}
	c = testCollector(t, cfg, nil)
	c.poll(t.Context(), out)
	if p := collect.Summary(c.failing, "files"); !strings.Contains(p, "no such file") {
		t.Errorf("a folder that is not there: problem %q", p)
	}
}

// TestEveryPrefixGivesRecordsOrNone: half an output is a run that was cut, and never breaks the contract.
func TestEveryPrefixGivesRecordsOrNone(t *testing.T) {
	whole := sample(t, twoDomains)
	path := filepath.Join(t.TempDir(), "run")
	for i := 0; i < len(whole); i += 7 {
		if err := os.WriteFile(path, []byte(whole[:i]), 0o600); err != nil {
			t.Fatal(err)
		}
		records, err := ReadFile(path, "c1", false)
		if err != nil {
			continue
		}
		for _, r := range records {
			if err := r.Validate(); err != nil {
				t.Fatalf("%d bytes: %v", i, err)
			}
		}
	}
}

func TestConfigurations(t *testing.T) {
	for key, change := range map[string]func(*Config){
		"cluster":  func(c *Config) { c.Cluster = "a/b" },
		"files":    func(c *Config) { c.Files = nil },
		"files[0]": func(c *Config) { c.Files = []string{"[x"} },
		"interval": func(c *Config) { c.Interval = 0 },
		"settle":   func(c *Config) { c.Settle = -1 },
	} {
		cfg := DefaultConfig()
		cfg.Cluster, cfg.Files = "c1", []string{"/x/*"}
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), key+":") {
			t.Errorf("%s: error %v", key, err)
		}
	}
}

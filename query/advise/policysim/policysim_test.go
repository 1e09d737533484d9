package policysim

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/query/advise"
)

var full = flag.Bool("full", false, "run the long comparisons that the README quotes, and print them")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a run that takes a moment.
func small() Config {
	c := DefaultConfig()
	c.Racks, c.Jobs, c.Load = 4, 300, 0.9
	c.MTBF = 5 * 24 * 3600
	return c
}

// TestSameSeedSameFigures: results do not depend on how work is spread over processors.
func TestSameSeedSameFigures(t *testing.T) {
	c := small()
	policies := Policies(&c)
	all, err := Run(context.Background(), c, policies, []uint64{3, 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range policies {
		alone, err := Run(context.Background(), c, []Policy{p}, []uint64{3, 4}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(all[2*i:2*i+2], alone); diff != "" {
			t.Errorf("%s differs when it runs alone: %s", p.Name, diff)
		}
	}
	if cmp.Equal(all[0], all[1]) {
		t.Error("two seeds gave the same figures")
	}
}

// watched checks a strategy's answers against the state of the run it is in.
type watched struct {
	advise.Strategy
	t *testing.T
}

func (w watched) Place(v *advise.View, a *advise.Ask, p *advise.Plan) {
	w.Strategy.Place(v, a, p)
	if p.Outcome != advise.Placed || a.Shared > 0 {
		return
	}
	sum := int32(0)
	for _, part := range p.Parts {
		sum += part.Nodes
		if part.Nodes > v.Free[part.Domain] {
			w.t.Errorf("a part %+v where %d nodes are free", part, v.Free[part.Domain])
		}
	}
	if sum != a.Nodes {
		w.t.Errorf("%d nodes placed of %d", sum, a.Nodes)
	}
}

// TestEveryJobRunsOnceAndWhole: under failures no GPU is held twice, every judged job ends, and work is not made up.
func TestEveryJobRunsOnceAndWhole(t *testing.T) {
	c := small()
	for _, p := range Policies(&c) {
		t.Run(p.Name, func(t *testing.T) {
			p.Strategy = watched{p.Strategy, t}
			rs, err := Run(context.Background(), c, []Policy{p}, []uint64{5, 6, 7}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				if r.Jobs < 150 || r.Unstarted > 0 {
					t.Errorf("seed %d: %d jobs judged, %d never ran", r.Seed, r.Jobs, r.Unstarted)
				}
				if r.Utilised <= 0.3 || r.Utilised > 1.2 {
					t.Errorf("seed %d: %.2f of the capacity used", r.Seed, r.Utilised)
				}
				if r.Swaps+r.Requeues == 0 {
					t.Errorf("seed %d: no failure met a job", r.Seed)
				}
				if math.IsNaN(r.MeanWait+r.P95Wait+r.Lost+r.Harmful) || r.Lost < 0 {
					t.Errorf("seed %d: figures %+v", r.Seed, r)
				}
			}
		})
	}
}

// TestOneJobAtATime is small enough to know by hand: two racks of two nodes, no failures.
func TestOneJobAtATime(t *testing.T) {
	c := DefaultConfig()
	c.Racks, c.NodesPerRack, c.Spares, c.MTBF, c.EstimateError = 2, 2, 0, 0, 0
	ring := advise.Traffic{Pattern: advise.AllToAll, Share: 0.1}
	c.Trace = []Job{
		{ID: "a", Submit: 0, GPUs: 4, Run: 100, Estimate: 100, Traffic: ring},
		{ID: "b", Submit: 0, GPUs: 8, Run: 100, Estimate: 100, Traffic: ring},
		{ID: "c", Submit: 20, GPUs: 8, Run: 100, Estimate: 100, Traffic: ring}, // one node free beside a: waits, or splits
		{ID: "d", Submit: 90, GPUs: 4, Run: 10, Estimate: 10, Traffic: ring},   // fits before c's promise is due
		{ID: "z", Submit: 105, GPUs: 1, Run: 1, Estimate: 1, Traffic: ring},    // sets the span: jobs from 15 to 99 are judged
	}
	rs, err := Run(context.Background(), c, Policies(&c), []uint64{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if r.Policy != "slurm-block" {
			continue
		}
		// c waits from 20 to 100, d starts at once on the free node.
		if r.Jobs != 2 || r.MeanWait != 40 || r.Waits[2] != 80 || r.Waits[1] != 0 || r.Lost != 0 {
			t.Errorf("got %+v, want c to wait 80 s and d not at all", r)
		}
	}
}

// TestFailedNodeIsReplacedInItsDomain: with a spare the job goes on after a restart, without one it queues again.
func TestFailedNodeIsReplacedInItsDomain(t *testing.T) {
	c := DefaultConfig()
	c.Racks, c.NodesPerRack, c.Spares, c.Checkpoint, c.Restart = 1, 3, 0, 60, 10
	jobs := []Job{{ID: "a", GPUs: 8, Run: 1000, Estimate: 1000}, {ID: "z", Submit: 5000, GPUs: 1, Run: 1, Estimate: 1}}
	p := Policies(&c)[4]
	for name, test := range map[string]struct {
		fails            []failure
		swaps, requeues  int
		wantFailedGPUSec float64
	}{
		"a free third node":                {[]failure{{0, 100, 300}}, 1, 0, 8 * (40 + 10)},
		"the third node is down as well":   {[]failure{{2, 50, 500}, {0, 100, 300}}, 0, 1, 8 * (40 + 10)},
		"a node that nobody is on":         {[]failure{{2, 50, 500}}, 0, 0, 0},
		"two failures one after the other": {[]failure{{0, 100, 3000}, {1, 200, 300}}, 1, 1, 8 * (40 + 10 + 30 + 10)},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := simulate(&c, p, jobs, test.fails)
			if err != nil {
				t.Fatal(err)
			}
			if r.Swaps != test.swaps || r.Requeues != test.requeues || math.Abs(r.FailedGPUHours*3600-test.wantFailedGPUSec) > 1e-6 {
				t.Errorf("%d swaps, %d requeues, %.0f GPU-seconds, want %+v", r.Swaps, r.Requeues, r.FailedGPUHours*3600, test)
			}
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Config)
		want string
	}{
		"no racks":                   {func(c *Config) { c.Racks = 0 }, "give at least one of each"},
		"all spares":                 {func(c *Config) { c.Spares = 18 }, "leave a gang at least one"},
		"no load":                    {func(c *Config) { c.Load = 0 }, "such as 0.9"},
		"no repair":                  {func(c *Config) { c.Repair = 0 }, "give a repair time"},
		"no mix":                     {func(c *Config) { c.Mix = "none" }, "use nvl72, helios or seren"},
		"a speed that is no number":  {func(c *Config) { c.Links.Domain = math.NaN() }, "give both in GB/s"},
		"an error that is no number": {func(c *Config) { c.EstimateError = math.NaN() }, "a sigma of the logarithm"},
		"more urgent jobs than jobs": {func(c *Config) { c.Urgent = 7 }, "a share of the jobs"},
		"no link speeds":             {func(c *Config) { c.Links.Cluster = 0 }, "give both in GB/s"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := small()
			c.edit(&cfg)
			if _, err := Run(context.Background(), cfg, Policies(&cfg), []uint64{1}, nil); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

const trace = `job_id,submit,start,end,gpus,nodes,type,state
1,100,100,400,8,2,alltoall,COMPLETED
2,50,60,,4,1,allreduce,RUNNING
3,70,80,90,4,1,insensitive,FAILED
`

// TestJobsTalkAsTheAdvisorsClassesSay: advice is predicted by its classes, and the comparison of policies by these shares.
func TestJobsTalkAsTheAdvisorsClassesSay(t *testing.T) {
	c, classes := DefaultConfig(), advise.DefaultConfig().Classes
	for class, u := range map[string]float64{"train": 0, "train-moe": ringShare, "serve": ringShare + allShare} {
		want := advise.Traffic{Pattern: classes[class].Pattern, Share: classes[class].Share}
		if got := c.traffic(u, 8); got != want {
			t.Errorf("%s: a drawn job talks as %+v, the class as %+v", class, got, want)
		}
	}
}

func TestReadTrace(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := io.WriteString(z, trace); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	want := []Job{
		{ID: "3@4", Submit: 0, GPUs: 4, Run: 10, Traffic: advise.Traffic{Pattern: advise.PatternNone}},
		{ID: "1@2", Submit: 30, GPUs: 8, Run: 300, Traffic: advise.Traffic{Pattern: advise.AllToAll, Share: 0.10}},
	}
	for name, from := range map[string]io.Reader{"plain": strings.NewReader(trace), "gzipped": &zipped} {
		jobs, left, err := ReadTrace(from)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, jobs); diff != "" || left != 1 {
			t.Errorf("%s: %d left out, %s", name, left, diff)
		}
	}
	for name, bad := range map[string]struct{ text, want string }{
		"another header": {"a,b\n", "they must begin"},
		"nothing":        {"", "header"},
		"a bad number":   {strings.Replace(trace, "100,400", "x,400", 1), "line 2, start"},
		"a short row":    {trace + "4,1\n", "correct or remove the row"},
	} {
		if _, _, err := ReadTrace(strings.NewReader(bad.text)); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, bad.want)
		}
	}
}

// FuzzReadTrace: every trace, and every prefix of a real one, is read or refused; what is read can be run.
func FuzzReadTrace(f *testing.F) {
	for i := range len(trace) + 1 {
		f.Add([]byte(trace)[:i:i])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		jobs, _, err := ReadTrace(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, j := range jobs {
			if j.Run <= 0 || j.GPUs < 1 || j.Submit < 0 {
				t.Fatalf("job %+v", j)
			}
		}
	})
}

// TestTraceRuns replays a sample of synthetic jobs from a file.
func TestTraceRuns(t *testing.T) {
	file, err := os.Open("testdata/nvl72.csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	c := small()
	if c.Trace, _, err = ReadTrace(file); err != nil {
		t.Fatal(err)
	}
	rs, err := Run(context.Background(), c, Policies(&c), []uint64{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if r.Jobs < 100 || r.Unstarted > 0 {
			t.Errorf("%s: %d jobs judged, %d never ran", r.Policy, r.Jobs, r.Unstarted)
		}
	}
}

// TestAJobOfATraceKeepsItsSize: one that fits a rack only with its spares is neither cut nor taken to lose nothing when it
// is split, and what can never run is told.
func TestAJobOfATraceKeepsItsSize(t *testing.T) {
	c := small()
	c.MTBF, c.Load = 0, 0
	all := int32(c.NodesPerRack * c.GPUsPerNode)
	for i := range 20 { // those in the middle are judged
		c.Trace = append(c.Trace, Job{ID: fmt.Sprint(i), Submit: int64(i) * 10_000, GPUs: all, Run: 100, Estimate: 100, Traffic: advise.Traffic{Pattern: advise.AllToAll, Share: 0.10}})
	}
	c.Trace = append(c.Trace, Job{ID: "large", Submit: 200_000, GPUs: c.most() + 4, Run: 100, Estimate: 100})
	if n := c.Cut(); n != 1 {
		t.Errorf("%d jobs are larger than the cluster, want 1", n)
	}
	rs, err := Run(context.Background(), c, Policies(&c), []uint64{1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if whole := r.Policy == "kueue-preferred"; r.Policy == "bounded" && (r.Lost == 0 || r.Harmful == 0) || whole && r.Lost > 0 {
			t.Errorf("%s: %g lost, %g harmful; it is %t that a rack is taken whole", r.Policy, r.Lost, r.Harmful, whole)
		}
	}
	var table bytes.Buffer
	rs[0].Unstarted = 3
	if err := WriteTable(&table, rs, "slurm-block"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"flat: 3 jobs of 1 seeds never ran", "(one seed)", "  -  "} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, table.String())
		}
	}
}

func TestTableAndPlot(t *testing.T) {
	c := small()
	rs, err := Run(context.Background(), c, Policies(&c), []uint64{1, 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var table, plot bytes.Buffer
	if err := WriteTable(&table, rs, "slurm-block"); err != nil {
		t.Fatal(err)
	}
	if err := WritePlot(&plot, rs); err != nil {
		t.Fatal(err)
	}
	for _, p := range Policies(&c) {
		if !strings.Contains(table.String(), p.Name) || !strings.Contains(plot.String(), ">"+p.Name+"<") {
			t.Errorf("%s is missing from the table or the plot", p.Name)
		}
	}
	if lines := strings.Count(table.String(), "\n"); lines != 7 {
		t.Errorf("the table has %d lines:\n%s", lines, table.String())
	}
	if strings.Contains(plot.String(), "NaN") || strings.Contains(plot.String(), "Inf") {
		t.Error("the plot has a coordinate that is no number")
	}
	for d := xml.NewDecoder(&plot); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the plot is not XML: %v", err)
		}
	}
}

// TestGoals holds the bounded strategy to what is promised for it, on the assumed NVL72 mix with node failures and 16 of 18
// planning, on seeds that it was never tuned on. Tuning used seeds 1 to 8 only. -full runs all loads and policies and
// prints the table.
func TestGoals(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates 128,000 jobs")
	}
	seeds := []uint64{101, 102, 103, 104, 105, 106, 107, 108}
	loads := []float64{0.9}
	if *full {
		loads = []float64{0.8, 0.9, 0.95}
	}
	var all []Result
	for _, load := range loads {
		c := DefaultConfig()
		c.Load = load
		var policies []Policy
		for _, p := range Policies(&c) {
			if *full || p.Name == "flat" || p.Name == "kueue-preferred" || p.Name == "slurm-block" || p.Name == "bounded" {
				policies = append(policies, p)
			}
		}
		rs, err := Run(context.Background(), c, policies, seeds, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rs...)
		by := map[string]Summary{}
		for _, s := range Summarise(rs) {
			by[s.Policy] = s
		}
		ours, kueue, flat, slurm := by["bounded"], by["kueue-preferred"], by["flat"], by["slurm-block"]
		atMost := func(what string, got, limit float64) {
			t.Helper()
			if got > limit {
				t.Errorf("load %g: %s is %.3g, more than %.3g", load, what, got, limit)
			}
		}
		atMost("lost GPU-hours against Kueue preferred", ours.Lost/kueue.Lost, 1.0/15)
		atMost("mean wait against Kueue preferred", ours.MeanWait/kueue.MeanWait, 0.45)
		atMost("harmful spills against flat", ours.Harmful/flat.Harmful, 0.1)
		atMost("mean wait against Slurm block", ours.MeanWait/slurm.MeanWait, 0.85)
		atMost("p95 wait against Slurm block", ours.P95Wait/slurm.P95Wait, 0.75)
		atMost("lost GPU-hours beyond Slurm block's, in points", ours.Lost-slurm.Lost, 0.5)
		atMost("wait of jobs larger than a rack against Slurm block", ours.Waits[3]/slurm.Waits[3], 1)
	}
	if *full {
		if err := WriteTable(os.Stdout, all, "slurm-block"); err != nil {
			t.Fatal(err)
		}
	}
}

// tuning are the seeds that bounds were chosen on.
var tuning = []uint64{1, 2, 3, 4, 5, 6, 7, 8}

// TestTradeOff prints what more patience buys.
func TestTradeOff(t *testing.T) {
	if !*full {
		t.Skip("prints a table of the README: run it with -full")
	}
	c := DefaultConfig()
	rs, err := Run(context.Background(), c, TradeOff(&c), tuning, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteTable(os.Stdout, rs, "slurm-block"); err != nil {
		t.Fatal(err)
	}
}

// TestSensitivity prints how the comparison with Slurm block depends on what is assumed.
func TestSensitivity(t *testing.T) {
	if !*full {
		t.Skip("prints a table of the README: run it with -full")
	}
	for _, v := range []struct {
		name string
		edit func(*Config)
	}{
		{"as assumed", func(*Config) {}},
		{"in-domain links twice as fast as told", func(c *Config) { c.Truth = advise.Links{Domain: 1800, Cluster: 50} }},
		{"network a quarter as fast as told", func(c *Config) { c.Truth = advise.Links{Domain: 900, Cluster: 12.5} }},
		{"NICs of 100 GB/s", func(c *Config) { c.Links.Cluster = 100 }},
		{"perfect end estimates", func(c *Config) { c.EstimateError = 0 }},
		{"poor end estimates, sigma 1.5", func(c *Config) { c.EstimateError = 1.5 }},
		{"no node failures", func(c *Config) { c.MTBF = 0 }},
		{"no urgent jobs", func(c *Config) { c.Urgent = 0 }},
		{"twice the racks", func(c *Config) { c.Racks, c.Jobs = 32, 8000 }},
	} {
		c := DefaultConfig()
		v.edit(&c)
		rs, err := Run(context.Background(), c, Policies(&c)[4:], tuning, nil)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(v.name)
		if err := WriteTable(os.Stdout, rs, "slurm-block"); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkRun is one policy over 4,000 jobs at a load of 0.9.
func BenchmarkRun(b *testing.B) {
	c := DefaultConfig()
	for _, p := range Policies(&c) {
		b.Run(p.Name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, err := Run(context.Background(), c, []Policy{p}, []uint64{uint64(1 + i%8)}, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

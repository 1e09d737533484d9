package simulate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

var testStart = time.Date(2026, 11, 29, 6, 0, 0, 0, time.UTC)

// live runs a cluster for a while of the fleet's life and gives all its records, the hardware first.
func live(t testing.TB, seed uint64, c Cluster, length time.Duration) (*sim, []event.Record) {
	t.Helper()
	if err := (Config{Speed: 1, Clusters: []Cluster{c}}).Validate(); err != nil {
		t.Fatal(err)
	}
	var records []event.Record
	add := func(r event.Record) { records = append(records, r) }
	s := newSim(seed, c, clock{Wall: testStart.UnixMilli(), Speed: 1}, 1)
	s.tellHardware(add)
	s.advance(length.Milliseconds(), add)
	return s, records
}

// randomCluster makes configurations that a property must hold for, failures far too common among them.
func randomCluster(rng *rand.Rand) Cluster {
	c := DefaultCluster()
	c.Racks = 2 + rng.IntN(10)
	c.DegradedRacks = rng.IntN(c.Racks + 1)
	c.Mix = pick(rng, slices.Sorted(maps.Keys(mixes)))
	c.Load = 0.3 + rng.Float64()
	c.Wave = rng.Float64()
	c.RunTimeSigma = 2 * rng.Float64()
	c.NodeMTBF = time.Duration(rng.IntN(3)) * 50 * time.Hour
	c.ProbeEvery = time.Duration(rng.IntN(3)) * 10 * time.Minute
	flat := 1 + rng.IntN(c.Racks-1)
	c.Partitions = []Partition{{Name: "gpu", Policy: PolicyFlat, Racks: flat}, {Name: "block", Policy: PolicyBlock}}
	return c
}

// span is one interval in which a run holds a GPU.
type span struct {
	from, to int64
	run      string
}

// spans folds the records of runs to what each GPU is held by. It also checks what must hold of every run's records.
func spans(t testing.TB, records []event.Record) map[string][]span {
	t.Helper()
	type phase struct {
		from  int64
		nodes []*event.NodePlacement
	}
	runs := map[string][]*event.Placement{}
	for _, r := range records {
		if p, ok := r.(*event.Placement); ok {
			run := fmt.Sprintf("%s/%s/%d/%s", p.Cluster, p.JobId, p.GetRestart(), p.Component)
			runs[run] = append(runs[run], p)
		}
	}
	out := map[string][]span{}
	for run, rs := range runs {
		slices.SortStableFunc(rs, func(a, b *event.Placement) int { return cmp.Compare(a.Revision, b.Revision) })
		var current *phase
		closeAt := func(to int64) {
			for _, n := range current.nodes {
				for _, g := range n.GpuIndex {
					gpu := fmt.Sprintf("%s/%d", n.Node, g)
					out[gpu] = append(out[gpu], span{max(current.from, n.GetFromMs()), to, run})
				}
			}
			current = nil
		}
		ended := false
		for _, p := range rs {
			switch {
			case ended && !p.State.Ended():
				t.Fatalf("%s: a record after its end: %v", run, p)
			case p.State.Holding():
				gpus := 0
				for _, n := range p.Placements {
					gpus += len(n.GpuIndex)
				}
				if gpus != int(p.GetGpus()) || gpus != int(p.GetRequestedGpus()) {
					t.Fatalf("%s holds %d GPUs, says %d, asked for %d", run, gpus, p.GetGpus(), p.GetRequestedGpus())
				}
				if current != nil && !sameNodes(current.nodes, p.Placements) {
					closeAt(p.ObservedAtMs)
					current = &phase{p.ObservedAtMs, p.Placements}
				}
				if current == nil {
					current = &phase{p.GetStartMs(), p.Placements}
				}
			case p.State.Ended():
				ended = true
				if current != nil {
					closeAt(p.GetEndMs())
				}
			}
		}
		if current != nil {
			closeAt(math.MaxInt64)
		}
	}
	return out
}

// checkRevisions checks that revisions order the records of every run as they were told.
func checkRevisions(t testing.TB, records []event.Record) {
	t.Helper()
	last := map[string]uint64{}
	for _, r := range records {
		if p, ok := r.(*event.Placement); ok {
			run := fmt.Sprintf("%s/%s/%d/%s", p.Cluster, p.JobId, p.GetRestart(), p.Component)
			if p.Revision <= last[run] {
				t.Fatalf("%s: revision %d after %d", run, p.Revision, last[run])
			}
			last[run] = p.Revision
		}
	}
}

func sameNodes(a, b []*event.NodePlacement) bool {
	return slices.EqualFunc(a, b, func(x, y *event.NodePlacement) bool { return x.Node == y.Node })
}

// checkHeldOnce checks that no GPU is held by two runs at a time. Half-open: one may start as the other ends.
func checkHeldOnce(t testing.TB, held map[string][]span) {
	t.Helper()
	for gpu, ss := range held {
		slices.SortFunc(ss, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
		for i := 1; i < len(ss); i++ {
			if ss[i].from < ss[i-1].to {
				t.Fatalf("%s is held by %v and %v", gpu, ss[i-1], ss[i])
			}
		}
	}
}

func TestNoGPUIsHeldTwiceAndNoneThatIsOut(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range 8 {
		c := randomCluster(rng)
		t.Run(fmt.Sprintf("cluster %d", i), func(t *testing.T) {
			_, records := live(t, uint64(i), c, 3*day)
			checkHeldOnce(t, spans(t, records))
			checkRevisions(t, records)
			up := map[string]bool{}
			for _, r := range records {
				if err := r.Validate(); err != nil {
					t.Fatalf("%v\n%v", err, r)
				}
				switch r := r.(type) {
				case *event.Node:
					up[r.Node] = r.GetSchedulable()
				case *event.Placement:
					for _, n := range r.Placements {
						if starts := max(r.GetStartMs(), n.GetFromMs()); r.State == event.State_RUNNING && starts == r.ObservedAtMs && !up[n.Node] {
							t.Fatalf("job %s is given %s, which is out", r.JobId, n.Node)
						}
					}
				}
			}
		})
	}
}

// judged is a started run with the domains it used and the fewest it could have used, at its start.
type judged struct {
	record      *event.Placement
	used, least int
}

func judgeStarts(c Cluster, seed uint64, records []event.Record) []judged {
	f := newFleet(seed, c.Name, c.Racks, c.DegradedRacks)
	rack := map[string]int{}
	for n, name := range f.name {
		rack[name] = rackOf(n)
	}
	usable := map[string]int{}
	var out []judged
	for _, r := range records {
		switch r := r.(type) {
		case *event.Node:
			usable[r.Node] = 0
			if r.GetSchedulable() {
				usable[r.Node] = int(r.GetGpusHealthy())
			}
		case *event.Placement:
			if r.State != event.State_RUNNING || r.GetStartMs() != r.ObservedAtMs || r.Component != "" {
				continue
			}
			racks := map[int]bool{}
			for _, n := range r.Placements {
				racks[rack[n.Node]] = true
			}
			perRack := map[string]int{}
			for node, n := range usable {
				perRack[fmt.Sprint(rack[node])] += n
			}
			out = append(out, judged{r, len(racks), fewest(largest(perRack), int(r.GetGpus()))})
		}
	}
	return out
}

func TestBlockNeverTakesMoreDomainsThanNeeded(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	jobs, segments := 0, 0
	for i := range 8 {
		c := randomCluster(rng)
		_, records := live(t, uint64(i), c, 3*day)
		for _, j := range judgeStarts(c, uint64(i), records) {
			if j.record.Queue != "block" {
				continue
			}
			if s := int(j.record.GetIntent().GetSegmentNodes()); s > 0 {
				segments++
				perRack := map[string]int{}
				for _, n := range j.record.Placements {
					perRack[n.Node[:len(n.Node)-4]]++
				}
				for rack, n := range perRack {
					if n%s != 0 {
						t.Fatalf("job %s: %d nodes in %s with segments of %d", j.record.JobId, n, rack, s)
					}
				}
				continue
			}
			jobs++
			if j.used > j.least {
				t.Fatalf("job %s of %d GPUs uses %d domains, %d would do", j.record.JobId, j.record.GetGpus(), j.used, j.least)
			}
		}
	}
	if jobs < 1000 || segments < 20 {
		t.Fatalf("only %d jobs and %d with segments were seen: the test proves little", jobs, segments)
	}
}

func TestDefaultFleetSpillsInFlatOnlyAndIsBusy(t *testing.T) {
	c := DefaultCluster()
	s, records := live(t, 1, c, 10*day)
	var several, spilled int
	classes, states := map[string]int{}, map[event.State]int{}
	var probes, arrays, hets, replaced, restarts, reasons int
	seen := map[string]bool{}
	for _, j := range judgeStarts(c, 1, records) {
		if j.record.Queue == "gpu" && len(j.record.Placements) > 1 {
			several++
			if j.used > j.least {
				spilled++
			}
		}
	}
	for _, r := range records {
		p, ok := r.(*event.Placement)
		if !ok {
			continue
		}
		states[p.State]++
		classes[p.ServiceClass]++
		if p.PendingReason != "" && !seen[p.PendingReason] {
			seen[p.PendingReason] = true
			reasons++
		}
		if p.Probe && p.State == event.State_RUNNING {
			probes++
		}
		if p.ArrayJobId != "" {
			arrays++
		}
		if p.Component != "" {
			hets++
		}
		if p.GetRestart() > 0 {
			restarts++
		}
		if slices.ContainsFunc(p.Placements, func(n *event.NodePlacement) bool { return n.FromMs != nil }) {
			replaced++
		}
	}
	share := float64(spilled) / float64(several)
	t.Logf("%d records, %d of %d multi-node flat jobs spill (%.0f %%); states %v; classes %v; reasons %v", len(records), spilled, several, 100*share, states, classes, seen)
	if share < .2 || share > .9 {
		t.Errorf("%.0f %% of the flat jobs of several nodes spill", 100*share)
	}
	for what, n := range map[string]int{
		"probe jobs": probes, "array tasks": arrays, "heterogeneous jobs": hets, "replaced nodes": replaced, "requeued runs": restarts,
		"pending reasons": reasons - 3, "COMPLETING": states[event.State_COMPLETING], "TIMEOUT": states[event.State_TIMEOUT],
		"NODE_FAIL": states[event.State_NODE_FAIL], "PREEMPTED probes": states[event.State_PREEMPTED], "REQUEUED": states[event.State_REQUEUED],
	} {
		if n <= 0 {
			t.Errorf("ten days of the default fleet have no %s", what)
		}
	}
	busy, length := int64(0), (10 * day).Milliseconds()
	for _, ss := range spans(t, records) {
		for _, h := range ss {
			busy += min(h.to, testStart.UnixMilli()+length) - h.from
		}
	}
	used := float64(busy) / float64(length) / float64(c.Racks*gpusPerRack)
	t.Logf("%.0f %% of the GPU time is used; %d jobs are open", 100*used, len(s.jobs))
	if used < .6 || used > .95 {
		t.Errorf("at load %g the fleet is used %.0f %%", c.Load, 100*used)
	}
}

// encode gives records as bytes: what a test of equality must compare.
func encode(t testing.TB, records []event.Record) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, r := range records {
		key, value, err := event.Encode(r)
		if err != nil {
			t.Fatalf("%v\n%v", err, r)
		}
		fmt.Fprintf(&b, "%s %s %x\n", r.RecordTopic(), key, value)
	}
	return b.Bytes()
}

func TestSameSeedGivesTheSameBytesAndAnotherOneDoesNot(t *testing.T) {
	_, a := live(t, 3, DefaultCluster(), day)
	_, b := live(t, 3, DefaultCluster(), day)
	_, c := live(t, 4, DefaultCluster(), day)
	if !bytes.Equal(encode(t, a), encode(t, b)) {
		t.Error("two runs of one seed differ")
	}
	if bytes.Equal(encode(t, a), encode(t, c)) {
		t.Error("two seeds give the same records")
	}
}

func TestSavedAndRestoredAtAnyTimeGivesTheSameBytesAsUnbroken(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for i := range 3 {
		c := randomCluster(rng)
		_, want := live(t, uint64(i), c, 3*day)
		s, got := live(t, uint64(i), c, 0)
		for s.now < (3 * day).Milliseconds() {
			saved, err := s.save()
			if err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(saved) // as the state file does
			if err != nil {
				t.Fatal(err)
			}
			var read savedSim
			if err := json.Unmarshal(b, &read); err != nil {
				t.Fatal(err)
			}
			if s, err = restore(uint64(i), c, s.clock, read); err != nil {
				t.Fatal(err)
			}
			to := min(s.now+1+rng.Int64N((6*time.Hour).Milliseconds()), (3 * day).Milliseconds())
			s.advance(to, func(r event.Record) { got = append(got, r) })
		}
		if !bytes.Equal(encode(t, want), encode(t, got)) {
			t.Errorf("cluster %d: a restored fleet lives another life", i)
		}
	}
}

func TestAttemptsHoldNoGPUTwiceInOrderOfTime(t *testing.T) {
	const n = 20_000
	var records []event.Record
	last, starts, spilled, several := int64(0), 0, 0, 0
	for p := range Attempts(5, 16, n, testStart) {
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		if p.ObservedAtMs < last {
			t.Fatalf("record of job %s is out of order", p.JobId)
		}
		last = p.ObservedAtMs
		if p.State == event.State_RUNNING {
			starts++
			racks := map[string]bool{}
			for _, n := range p.Placements {
				racks[n.Node[:len(n.Node)-4]] = true
			}
			if len(p.Placements) > 1 {
				several++
				if len(racks) > (len(p.Placements)+17)/18 {
					spilled++
				}
			}
		}
		records = append(records, p)
	}
	if len(records) != 2*n || starts != n {
		t.Fatalf("%d records, %d starts of %d attempts", len(records), starts, n)
	}
	checkHeldOnce(t, spans(t, records))
	t.Logf("%.0f %% of the jobs of several nodes spill; they cover %s, Span says %s", 100*float64(spilled)/float64(several), time.UnixMilli(last).Sub(testStart), Span(16, n))
	for _, r := range Hardware(5, 16, testStart) {
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkAttempts(b *testing.B) {
	n := 0
	for range Attempts(1, 139, b.N, testStart) {
		n++
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkFleetDay(b *testing.B) {
	for _, racks := range []int{16, 139} {
		b.Run(fmt.Sprintf("racks=%d", racks), func(b *testing.B) {
			c := DefaultCluster()
			c.Racks = racks
			c.DegradedRacks = racks / 4
			c.Partitions[0].Racks = racks / 2
			records := 0
			for b.Loop() {
				s := newSim(1, c, clock{Speed: 1}, 1)
				s.advance(day.Milliseconds(), func(event.Record) { records++ })
			}
			b.ReportMetric(float64(records)/float64(b.N), "records/day")
		})
	}
}

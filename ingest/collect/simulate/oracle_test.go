package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/schemas/event"
)

// The oracle is a small, slow reading of the rules of what a placement is and when it spills, over all records at once. It
// exists to check that the expectations of the scenarios, which are written by hand, follow from their records.

type oraclePhase struct {
	job      string
	run      uint32
	seq      int
	from, to int64
	endsBy   int64
	probe    bool
	gpus     map[string]int // by node
	intent   *event.Intent
}

type oracle struct {
	cluster string
	members map[string][]*event.Membership // by node, in order of time
	nodes   map[string][]*event.Node
	phases  []oraclePhase
}

func newOracle(cluster string, records []event.Record) *oracle {
	o := &oracle{cluster: cluster, members: map[string][]*event.Membership{}, nodes: map[string][]*event.Node{}}
	type key struct {
		job string
		run uint32
	}
	runs := map[key][]*event.Placement{}
	for _, r := range records {
		switch r := r.(type) {
		case *event.Membership:
			if r.Cluster == cluster {
				o.members[r.Node] = append(o.members[r.Node], r)
			}
		case *event.Node:
			if r.Cluster == cluster {
				o.nodes[r.Node] = append(o.nodes[r.Node], r)
			}
		case *event.Placement:
			if r.Cluster == cluster {
				k := key{r.JobId, r.GetRestart()}
				runs[k] = append(runs[k], r)
			}
		}
	}
	for _, rs := range o.members {
		slices.SortFunc(rs, func(a, b *event.Membership) int { return cmp.Compare(a.GetValidFromMs(), b.GetValidFromMs()) })
	}
	for _, rs := range o.nodes {
		slices.SortFunc(rs, func(a, b *event.Node) int { return cmp.Compare(a.GetValidFromMs(), b.GetValidFromMs()) })
	}
	for k, rs := range runs {
		o.fold(k.job, k.run, rs)
	}
	return o
}

// fold makes the phases of one run.
func (o *oracle) fold(job string, run uint32, records []*event.Placement) {
	slices.SortFunc(records, func(a, b *event.Placement) int { return cmp.Compare(a.Revision, b.Revision) })
	end := int64(math.MaxInt64)
	for _, r := range records {
		if r.State.Ended() {
			end = r.GetEndMs()
		}
	}
	var phases []oraclePhase
	components := map[string]map[string]int{}
	for _, r := range records {
		if !r.State.Holding() || r.Partial {
			continue
		}
		set, from := map[string]int{}, r.ObservedAtMs
		for _, n := range r.Placements {
			set[n.Node] = int(n.GetGpus())
			if n.FromMs != nil {
				from = min(from, n.GetFromMs())
			}
		}
		components[r.Component] = set
		union := map[string]int{}
		for _, c := range components {
			maps.Copy(union, c)
		}
		p := oraclePhase{
			job: job, run: run, from: from, probe: r.Probe, gpus: union, intent: r.Intent,
			endsBy: r.GetStartMs() + r.GetTimeLimitMs(),
		}
		switch {
		case len(phases) == 0:
			p.from = r.GetStartMs()
			phases = append(phases, p)
		case len(components) > 1: // one more component of the same instant
			phases[len(phases)-1].gpus = union
		case !maps.Equal(phases[len(phases)-1].gpus, union):
			phases = append(phases, p)
		}
	}
	for i := range phases {
		phases[i].seq, phases[i].to = i, end
		if i+1 < len(phases) {
			phases[i].to = phases[i+1].from
		}
	}
	o.phases = append(o.phases, phases...)
}

// identity is a node's domain and partition over [from, to), "" where unknown.
func (o *oracle) identity(node string, from, to int64) (domain, partition string) {
	var at *event.Membership
	for _, m := range o.members[node] {
		if m.GetValidFromMs() <= from {
			at = m
		}
	}
	if at != nil {
		if domain, partition = readFabric(at); domain != "" {
			return domain, partition
		}
	}
	for _, m := range o.members[node] {
		if m.GetValidFromMs() > from && m.GetValidFromMs() < to {
			if domain, partition = readFabric(m); domain != "" {
				return domain, partition
			}
		}
	}
	return "", ""
}

func readFabric(m *event.Membership) (domain, partition string) {
	for i, g := range m.Gpus {
		if g.State != "completed" || g.Status != "success" {
			return "", ""
		}
		d := g.ClusterUuid
		p := fmt.Sprintf("%s.%d", d, g.GetCliqueId())
		if d == zeroUUID() {
			d = "node:" + m.Node
			p = d
		}
		if i > 0 && (d != domain || p != partition) {
			return "", ""
		}
		domain, partition = d, p
	}
	return domain, partition
}

// usable is GPUs by domain at a time.
func (o *oracle) usable(at int64) map[string]int {
	out := map[string]int{}
	for node := range o.members {
		d, _ := o.identity(node, at, at+1)
		if d != "" {
			out[d] += o.usableOf(node, at)
		}
	}
	return out
}

func (o *oracle) usableOf(node string, at int64) int {
	n := 0
	for _, r := range o.nodes[node] {
		if r.GetValidFromMs() <= at {
			n = 0
			if r.GetSchedulable() {
				n = int(r.GetGpusHealthy())
			}
		}
	}
	return n
}

// largest gives the values of a map, largest first.
func largest(m map[string]int) []int {
	return slices.SortedFunc(maps.Values(m), func(a, b int) int { return b - a })
}

// fewest is how many of the largest sum to n, or 0 where all do not.
func fewest(sizes []int, n int) int {
	for i, z := range sizes {
		if n -= z; n <= 0 {
			return i + 1
		}
	}
	return 0
}

func sum(sizes []int) int {
	n := 0
	for _, z := range sizes {
		n += z
	}
	return n
}

// free is usable GPUs by domain, less what others than p hold at its start and, with a window, still after it.
func (o *oracle) free(p oraclePhase, window int64) map[string]int {
	free := o.usable(p.from)
	for _, q := range o.phases {
		if q.job == p.job && q.run == p.run || q.probe || q.from > p.from || q.to <= p.from {
			continue
		}
		if window > 0 && q.endsBy <= p.from+window {
			continue
		}
		for node, gpus := range q.gpus {
			if d, _ := o.identity(node, p.from, p.from+1); d != "" {
				free[d] -= min(gpus, o.usableOf(node, p.from))
			}
		}
	}
	return free
}

func (o *oracle) cause(p oraclePhase, gpus, least int) string {
	within := func(window int64) bool {
		sizes := largest(o.free(p, window))
		return sum(sizes[:min(least, len(sizes))]) >= gpus
	}
	switch {
	case within(0):
		return causePolicy
	case within((15 * time.Minute).Milliseconds()):
		return causeTiming
	case sum(largest(o.free(p, 0))) >= gpus:
		return causeRepack
	}
	return causeCapacity
}

// judge gives the verdict of a phase; ok is false where there is nothing to judge.
func (o *oracle) judge(p oraclePhase) (v Verdict, ok bool) {
	v = Verdict{Cluster: o.cluster, Job: p.job, Attempt: int(p.run), Seq: p.seq}
	perDomain, nodesOf, partitions := map[string]int{}, map[string]int{}, map[string]bool{}
	gpus, unknownNodes := 0, 0
	for node, n := range p.gpus {
		gpus += n
		d, part := o.identity(node, p.from, p.to)
		if d == "" {
			unknownNodes++
			continue
		}
		perDomain[d] += n
		nodesOf[d]++
		partitions[part] = true
	}
	if gpus == 0 {
		return v, false
	}
	used := len(perDomain)
	usable := largest(o.usable(p.from))
	least := fewest(usable, gpus)
	if least > used && unknownNodes == 0 {
		least = used
	}
	if unknownNodes > 0 {
		v.Outcome = "unknown"
		if used > least && least > 0 {
			v.Outcome, v.DomainsUsed, v.DomainsMin = "spill", ptr(used), ptr(least)
		}
		return v, true
	}
	v.DomainsUsed, v.DomainsMin, v.Shape = ptr(used), ptr(least), largest(perDomain)
	broken := false
	aligned := false
	if in := p.intent; in != nil && in.SegmentNodes != nil {
		s := int(in.GetSegmentNodes())
		met := true
		for _, n := range nodesOf {
			met = met && n%s == 0
		}
		if len(p.gpus) >= s && len(p.gpus)%s == 0 {
			v.IntentMet, broken, aligned = ptr(met), !met, met
		}
	}
	if in := p.intent; in != nil && in.Mode == event.Intent_REQUIRED && in.Level == event.LevelDomain {
		v.IntentMet, broken = ptr(used == 1), used > 1
	}
	switch {
	case used == 1 && len(partitions) == 1:
		v.Outcome = "one_partition"
	case used == 1:
		v.Outcome = "one_domain"
	case aligned:
		v.Outcome = "minimal_spread"
	case broken || used > least:
		v.Outcome, v.Cause = "spill", o.cause(p, gpus, least)
	default:
		v.Outcome = "minimal_spread"
	}
	return v, true
}

func (o *oracle) verdicts() []Verdict {
	var out []Verdict
	for _, p := range o.phases {
		if v, ok := o.judge(p); ok {
			out = append(out, v)
		}
	}
	return out
}

func TestExpectationsOfEveryScenarioFollowFromItsRecords(t *testing.T) {
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for _, name := range Scenarios() {
		t.Run(name, func(t *testing.T) {
			c, err := Scenario(name, at)
			if err != nil {
				t.Fatal(err)
			}
			all := slices.Concat(c.Records, c.Later)
			clusters := map[string]bool{}
			for _, r := range all {
				if _, _, err := event.Encode(r); err != nil {
					t.Errorf("a record breaks the contract: %v\n%v", err, r)
				}
				clusters[r.(interface{ GetCluster() string }).GetCluster()] = true
				if seen := time.UnixMilli(observed(r)); seen.Before(at.Add(inventory)) || seen.After(at.Add(15*time.Minute)) {
					t.Errorf("a record is observed at %s, outside of what Case promises", seen)
				}
			}
			var got []Verdict
			for cluster := range clusters {
				got = append(got, newOracle(cluster, all).verdicts()...)
			}
			want := slices.Clone(c.Verdicts)
			for i := range want {
				want[i].Domains = nil // checked below
			}
			order := func(a, b Verdict) int {
				return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Job, b.Job), a.Attempt-b.Attempt, a.Seq-b.Seq)
			}
			slices.SortFunc(got, order)
			slices.SortFunc(want, order)
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("verdicts differ (-expected +by the rules):\n%s", diff)
			}
		})
	}
}

func TestUUIDChangeExpectsOldAndNewDomain(t *testing.T) {
	c, err := Scenario("uuid-changed", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o := newOracle(c.Verdicts[0].Cluster, c.Records)
	for _, v := range c.Verdicts {
		for _, p := range o.phases {
			if p.job != v.Job {
				continue
			}
			for node := range p.gpus {
				if d, _ := o.identity(node, p.from, p.to); d != v.Domains[0] {
					t.Errorf("job %s: domain %s, want %s", v.Job, d, v.Domains[0])
				}
			}
		}
	}
}

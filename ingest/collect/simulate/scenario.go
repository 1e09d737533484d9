package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// Case is one scripted scenario: the records of clusters of its own, and every verdict that must come of them.
type Case struct {
	Name  string
	About string
	// Records in the order in which they are to be emitted. All lie between three hours before and a quarter of an hour
	// after the scenario's time.
	Records []event.Record
	// Later holds records to emit only once those before have been judged; most cases have none.
	Later []event.Record
	// Verdicts is complete: the clusters of the case must have these and no others.
	Verdicts []Verdict
}

// Verdict is what must be found about one placement.
type Verdict struct {
	Cluster string `json:"cluster"`
	Job     string `json:"job"`
	Attempt int    `json:"attempt"` // number of the run, from 0
	Seq     int    `json:"seq"`     // placement of the run, from 0
	Outcome string `json:"outcome"`
	Cause   string `json:"cause"`
	// DomainsUsed and DomainsMin are nil where the case does not say.
	DomainsUsed *int `json:"domains_used"`
	DomainsMin  *int `json:"domains_min"`
	// Shape is GPUs per domain, largest first, and Domains their ids in the same order; nil where the case does not say.
	Shape   []int    `json:"shape"`
	Domains []string `json:"domains,omitempty"`
	// IntentMet is nil where nothing was asked or it cannot be said.
	IntentMet *bool `json:"intent_met"`
}

// Scenarios lists the scenarios by name.
func Scenarios() []string {
	names := make([]string, 0, len(scripts))
	for _, s := range scripts {
		names = append(names, s.name)
	}
	return names
}

// Scenario scripts one scenario around a time. Its clusters are named after it, so that many can be told to one store.
func Scenario(name string, at time.Time) (Case, error) {
	i := slices.IndexFunc(scripts, func(s script) bool { return s.name == name })
	if i < 0 {
		return Case{}, fmt.Errorf("there is no scenario %q: choose one of %s", name, strings.Join(Scenarios(), ", "))
	}
	w := &writer{cluster: "sim-" + name, at: at.UTC().Truncate(time.Millisecond)}
	scripts[i].write(w)
	slices.SortStableFunc(w.records, func(a, b event.Record) int { return cmp.Compare(observed(a), observed(b)) })
	if w.arrange != nil {
		w.records = w.arrange(w.records)
	}
	return Case{
		Name: name, About: scripts[i].about, Records: w.records, Later: w.later, Verdicts: w.verdicts,
	}, nil
}

// script is how one scenario is written.
type script struct {
	name, about string
	write       func(*writer)
}

// writer collects the records and expectations of a scenario. Offsets are from the scenario's time.
type writer struct {
	cluster  string
	at       time.Time
	fillers  int
	records  []event.Record
	later    []event.Record
	verdicts []Verdict
	arrange  func([]event.Record) []event.Record // the order of emission, where it is not that of observation
}

// inventory is when the hardware of a scenario was declared.
const inventory = -3 * time.Hour

func (w *writer) ms(offset time.Duration) int64 { return w.at.Add(offset).UnixMilli() }

func observed(r event.Record) int64 {
	return r.(interface{ GetObservedAtMs() int64 }).GetObservedAtMs()
}

func zeroUUID() string { return "00000000-0000-0000-0000-000000000000" }

// domain is the ClusterUUID of a rack of the scenario.
func (w *writer) domain(rack string) string { return uuid(0, w.cluster, rack) }

// racks declares r1 to rn, each of 18 trays with the clique given.
func (w *writer) racks(n int, clique uint32) {
	for r := range n {
		rack := fmt.Sprintf("r%d", r+1)
		for _, node := range trays(rack, 1, traysPerRack) {
			w.fabric(node, inventory, gpusPerTray, w.domain(rack), clique)
			w.capacity(node, inventory, gpusPerTray, true)
		}
	}
}

// trays names nodes of a rack.
func trays(rack string, first, last int) []string {
	var nodes []string
	for tray := first; tray <= last; tray++ {
		nodes = append(nodes, fmt.Sprintf("%s-n%02d", rack, tray))
	}
	return nodes
}

// fabric declares what the GPUs of a node say of themselves.
func (w *writer) fabric(node string, since time.Duration, gpus int, domain string, clique uint32) *event.Membership {
	m := &event.Membership{
		Cluster: w.cluster, Node: node, Source: event.SourceNVML,
		ValidFromMs: ptr(w.ms(since)), ObservedAtMs: w.ms(since), Revision: uint64(w.ms(since)) * 1000,
	}
	for g := range gpus {
		m.Gpus = append(m.Gpus, &event.GpuFabric{
			Index: uint32(g), Uuid: "GPU-" + uuid(0, w.cluster, node, fmt.Sprint(g)),
			ClusterUuid: domain, CliqueId: ptr(clique), State: event.FabricCompleted, Status: event.FabricSuccess,
		})
	}
	w.add(m)
	return m
}

// unregistered declares a node whose fabric the fabric manager has not registered yet.
func (w *writer) unregistered(node string, since time.Duration) {
	for _, g := range w.fabric(node, since, gpusPerTray, "", 0).Gpus {
		g.State, g.Status, g.CliqueId = event.FabricInProgress, "", nil
	}
}

// capacity declares what a node can take.
func (w *writer) capacity(node string, since time.Duration, gpus int, schedulable bool) {
	state := "IDLE"
	if !schedulable {
		state = "IDLE+DRAIN"
	}
	w.add(&event.Node{
		Cluster: w.cluster, Node: node, Source: Source, StateRaw: state, Schedulable: ptr(schedulable),
		GpusPresent: ptr(uint32(gpus)), GpusHealthy: ptr(uint32(gpus)),
		ValidFromMs: ptr(w.ms(since)), ObservedAtMs: w.ms(since), Revision: uint64(w.ms(since)) * 1000,
	})
}

// hold is some GPUs of a node.
type hold struct {
	node string
	gpus int
}

// whole holds all GPUs of NVL72 trays.
func whole(nodes ...[]string) []hold {
	var holds []hold
	for _, n := range slices.Concat(nodes...) {
		holds = append(holds, hold{n, gpusPerTray})
	}
	return holds
}

// run is one run of a job in a scenario.
type run struct {
	job      string
	restart  uint32
	from, to time.Duration
	limit    time.Duration // 0 = ten hours
	holds    []hold
	end      event.State            // how it ends; 0 = COMPLETED
	set      func(*event.Placement) // what else its records say
}

// tell records a run: RUNNING when it starts, and its end.
func (w *writer) tell(r run) {
	if r.end == event.State_STATE_UNSPECIFIED {
		r.end = event.State_COMPLETED
	}
	w.add(w.record(r, event.State_RUNNING, r.from))
	w.add(w.record(r, r.end, r.to))
}

func (w *writer) add(r event.Record) { w.records = append(w.records, r) }

// record makes one record of a run without telling it.
func (w *writer) record(r run, state event.State, seen time.Duration) *event.Placement {
	if r.limit == 0 {
		r.limit = 10 * time.Hour
	}
	p := &event.Placement{
		Cluster: w.cluster, Scheduler: scheduler, JobId: r.job, Restart: ptr(r.restart),
		RunId: runID(0, w.cluster, w.at.UnixMilli(), r.job, r.restart),
		Name:  "scenario", User: "amara", Account: "foundation", Queue: "gpu", ServiceClass: classTraining,
		State: state, StateRaw: state.String(),
		SubmitMs: ptr(w.ms(r.from - time.Second)), StartMs: ptr(w.ms(r.from)), TimeLimitMs: ptr(r.limit.Milliseconds()),
		Source: Source, ObservedAtMs: w.ms(seen), Revision: uint64(w.ms(seen)) * 1000,
	}
	if state.Ended() {
		p.EndMs = ptr(w.ms(seen))
		p.Revision++ // after what was seen in the same millisecond
	}
	total := uint32(0)
	for _, h := range r.holds {
		n := &event.NodePlacement{Node: h.node, Gpus: ptr(uint32(h.gpus))}
		for i := range h.gpus {
			n.GpuIndex = append(n.GpuIndex, uint32(i))
		}
		p.Placements = append(p.Placements, n)
		total += uint32(h.gpus)
	}
	p.Gpus, p.RequestedGpus = ptr(total), ptr(total) // no node count asked: GPUs alone say how few domains do
	if r.set != nil {
		r.set(p)
	}
	return p
}

// expect adds the verdict that must be found about a run.
func (w *writer) expect(job string, v Verdict) {
	v.Cluster, v.Job = w.cluster, job
	w.verdicts = append(w.verdicts, v)
}

// fill runs a job of its own on trays of a rack, for others to find them taken.
func (w *writer) fill(rack string, first, last int, from, to, limit time.Duration) {
	w.fillers++
	job := fmt.Sprintf("90%02d", w.fillers)
	nodes := trays(rack, first, last)
	w.tell(run{job: job, from: from, to: to, limit: limit, holds: whole(nodes)})
	w.expect(job, one(len(nodes)*gpusPerTray))
}

// one is a job inside one partition.
func one(gpus int) Verdict {
	return Verdict{Outcome: "one_partition", DomainsUsed: ptr(1), DomainsMin: ptr(1), Shape: []int{gpus}}
}

// spread is a job on as many domains as its size needs.
func spread(shape ...int) Verdict {
	return Verdict{Outcome: "minimal_spread", DomainsUsed: ptr(len(shape)), DomainsMin: ptr(len(shape)), Shape: shape}
}

// spill is a job on more domains than least.
func spill(cause string, least int, shape ...int) Verdict {
	return Verdict{Outcome: "spill", Cause: cause, DomainsUsed: ptr(len(shape)), DomainsMin: ptr(least), Shape: shape}
}

// unknown is a job of which it cannot be said.
func unknown() Verdict { return Verdict{Outcome: "unknown"} }

package api

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/query/read"
)

// gauges answers a scrape with the state of the fleet: what alerts read. It asks the store when it is scraped, so that
// nothing is asked where nobody listens. Facts that cannot be read are left out, never shown as zero, and
// spillway_query_facts_up says so.
type gauges struct {
	reader *read.Reader
	log    *slog.Logger
	now    func() time.Time
	sizes  []uint32

	mu    sync.Mutex // one scrape at a time asks; the next one within gaugeMemory gets the same answer
	asked time.Time
	last  []prometheus.Metric

	capacities behind[*read.Domains]
	oddities   behind[*read.Exceptions]
}

// behind is a question whose answer may take longer than a scrape may: it goes on behind, and a later scrape has it.
type behind[T any] struct {
	asked chan reply[T] // of a reading that is on its way; nil = none
}

type reply[T any] struct {
	answer T
	err    error
}

// get waits for the answer as long as ctx lasts. One that is there counts also after that: on a busy machine the questions
// before may have taken all of the time at every scrape.
func (b *behind[T]) get(ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	if b.asked == nil {
		asked := make(chan reply[T], 1)
		b.asked = asked
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
			defer cancel()
			answer, err := ask(ctx)
			asked <- reply[T]{answer, err}
		}()
	}
	select {
	case got := <-b.asked:
		return b.take(got)
	case <-ctx.Done():
	}
	select {
	case got := <-b.asked:
		return b.take(got)
	default:
		var none T
		return none, ctx.Err()
	}
}

func (b *behind[T]) take(got reply[T]) (T, error) {
	b.asked = nil
	return got.answer, got.err
}

// A scrape waits this long for the store, below the 10 s that Prometheus gives one.
const gaugeTimeout = 4 * time.Second

// loadTimeout bounds a reading that goes on behind, such as the first of the capacity of a large fleet on a busy machine.
const loadTimeout = time.Minute

// gaugeMemory is how long an answer serves further scrapes.
const gaugeMemory = time.Second

func gaugeDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("spillway_"+name, help, labels, nil)
}

// Labels of the same thing have the same name everywhere, so that a router can go by them.
var (
	descUp = gaugeDesc("query_facts_up", "1 when the newest scrape could read these facts from the store, 0 when some are left out.")

	descRunning     = gaugeDesc("running_placements", "Placements of real jobs that hold GPUs now, by verdict; cause is of a spill.", "cluster", "queue", "account", "service_class", "outcome", "cause")
	descRunningGPUs = gaugeDesc("running_placement_gpus", "GPUs of those placements, where their number is known.", "cluster", "queue", "account", "service_class", "outcome", "cause")
	descBroken      = gaugeDesc("required_level_violations", "Running placements whose required level or segment contract is not met.", "cluster", "queue", "account", "service_class", "level")

	descSilent   = gaugeDesc("silent_fallback_attempts", "Running attempts inside one NVLink domain whose traffic goes over the scale-out network.", "cluster", "service_class")
	descEvidence = gaugeDesc("traffic_evidence_attempts", "Running attempts whose counters are read, by what their traffic says of the verdict.", "cluster", "evidence")

	descExceptions = gaugeDesc("lifecycle_exceptions", "Running jobs whose life-cycle facts do not fit together, by kind, and those that vanished in the last hour; beyond the first 1000 of a cluster and kind without queue, account and class.", "cluster", "queue", "account", "service_class", "kind")

	descFreeSlots  = gaugeDesc("domain_free_slots", "Slots of so many GPUs that are free in one NVLink domain; GPUs only, other resources may still keep a job out.", "cluster", "domain", "size")
	descDomainGPUs = gaugeDesc("domain_gpus", "GPUs of one NVLink domain by state: free, held, probe (evictable) or unusable.", "cluster", "domain", "state")
	descSlots      = gaugeDesc("cluster_free_slots", "Slots of so many GPUs that are free, over all NVLink domains.", "cluster", "size")
	descGPUs       = gaugeDesc("cluster_gpus", "GPUs by state: free, held, probe (evictable) or unusable; nodes of unknown domain are not in it.", "cluster", "state")

	descNodes     = gaugeDesc("topology_nodes", "Nodes by whether their NVLink domain is known; reason says why not.", "cluster", "known", "reason")
	descConflicts = gaugeDesc("topology_conflicts", "Nodes on whose domain two sources disagree, up to 1000.", "cluster")
	descSourceAge = gaugeDesc("source_age_seconds", "Time since a source was last read in full; absent before its first.", "cluster", "source")
	descSourceBad = gaugeDesc("source_failing", "1 when the newest read of a source failed or is overdue.", "cluster", "source")
)

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descUp, descRunning, descRunningGPUs, descBroken, descSilent, descEvidence, descExceptions, descFreeSlots, descDomainGPUs, descSlots, descGPUs, descNodes,
		descConflicts, descSourceAge, descSourceBad,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.now(); g.last == nil || now.Sub(g.asked) >= gaugeMemory {
		g.asked, g.last = now, g.read()
	}
	for _, m := range g.last {
		out <- m
	}
}

func (g *gauges) read() (out []prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), gaugeTimeout)
	defer cancel()
	add := func(d *prometheus.Desc, value float64, labels ...string) {
		out = append(out, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...))
	}
	up := 1.0
	part := func(what string, read func() error) {
		if err := read(); err != nil {
			up = 0
			g.log.Error("reading facts for a scrape failed; they are left out", "what", what, "error", err)
		}
	}
	part("running placements", func() error {
		running, err := g.reader.Running(ctx)
		if err != nil {
			return err
		}
		g.running(running, add)
		return nil
	})
	part("traffic of running placements", func() error {
		said, err := g.reader.RunningTraffic(ctx)
		if err != nil {
			return err
		}
		g.traffic(said, add)
		return nil
	})
	part("topology", func() error {
		health, err := g.reader.TopologyHealth(ctx, "")
		if err != nil {
			return err
		}
		g.topology(health, add)
		return nil
	})
	part("capacity", func() error {
		domains, err := g.capacities.get(ctx, func(ctx context.Context) (*read.Domains, error) { return g.reader.DomainsNow(ctx, "") })
		if err != nil {
			return err
		}
		g.capacity(domains.Domains, add)
		return nil
	})
	// The most work of all, so it comes last: the others have the time they need.
	part("exceptions", func() error {
		found, err := g.oddities.get(ctx, func(ctx context.Context) (*read.Exceptions, error) { return g.reader.Exceptions(ctx, "") })
		if err != nil {
			return err
		}
		g.exceptions(found, add)
		return nil
	})
	add(descUp, up)
	return out
}

type addGauge func(d *prometheus.Desc, value float64, labels ...string)

func (g *gauges) running(running []read.Running, add addGauge) {
	type verdict struct{ cluster, queue, account, class, outcome, cause string }
	placements, gpus := map[verdict]uint64{}, map[verdict]uint64{}
	for _, r := range running {
		key := verdict{r.Cluster, r.Queue, r.Account, r.ServiceClass, r.Outcome, r.Cause}
		placements[key] += r.Placements
		gpus[key] += r.GPUs
		if r.Broken {
			broken := verdict{r.Cluster, r.Queue, r.Account, r.ServiceClass, "", r.Level}
			placements[broken] += r.Placements
		}
	}
	for k, n := range placements {
		if k.outcome == "" {
			add(descBroken, float64(n), k.cluster, k.queue, k.account, k.class, k.cause)
			continue
		}
		add(descRunning, float64(n), k.cluster, k.queue, k.account, k.class, k.outcome, k.cause)
		add(descRunningGPUs, float64(gpus[k]), k.cluster, k.queue, k.account, k.class, k.outcome, k.cause)
	}
}

func (g *gauges) traffic(said []read.RunningTraffic, add addGauge) {
	count := map[[2]string]uint64{}
	for _, s := range said {
		count[[2]string{s.Cluster, s.Evidence}] += s.Placements
		if s.Evidence == "silent_fallback" {
			add(descSilent, float64(s.Placements), s.Cluster, s.ServiceClass)
		}
	}
	for k, n := range count {
		add(descEvidence, float64(n), k[0], k[1])
	}
}

// exceptions counts what is listed by who it belongs to. What a cut list leaves out is counted without those labels.
func (g *gauges) exceptions(found *read.Exceptions, add addGauge) {
	type place struct{ cluster, queue, account, class, kind string }
	count := map[place]uint64{}
	for _, e := range found.Exceptions {
		count[place{e.Cluster, e.Queue, e.Account, e.ServiceClass, e.Kind}]++
	}
	for _, t := range found.Totals {
		if t.Total > t.Listed {
			count[place{cluster: t.Cluster, kind: t.Kind}] += t.Total - t.Listed
		}
	}
	for k, n := range count {
		add(descExceptions, float64(n), k.cluster, k.queue, k.account, k.class, k.kind)
	}
}

func (g *gauges) capacity(domains []read.Domain, add addGauge) {
	type size struct {
		cluster string
		gpus    uint32
	}
	type state struct{ cluster, state string }
	slots, gpus := map[size]uint64{}, map[state]uint64{}
	named := map[[2]string]int{}
	for _, d := range domains {
		named[[2]string{d.Cluster, d.Name()}]++
	}
	for _, d := range domains {
		name := d.Name()
		if named[[2]string{d.Cluster, name}] > 1 {
			name = d.Domain // two domains in one rack: its name is not one of them
		}
		for _, n := range g.sizes {
			count, ok := d.SlotsOf(n)
			if !ok {
				continue // not counted is not none
			}
			slots[size{d.Cluster, n}] += uint64(count)
			add(descFreeSlots, float64(count), d.Cluster, name, strconv.Itoa(int(n)))
		}
		for in, n := range map[string]uint32{
			"free": d.GPUsFree - min(d.GPUsFree, d.GPUsProbe), "held": d.GPUsHeld, "probe": d.GPUsProbe, "unusable": d.GPUs - min(d.GPUs, d.GPUsUsable),
		} {
			gpus[state{d.Cluster, in}] += uint64(n)
			add(descDomainGPUs, float64(n), d.Cluster, name, in)
		}
	}
	for k, n := range slots {
		add(descSlots, float64(n), k.cluster, strconv.Itoa(int(k.gpus)))
	}
	for k, n := range gpus {
		add(descGPUs, float64(n), k.cluster, k.state)
	}
}

func (g *gauges) topology(health *read.TopologyHealth, add addGauge) {
	type nodes struct{ cluster, known, reason string }
	count, conflicts := map[nodes]uint64{}, map[string]int{}
	for _, c := range health.Coverage {
		conflicts[c.Cluster] += 0 // a cluster without conflicts has none, which is a fact
		if c.Known > 0 {
			count[nodes{c.Cluster, "yes", ""}] += c.Known
		}
		if c.Nodes > c.Known {
			count[nodes{c.Cluster, "no", c.Reason}] += c.Nodes - c.Known
		}
	}
	for _, m := range health.Missing {
		count[nodes{m.Cluster, "no", "no_record"}]++
	}
	for _, c := range health.Conflicts {
		conflicts[c.Cluster]++
	}
	for k, n := range count {
		add(descNodes, float64(n), k.cluster, k.known, k.reason)
	}
	for cluster, n := range conflicts {
		add(descConflicts, float64(n), cluster)
	}
	for _, s := range health.Sources {
		bad := 0.0
		if s.Problem != nil || s.Overdue || s.GoodAt == nil {
			bad = 1
		}
		if s.GoodAt != nil {
			add(descSourceAge, g.now().Sub(*s.GoodAt).Seconds(), s.Cluster, s.Source)
		}
		add(descSourceBad, bad, s.Cluster, s.Source)
	}
}

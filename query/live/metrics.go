package live

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	records     *prometheus.CounterVec
	undecodable prometheus.Counter
	resyncs     *prometheus.CounterVec
	failures    prometheus.Counter
	gaps        prometheus.Counter
	drift       prometheus.Gauge
	loadSeconds prometheus.Gauge
	publishes   prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, f *Feed) *metrics {
	m := &metrics{
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_advise_records_total", Help: "Records of the topics that the advisor has folded.",
		}, []string{"topic"}),
		undecodable: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_advise_undecodable_total", Help: "Records that the advisor could not decode.",
		}),
		resyncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_advise_resyncs_total", Help: "Pictures read anew from ClickHouse, by why.",
		}, []string{"why"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_advise_failures_total", Help: "Readings of ClickHouse or of a topic that failed and were tried again.",
		}),
		gaps: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_advise_gaps_total", Help: "Times that a topic no longer had the records wanted.",
		}),
		drift: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_advise_drift_nodes", Help: "Nodes whose use the followed picture and the one read anew disagreed on.",
		}),
		loadSeconds: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_advise_load_seconds", Help: "Time of the last reading, until it had caught up.",
		}),
		publishes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spillway_advise_publish_seconds", Help: "Time to publish a change.", Buckets: prometheus.ExponentialBuckets(.0001, 4, 7),
		}),
	}
	if r != nil {
		r.MustRegister(m.records, m.undecodable, m.resyncs, m.failures, m.gaps, m.drift, m.loadSeconds, m.publishes, &state{f})
	}
	return m
}

// state tells the age and generation of each picture when it is asked.
type state struct{ f *Feed }

var (
	ageDesc = prometheus.NewDesc("spillway_advise_age_seconds", "Age of the advisor's picture of a cluster; absent where not known.",
		[]string{"cluster"}, nil)
	generationDesc = prometheus.NewDesc("spillway_advise_topology_generation", "Membership generation that advice rests on.",
		[]string{"cluster"}, nil)
	topologyLagDesc = prometheus.NewDesc("spillway_advise_topology_lag_seconds", "For how long a change of membership has been waiting for the passes; 0 = none does.", []string{"cluster"}, nil)
	holdersDesc     = prometheus.NewDesc("spillway_advise_nodes_held", "Nodes that jobs hold in the advisor's picture.", []string{"cluster"}, nil)
	lagDesc         = prometheus.NewDesc("spillway_advise_lag_seconds", "Time since all topics were read to their end.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s *state) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ageDesc, generationDesc, topologyLagDesc, holdersDesc, lagDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *state) Collect(ch chan<- prometheus.Metric) {
	now := s.f.now()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if c := s.f.current.Load(); c != nil {
		gauge(lagDesc, max(0, now.Sub(c.caughtUp()).Seconds()))
	}
	for name, v := range s.f.Clusters("") {
		if age, known := v.Age(now); known {
			gauge(ageDesc, age.Truncate(time.Millisecond).Seconds(), name)
		}
		gauge(generationDesc, float64(v.Snapshot.Topology.Generation), name)
		gauge(topologyLagDesc, v.TopologyLag(now).Seconds(), name)
		gauge(holdersDesc, float64(v.Snapshot.Held), name)
	}
}

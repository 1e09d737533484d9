package collect

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what every collector counts, under the same names and told apart by the label source. A nil *Metrics
// counts nothing.
type Metrics struct {
	polls   *prometheus.CounterVec
	errors  *prometheus.CounterVec
	seen    *prometheus.GaugeVec
	records *prometheus.CounterVec
	dropped *prometheus.CounterVec
	good    atomic.Int64 // Unix nanoseconds of the last good read; 0 = none yet
}

// NewMetrics registers the metrics of one source; it panics when the source is registered twice, which is a mistake of
// the program. now is the clock that the age of the last good read is taken by.
func NewMetrics(reg prometheus.Registerer, source string, now func() time.Time) *Metrics {
	constant := prometheus.Labels{"source": source}
	m := &Metrics{
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_collect_polls_total", ConstLabels: constant,
			Help: "Full reads of a source, good or not, by what was read.",
		}, []string{"what"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_collect_errors_total", ConstLabels: constant,
			Help: "Reads that failed and were refused whole, by reason.",
		}, []string{"reason"}),
		seen: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_collect_seen", ConstLabels: constant,
			Help: "Entities in the last good read, by what was read.",
		}, []string{"what"}),
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_collect_records_total", ConstLabels: constant,
			Help: "Records emitted, by the way they came in.",
		}, []string{"way"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_collect_dropped_total", ConstLabels: constant,
			Help: "Facts of a source that were left out because they could not be used, by reason.",
		}, []string{"reason"}),
	}
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_collect_last_good_age_seconds", ConstLabels: constant,
		Help: "Time since the last good full read; NaN before the first.",
	}, func() float64 {
		good := m.good.Load()
		if good == 0 {
			return math.NaN()
		}
		return now().Sub(time.Unix(0, good)).Seconds()
	})
	reg.MustRegister(m.polls, m.errors, m.seen, m.records, m.dropped, age)
	return m
}

// Poll counts one read.
func (m *Metrics) Poll(what string) {
	if m != nil {
		m.polls.WithLabelValues(what).Inc()
	}
}

// Failed counts a read that was refused whole.
func (m *Metrics) Failed(reason string) {
	if m != nil {
		m.errors.WithLabelValues(reason).Inc()
	}
}

// Good notes a good read with how many entities it listed.
func (m *Metrics) Good(what string, entities int, at time.Time) {
	if m != nil {
		m.seen.WithLabelValues(what).Set(float64(entities))
		m.good.Store(at.UnixNano())
	}
}

// Emitted counts records that the pipeline has taken.
func (m *Metrics) Emitted(way string, records int) {
	if m != nil {
		m.records.WithLabelValues(way).Add(float64(records))
	}
}

// Dropped counts facts that were left out.
func (m *Metrics) Dropped(reason string, facts int) {
	if m != nil {
		m.dropped.WithLabelValues(reason).Add(float64(facts))
	}
}

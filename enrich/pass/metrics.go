package pass

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the passes. What runs, the API tells.
type metrics struct {
	passes     *prometheus.CounterVec
	rows       *prometheus.CounterVec
	touched    prometheus.Counter
	judged     *prometheus.CounterVec
	clamped    *prometheus.CounterVec
	dropped    *prometheus.CounterVec
	emitted    prometheus.Counter
	unseen     *prometheus.CounterVec
	loads      prometheus.Counter
	remembered prometheus.Counter
	seconds    *prometheus.HistogramVec
	oldest     atomic.Int64 // Unix milliseconds of the oldest raw record not judged yet; 0 = none
}

func newMetrics(reg prometheus.Registerer, now func() time.Time) *metrics {
	m := &metrics{
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_enrich_passes_total",
			Help: "Passes that had something to do, by result (ok, error).",
		}, []string{"result"}),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_enrich_rows_total",
			Help: "Raw records judged, by raw table.",
		}, []string{"table"}),
		touched: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_enrich_touched_total",
			Help: "Placements that had to be judged because something they depend on changed.",
		}),
		judged: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_enrich_verdicts_total",
			Help: "Verdicts written because they are new or changed, by outcome (withdrawn: no longer holds).",
		}, []string{"outcome"}),
		clamped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_enrich_clamped_total",
			Help: "Times that contradict each other across sources and were moved to the nearest possible one, by reason.",
		}, []string{"reason"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_enrich_dropped_total",
			Help: "Parts of records that could not be used, by reason.",
		}, []string{"reason"}),
		emitted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_enrich_spill_records_total",
			Help: "Spill records sent out.",
		}),
		unseen: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_enrich_unseen_total",
			Help: "Runs, nodes and places that ended while no collector ran, by the source that no longer tells them.",
		}, []string{"source"}),
		loads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_enrich_cluster_loads_total",
			Help: "Times that what is kept in memory of a cluster was read from the tables.",
		}),
		remembered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_enrich_jobs_read_total",
			Help: "Jobs with late events that were no longer in memory and were read from the tables.",
		}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "spillway_enrich_step_seconds",
			Help:    "Time of one step of a pass.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"step"}),
	}
	lag := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_enrich_lag_seconds",
		Help: "Age of the oldest raw record that is not judged yet; 0 when all are.",
	}, func() float64 {
		ms := m.oldest.Load()
		if ms == 0 {
			return 0
		}
		return max(0, now().Sub(time.UnixMilli(ms)).Seconds())
	})
	if reg != nil {
		reg.MustRegister(m.passes, m.rows, m.touched, m.judged, m.clamped, m.dropped, m.emitted, m.unseen, m.loads, m.remembered, m.seconds, lag)
	}
	return m
}

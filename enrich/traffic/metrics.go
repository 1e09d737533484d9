package traffic

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	passes  *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	minutes prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_traffic_passes_total",
			Help: "Passes over counters that had something to do, by result (ok, error).",
		}, []string{"result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_traffic_step_seconds", Help: "Time of one step of a pass over counters.",
			Buckets: []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"step"}),
		minutes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_traffic_minutes_total", Help: "Minutes of the fleet that were computed, again and again while they fill.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.passes, m.seconds, m.minutes)
	}
	return m
}

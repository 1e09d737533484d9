package load

import "github.com/prometheus/client_golang/prometheus"

// metrics is what the hop counts: in, out, dropped and lag, by topic.
type metrics struct {
	records, rows, bytes, batches, dropped, errors, gaps *prometheus.CounterVec
	lag                                                  *prometheus.GaugeVec
	seconds                                              *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_load_" + name, Help: help}, labels)
	}
	m := &metrics{
		records: counter("records_total", "Records read from Kafka.", "topic"),
		rows:    counter("rows_total", "Rows stored in ClickHouse.", "topic"),
		bytes:   counter("bytes_total", "Bytes of the records stored.", "topic"),
		batches: counter("batches_total", "Inserts that were stored.", "topic"),
		dropped: counter("dropped_total", "Records not stored, by reason; each is in the dead letters.", "topic", "reason"),
		errors:  counter("errors_total", "Inserts and reads that failed and were tried again, by what failed.", "topic", "what"),
		gaps:    counter("gap_records_total", "Records that Kafka deleted before they were stored: raise the topics' retention.", "topic"),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_load_lag_records", Help: "Records in Kafka that are not stored yet, of the partitions this loader owns.",
		}, []string{"topic", "partition"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_load_insert_seconds", Help: "Time of an insert.", Buckets: prometheus.ExponentialBuckets(.002, 2, 13),
		}, []string{"topic"}),
	}
	if reg != nil {
		reg.MustRegister(m.records, m.rows, m.bytes, m.batches, m.dropped, m.errors, m.gaps, m.lag, m.seconds)
	}
	return m
}

package load

import "github.com/prometheus/client_golang/prometheus"

// metrics is what the hop counts: in, out, dropped and lag, by topic.
type metrics struct {
	records, rows, bytes, batches, dropped, repeated, errors, gaps *prometheus.CounterVec
	lag                                                            *prometheus.GaugeVec
	seconds, delay                                                 *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_load_" + name, Help: help}, labels)
	}
	m := &metrics{
		records:  counter("records_total", "Records read from Kafka.", "topic"),
		rows:     counter("rows_total", "Rows stored in ClickHouse.", "topic"),
		bytes:    counter("bytes_total", "Bytes of the records stored.", "topic"),
		batches:  counter("batches_total", "Inserts that were stored.", "topic"),
		dropped:  counter("dropped_total", "Records not stored, by reason; each is in the dead letters.", "topic", "reason"),
		repeated: counter("repeated_rows_total", "Rows sent that were stored already: sent again after an error, or by an earlier owner.", "topic"),
		errors:   counter("errors_total", "Inserts and reads that failed and were tried again, by what failed.", "topic", "what"),
		gaps:     counter("gap_records_total", "Offsets that Kafka no longer had when they were to be read: raise the topics' retention.", "topic"),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_load_lag_records", Help: "Records in Kafka that are not stored yet, of the partitions this loader owns.",
		}, []string{"topic", "partition"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_load_insert_seconds", Help: "Time until a batch was stored, all tries together.", Buckets: prometheus.ExponentialBuckets(.002, 2, 13),
		}, []string{"topic"}),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_load_delay_seconds", Help: "Time from Kafka to ClickHouse of the oldest record of a batch.", Buckets: prometheus.ExponentialBuckets(.004, 2, 15),
		}, []string{"topic"}),
	}
	if reg != nil {
		reg.MustRegister(m.records, m.rows, m.bytes, m.batches, m.dropped, m.repeated, m.errors, m.gaps, m.lag, m.seconds, m.delay)
	}
	return m
}

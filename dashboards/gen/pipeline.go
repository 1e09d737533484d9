package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// pipeline is Spillway itself, hop by hop in the order of the flow.
func pipeline() *dashboard.DashboardBuilder {
	return board("spillway-pipeline", "Spillway / Pipeline", "Spillway itself, hop by hop: collect, Kafka, load, pass, query.").
		WithPanel(promLines("Collect: records", "Facts told by each source.", "cps",
			`sum by (source) (rate(spillway_collect_records_total[$__rate_interval]))`, "{{source}}")).
		WithPanel(promLines("Collect: age of the last good read", "Seconds; a source that fails grows old.", "s",
			`spillway_source_age_seconds`, "{{cluster}} {{source}}")).
		WithPanel(promLines("Kafka: records stored", "By topic.", "cps", `sum by (topic) (rate(spillway_kafka_records_total[$__rate_interval]))`, "{{topic}}")).
		WithPanel(promLines("Load: records waiting", "In Kafka and not stored yet.", "short", `sum by (topic) (spillway_load_lag_records)`, "{{topic}}")).
		WithPanel(promLines("Load: from Kafka to ClickHouse", "Of the oldest record of a batch, 99 of 100.", "s",
			`histogram_quantile(0.99, sum by (le, topic) (rate(spillway_load_delay_seconds_bucket[$__rate_interval])))`, "{{topic}}")).
		WithPanel(promLines("Pass: oldest record not judged", "Zero when all are.", "s", `spillway_enrich_lag_seconds`, "{{instance}}")).
		WithPanel(promLines("Pass: time of each step", "Mean.", "s",
			`sum by (step) (rate(spillway_enrich_step_seconds_sum[$__rate_interval])) / sum by (step) (rate(spillway_enrich_step_seconds_count[$__rate_interval]))`, "{{step}}")).
		WithPanel(promLines("Query: answers", "By operation, 99 of 100.", "s",
			`histogram_quantile(0.99, sum by (le, operation) (rate(spillway_query_request_seconds_bucket[$__rate_interval])))`, "{{operation}}")).
		WithPanel(promLines("Dropped", "Records refused by the contract or not to be decoded; each is in the dead letters.", "cps",
			`sum by (topic, reason) (rate(spillway_load_dropped_total[$__rate_interval]))`, "load {{topic}} {{reason}}",
			`sum by (topic, reason) (rate(spillway_kafka_dropped_total[$__rate_interval]))`, "kafka {{topic}} {{reason}}")).
		WithPanel(promLines("The process", "Memory and CPU.", "short", `process_resident_memory_bytes{job="spillway"}`, "bytes {{instance}}",
			`rate(process_cpu_seconds_total{job="spillway"}[$__rate_interval])`, "cores {{instance}}")).
		WithPanel(rows("Dead letters", "Of the time range, by kind.", `
SELECT topic, stage, reason, count() AS records, max(observed_at) AS newest, any(key) AS an_example
FROM dead_letters WHERE $__timeFilter(loaded_at) GROUP BY topic, stage, reason ORDER BY records DESC LIMIT 100`).Span(12)).
		WithPanel(lines("Rows loaded", "By raw table, as the table itself tells.", "short", `
SELECT time, raw, n FROM
(
SELECT $__timeInterval(loaded_at) AS time, 'placements' AS raw, count() AS n FROM placement_events WHERE $__timeFilter(loaded_at) AND @clusters GROUP BY time
UNION ALL SELECT $__timeInterval(loaded_at) AS time, 'memberships' AS raw, count() AS n FROM membership_events WHERE $__timeFilter(loaded_at) AND @clusters GROUP BY time
UNION ALL SELECT $__timeInterval(loaded_at) AS time, 'nodes' AS raw, count() AS n FROM node_events WHERE $__timeFilter(loaded_at) AND @clusters GROUP BY time
)
ORDER BY time`))
}

-- The newest report of each collector, and where each partition of their topic stands. Parameter: since.
SELECT cluster, source, argMax(good_at, observed_at) AS good_at, argMax(problem, observed_at) AS problem,
       argMax(interval_ms, observed_at) AS interval_ms, max(observed_at) AS reported_at, kafka_partition, max(kafka_offset) AS last_offset
FROM source_events
WHERE observed_at >= {since:DateTime64(3)}
GROUP BY cluster, source, kafka_partition

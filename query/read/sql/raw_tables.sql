-- When each raw table last took a row, answered from part metadata.
SELECT raw_table, row_count, loaded_at
FROM
(
    SELECT 'placement_events' AS raw_table, count() AS row_count, max(loaded_at) AS loaded_at FROM placement_events
    UNION ALL
    SELECT 'membership_events' AS raw_table, count() AS row_count, max(loaded_at) AS loaded_at FROM membership_events
    UNION ALL
    SELECT 'node_events' AS raw_table, count() AS row_count, max(loaded_at) AS loaded_at FROM node_events
    UNION ALL
    SELECT 'domain_events' AS raw_table, count() AS row_count, max(loaded_at) AS loaded_at FROM domain_events
    UNION ALL
    SELECT 'workload_events' AS raw_table, count() AS row_count, max(loaded_at) AS loaded_at FROM workload_events
    UNION ALL
    SELECT 'source_events' AS raw_table, count() AS row_count, max(loaded_at) AS loaded_at FROM source_events
    UNION ALL
    SELECT 'counters' AS raw_table, count() AS row_count, max(loaded_at) AS loaded_at FROM counters
    UNION ALL
    SELECT 'benchmark_events' AS raw_table, count() AS row_count, max(loaded_at) AS loaded_at FROM benchmark_events
    UNION ALL
    SELECT 'dead_letters' AS raw_table, count() AS row_count, max(loaded_at) AS loaded_at FROM dead_letters
)
ORDER BY raw_table

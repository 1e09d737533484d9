-- Raw rows that no pass has judged yet. loaded_at bounds the search: a pass that is further behind than that is reported
-- as such by its progress. Parameter: since.
SELECT raw_table, sum(behind) AS rows_behind, minIf(oldest, behind > 0) AS oldest_loaded_at
FROM
(
    SELECT t.raw_table AS raw_table, t.kafka_partition AS kafka_partition,
           countIf(t.kafka_offset >= p.next_offset) AS behind, minIf(t.loaded_at, t.kafka_offset >= p.next_offset) AS oldest
    FROM
    (
        SELECT 'placement_events' AS raw_table, kafka_partition, kafka_offset, loaded_at FROM placement_events WHERE loaded_at >= {since:DateTime64(3)}
        UNION ALL
        SELECT 'membership_events', kafka_partition, kafka_offset, loaded_at FROM membership_events WHERE loaded_at >= {since:DateTime64(3)}
        UNION ALL
        SELECT 'node_events', kafka_partition, kafka_offset, loaded_at FROM node_events WHERE loaded_at >= {since:DateTime64(3)}
    ) AS t
    LEFT JOIN
    (
        SELECT raw_table, kafka_partition, max(next_offset) AS next_offset
        FROM pass_progress
        GROUP BY raw_table, kafka_partition
    ) AS p ON p.raw_table = t.raw_table AND p.kafka_partition = t.kafka_partition
    GROUP BY raw_table, kafka_partition
)
GROUP BY raw_table
HAVING rows_behind > 0
ORDER BY raw_table

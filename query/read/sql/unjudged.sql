-- Raw rows that no pass has judged yet, by cluster. loaded_at bounds the search: since a time given, or since two hours
-- before the last pass where that was earlier, so that what the passes left when they stopped is found as long as they
-- stand still. Parameter: since.
WITH least({since:DateTime64(3)}, (SELECT fromUnixTimestamp64Micro(toInt64(max(version))) FROM pass_progress) - INTERVAL 2 HOUR) AS first
SELECT t.cluster AS cluster, t.raw_table AS raw_table, count() AS rows_behind, min(t.loaded_at) AS oldest_loaded_at
FROM
(
    SELECT 'placement_events' AS raw_table, cluster, kafka_partition, kafka_offset, loaded_at FROM placement_events WHERE loaded_at >= first
    UNION ALL
    SELECT 'membership_events', cluster, kafka_partition, kafka_offset, loaded_at FROM membership_events WHERE loaded_at >= first
    UNION ALL
    SELECT 'node_events', cluster, kafka_partition, kafka_offset, loaded_at FROM node_events WHERE loaded_at >= first
) AS t
LEFT JOIN
(
    SELECT raw_table, kafka_partition, max(next_offset) AS next_offset
    FROM pass_progress
    GROUP BY raw_table, kafka_partition
) AS p ON p.raw_table = t.raw_table AND p.kafka_partition = t.kafka_partition
WHERE t.kafka_offset >= p.next_offset
GROUP BY cluster, raw_table
ORDER BY raw_table, cluster

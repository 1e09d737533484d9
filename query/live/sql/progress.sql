-- How far the passes have folded each partition of each raw table.
SELECT raw_table, kafka_partition, max(next_offset) AS next_offset
FROM pass_progress
WHERE raw_table != ''
GROUP BY raw_table, kafka_partition

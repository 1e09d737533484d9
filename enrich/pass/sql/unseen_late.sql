-- Kafka partitions from which records of the sources in `wanted` were loaded lately, the newest of them older than a full
-- read: more are on their way. Parameters: cluster, from: since when that is lately, good: when the read was (Unix ms).
SELECT raw, kafka_partition
FROM
(
    SELECT 'placement_events' AS raw, kafka_partition, kafka_offset, observed_at
    FROM placement_events
    WHERE cluster = {cluster:String} AND source IN (SELECT source FROM wanted) AND loaded_at >= fromUnixTimestamp64Milli({from:Int64})
    UNION ALL
    SELECT 'node_events', kafka_partition, kafka_offset, observed_at
    FROM node_events
    WHERE cluster = {cluster:String} AND source IN (SELECT source FROM wanted) AND loaded_at >= fromUnixTimestamp64Milli({from:Int64})
    UNION ALL
    SELECT 'membership_events', kafka_partition, kafka_offset, observed_at
    FROM membership_events
    WHERE cluster = {cluster:String} AND source IN (SELECT source FROM wanted) AND loaded_at >= fromUnixTimestamp64Milli({from:Int64})
)
GROUP BY raw, kafka_partition
HAVING argMax(observed_at, kafka_offset) < fromUnixTimestamp64Milli({good:Int64})

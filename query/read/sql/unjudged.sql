-- Raw rows that no pass has judged yet, by cluster. loaded_at bounds the search: so many seconds before a moment, or before
-- the last pass where that was earlier, so that what the passes left when they stopped is found as long as they stand still.
-- Parameters: now, window (seconds).
WITH least({now:DateTime64(3)}, (SELECT fromUnixTimestamp64Micro(toInt64(max(version))) FROM pass_progress)) - toIntervalSecond({window:UInt32}) AS first,
    (SELECT mapFromArrays(groupArray(kafka_partition), groupArray(next))
     FROM (SELECT kafka_partition, max(next_offset) AS next FROM pass_progress WHERE raw_table = 'placement_events' GROUP BY kafka_partition)) AS placements,
    (SELECT mapFromArrays(groupArray(kafka_partition), groupArray(next))
     FROM (SELECT kafka_partition, max(next_offset) AS next FROM pass_progress WHERE raw_table = 'membership_events' GROUP BY kafka_partition)) AS memberships,
    (SELECT mapFromArrays(groupArray(kafka_partition), groupArray(next))
     FROM (SELECT kafka_partition, max(next_offset) AS next FROM pass_progress WHERE raw_table = 'node_events' GROUP BY kafka_partition)) AS nodes
SELECT 'placement_events' AS raw_table, cluster, count() AS rows_behind, min(loaded_at) AS oldest_loaded_at
FROM placement_events WHERE loaded_at >= first AND kafka_offset >= placements[kafka_partition] GROUP BY cluster
UNION ALL
SELECT 'membership_events', cluster, count(), min(loaded_at)
FROM membership_events WHERE loaded_at >= first AND kafka_offset >= memberships[kafka_partition] GROUP BY cluster
UNION ALL
SELECT 'node_events', cluster, count(), min(loaded_at)
FROM node_events WHERE loaded_at >= first AND kafka_offset >= nodes[kafka_partition] GROUP BY cluster

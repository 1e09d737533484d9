-- Nodes whose place a source has told, with the name of the topology inside the source, and has not told again since a
-- moment. Records are loaded after they were observed, but clocks differ: an hour covers that. Parameters: cluster, source,
-- since (Unix ms).
SELECT DISTINCT node, topology
FROM
(
    SELECT node, topology, valid_to, reason, is_deleted
    FROM membership_facts
    WHERE cluster = {cluster:String} AND source = {source:String}
    ORDER BY version DESC
    LIMIT 1 BY node, topology, valid_from
)
WHERE NOT is_deleted AND reason != 'removed' AND valid_to >= '2200-01-01' AND (node, topology) NOT IN
(
    SELECT node, topology
    FROM membership_events
    WHERE cluster = {cluster:String} AND source = {source:String} AND observed_at >= fromUnixTimestamp64Milli({since:Int64})
      AND loaded_at >= fromUnixTimestamp64Milli({since:Int64}) - INTERVAL 1 HOUR
)
ORDER BY node, topology

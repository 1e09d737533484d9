-- Nodes whose capacity a source has told, and has not told again since a moment. Records are loaded after they were
-- observed, but clocks differ: an hour covers that. Parameters: cluster, source, since (Unix ms).
SELECT DISTINCT node
FROM
(
    SELECT node, valid_to, removed, is_deleted
    FROM node_facts
    WHERE cluster = {cluster:String} AND source = {source:String}
    ORDER BY version DESC
    LIMIT 1 BY node, valid_from
)
WHERE NOT is_deleted AND NOT removed AND valid_to >= '2200-01-01' AND node NOT IN
(
    SELECT node
    FROM node_events
    WHERE cluster = {cluster:String} AND source = {source:String} AND observed_at >= fromUnixTimestamp64Milli({since:Int64})
      AND loaded_at >= fromUnixTimestamp64Milli({since:Int64}) - INTERVAL 1 HOUR
)
ORDER BY node

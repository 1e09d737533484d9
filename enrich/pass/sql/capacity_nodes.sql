-- What the nodes of a cluster were over a time: where they sit (home = 1) and what they offer (home = 0).
-- Parameters: cluster, first, last (Unix ms).
SELECT node, toUInt8(1) AS home, toUnixTimestamp64Milli(valid_from) AS since, toUnixTimestamp64Milli(valid_to) AS until,
       domain, reason, CAST(NULL AS Nullable(UInt16)) AS gpus_present, CAST(NULL AS Nullable(UInt16)) AS gpus_usable
FROM membership FINAL
WHERE cluster = {cluster:String} AND since <= {last:Int64} AND until > {first:Int64}
UNION ALL
SELECT node, 0, toUnixTimestamp64Milli(valid_from) AS since, toUnixTimestamp64Milli(valid_to) AS until,
       '', '', gpus_present, if(schedulable = 0, 0, gpus_usable)
FROM node_states FINAL
WHERE cluster = {cluster:String} AND since <= {last:Int64} AND until > {first:Int64}

-- Where the nodes of a cluster sit, of all time. Parameter: cluster.
SELECT node, toUnixTimestamp64Milli(valid_from) AS since, toUnixTimestamp64Milli(valid_to) AS until,
       domain, partition, levels, source, reason, generation
FROM membership FINAL
WHERE cluster = {cluster:String}
ORDER BY node, since

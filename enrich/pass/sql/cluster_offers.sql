-- What the nodes of a cluster offer, of all time; one that takes no jobs offers nothing. Parameter: cluster.
SELECT node, toUnixTimestamp64Milli(valid_from) AS since, toUnixTimestamp64Milli(valid_to) AS until,
       gpus_present, if(schedulable = 0, 0, gpus_usable) AS usable
FROM node_states FINAL
WHERE cluster = {cluster:String}
ORDER BY node, since

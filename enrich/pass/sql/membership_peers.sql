-- The nodes that any source puts into one of the domains in `wanted`, at any time after a moment. Withdrawn rows are
-- not left out: a node too many costs a little work, a node too few would be wrong. Parameters: cluster, after (Unix ms).
SELECT DISTINCT node
FROM membership_facts
WHERE cluster = {cluster:String} AND toUnixTimestamp64Milli(valid_to) > {after:Int64}
  AND (source, topology, domain) IN (SELECT source, topology, domain FROM wanted)

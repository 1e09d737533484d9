-- What each source says of the capacity of the nodes in `wanted`, after a moment. Parameters: cluster, after (Unix ms).
SELECT node, source, toUnixTimestamp64Milli(valid_from) AS since, toUnixTimestamp64Milli(valid_to) AS until,
       gpus_present, gpus_healthy, gpus_allocatable, schedulable, state_raw, reason, removed, revision, fingerprint
FROM
(
    SELECT *
    FROM node_facts
    WHERE cluster = {cluster:String} AND node IN (SELECT node FROM wanted)
    ORDER BY version DESC
    LIMIT 1 BY node, source, valid_from
)
WHERE is_deleted = 0 AND until > {after:Int64}
ORDER BY node, source, since

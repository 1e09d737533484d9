-- The capacity of the nodes in `wanted`, after a moment. Parameters: cluster, after (Unix ms).
SELECT node, toUnixTimestamp64Milli(valid_from) AS since, toUnixTimestamp64Milli(valid_to) AS until,
       gpus_present, gpus_usable, schedulable, state_raw, reason
FROM
(
    SELECT *
    FROM node_states
    WHERE cluster = {cluster:String} AND node IN (SELECT node FROM wanted)
    ORDER BY version DESC
    LIMIT 1 BY node, valid_from
)
WHERE is_deleted = 0 AND until > {after:Int64}
ORDER BY node, since

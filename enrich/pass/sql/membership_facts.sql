-- What each source says of the nodes in `wanted`, after a moment. Parameters: cluster, after (Unix ms).
SELECT node, source, topology, toUnixTimestamp64Milli(valid_from) AS since, toUnixTimestamp64Milli(valid_to) AS until,
       domain, partition, levels, reason, revision, fingerprint
FROM
(
    SELECT *
    FROM membership_facts
    WHERE cluster = {cluster:String} AND node IN (SELECT node FROM wanted)
    ORDER BY version DESC
    LIMIT 1 BY node, source, topology, valid_from
)
WHERE is_deleted = 0 AND until > {after:Int64}
ORDER BY node, source, topology, since

-- The disagreements on the nodes in `wanted`, after a moment. Parameters: cluster, after (Unix ms).
SELECT node, source_a, source_b, toUnixTimestamp64Milli(valid_from) AS since, toUnixTimestamp64Milli(valid_to) AS until,
       domain_a, domain_b, detail
FROM
(
    SELECT *
    FROM topology_conflicts
    WHERE cluster = {cluster:String} AND node IN (SELECT node FROM wanted)
    ORDER BY version DESC
    LIMIT 1 BY node, source_a, source_b, valid_from
)
WHERE is_deleted = 0 AND until > {after:Int64}
ORDER BY node, source_a, source_b, since

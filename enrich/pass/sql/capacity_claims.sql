-- The GPUs that placements of a cluster held over a time, one row a node; gpus -1 = how many is not known. A job is
-- looked for in all its versions, since an old one may still say what a newer one has ended.
-- Parameters: cluster, first, last (Unix ms).
SELECT node, ifNull(toInt32(held), -1) AS gpus, probe, ifNull(toUnixTimestamp64Milli(expected_end), 0) AS expected, toUnixTimestamp64Milli(valid_from) AS since, toUnixTimestamp64Milli(valid_to) AS until
FROM
(
    SELECT valid_from, valid_to, nodes, node_gpus, probe, expected_end, is_deleted
    FROM placements
    WHERE cluster = {cluster:String} AND job_id IN
    (
        SELECT job_id
        FROM placements
        WHERE cluster = {cluster:String} AND valid_from <= fromUnixTimestamp64Milli({last:Int64}, 'UTC')
          AND valid_to > fromUnixTimestamp64Milli({first:Int64}, 'UTC')
    )
    ORDER BY version DESC
    LIMIT 1 BY job_id, attempt, seq
)
ARRAY JOIN nodes AS node, node_gpus AS held
WHERE is_deleted = 0 AND since <= {last:Int64} AND until > {first:Int64} AND until > since AND (held IS NULL OR held > 0)

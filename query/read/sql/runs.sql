-- Every real run that ended within a time, in order of submission. Parameters: cluster ('' = any but probe_cluster), since, until, limit.
SELECT cluster, job_id, number, user, name, service_class, submit, start, end, gpus, expected_end
FROM
(
    SELECT cluster, job_id, attempt, number, user, name, service_class, ifNull(submit, start) AS submit, start, end,
           ifNull(gpus, requested_gpus) AS gpus, expected_end, probe, is_deleted
    FROM attempts
    WHERE start >= {since:DateTime64(3)} AND start < {until:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
    ORDER BY version DESC
    LIMIT 1 BY cluster, job_id, attempt
)
WHERE is_deleted = 0 AND probe = 0 AND end > start AND gpus > 0
ORDER BY submit, cluster, job_id
LIMIT {limit:UInt64}

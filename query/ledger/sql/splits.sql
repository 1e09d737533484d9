-- What splits did to jobs: completed runs in several domains, of users' jobs of one name that also ran in one domain, three
-- times at least. slowdown is the run time over the median of those; gbps the mean NVLink traffic of one of their GPUs in one
-- direction, 0 where it was not measured. Parameters: cluster ('' = any but probe_cluster), since.
WITH runs AS
(
    SELECT cluster, job_id, attempt, user, name, requested_gpus, assumeNotNull(dateDiff('second', start, end)) AS seconds
    FROM
    (
        SELECT *
        FROM attempts
        WHERE start >= {since:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0 AND state = 'completed' AND start IS NOT NULL AND end IS NOT NULL AND user != '' AND name != ''
),
judged AS
(
    SELECT cluster, job_id, attempt, domain_gpus, domains_used, domains_min, unknown_nodes
    FROM
    (
        SELECT cluster, job_id, attempt, seq, domain_gpus, domains_used, domains_min, unknown_nodes, is_deleted
        FROM verdicts
        WHERE (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM runs)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0
    ORDER BY seq
    LIMIT 1 BY cluster, job_id, attempt
),
placed AS
(
    SELECT r.cluster AS cluster, r.job_id AS job_id, r.attempt AS attempt, r.user AS user, r.name AS name, r.requested_gpus AS gpus,
           r.seconds AS seconds, arrayMap(n -> toInt32(assumeNotNull(n)), j.domain_gpus) AS parts, has(j.domain_gpus, NULL) AS untold, j.domains_used AS used, j.domains_min AS least
    FROM runs AS r
    INNER JOIN judged AS j ON j.cluster = r.cluster AND j.job_id = r.job_id AND j.attempt = r.attempt
    WHERE j.unknown_nodes = 0 -- else domains_used is a lower bound
),
moved AS
(
    SELECT cluster, job_id, attempt, sum(nvlink_bytes) AS bytes, sum(nvlink_gpu_seconds) AS gpu_seconds
    FROM
    (
        SELECT cluster, job_id, attempt, seq, minute, nvlink_bytes, nvlink_gpu_seconds, is_deleted
        FROM job_traffic
        WHERE minute >= toDateTime({since:DateTime64(3)}) AND (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM placed WHERE used = 1)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq, minute
    )
    WHERE is_deleted = 0
    GROUP BY cluster, job_id, attempt
),
whole AS
(
    SELECT p.cluster AS cluster, p.user AS user, p.name AS name, p.gpus AS gpus, quantileExact(0.5)(p.seconds) AS usual,
           if(sum(m.gpu_seconds) > 0, toFloat64(ifNull(sum(m.bytes), 0)) / sum(m.gpu_seconds) / 2e9, 0) AS gbps
    FROM placed AS p
    LEFT JOIN moved AS m ON m.cluster = p.cluster AND m.job_id = p.job_id AND m.attempt = p.attempt
    WHERE p.used = 1
    GROUP BY cluster, user, name, gpus
    HAVING count() >= 3 AND usual > 0
)
SELECT p.cluster AS cluster, p.parts AS parts, toInt32(assumeNotNull(p.least)) AS least, w.gbps AS gbps, toFloat64(p.seconds) / toFloat64(w.usual) AS slowdown
FROM placed AS p
INNER JOIN whole AS w ON w.cluster = p.cluster AND w.user = p.user AND w.name = p.name AND w.gpus = p.gpus
WHERE p.used > 1 AND p.least >= 1 AND NOT p.untold
ORDER BY cluster, slowdown
LIMIT 10000

-- How gangs fared in each queue: runs of more than one node that began within a time. Parameters: cluster ('' = any but probe_cluster), since.
WITH runs AS
(
    SELECT cluster, job_id, attempt, queue, dateDiff('millisecond', ifNull(submit, start), start) / 1000 AS waited
    FROM
    (
        SELECT *
        FROM attempts
        WHERE start >= {since:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0 AND probe = 0
),
judged AS
(
    SELECT cluster, job_id, attempt, toString(outcome) AS outcome, node_count, excess_domains, domains_min
    FROM
    (
        SELECT cluster, job_id, attempt, seq, outcome, node_count, excess_domains, domains_min, is_deleted
        FROM verdicts
        WHERE seq = 0 AND (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM runs)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND node_count > 1
)
SELECT r.cluster AS cluster, r.queue AS queue, count() AS gangs, countIf(v.outcome = 'spill') AS spilled,
       countIf(v.outcome = 'unknown') AS unknown, avg(r.waited) AS mean_wait_seconds
FROM runs AS r
INNER JOIN judged AS v ON v.cluster = r.cluster AND v.job_id = r.job_id AND v.attempt = r.attempt
GROUP BY cluster, queue
ORDER BY cluster, queue

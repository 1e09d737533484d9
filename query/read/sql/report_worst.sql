-- The spilled placements of a time that held most GPU-hours. Parameters: cluster ('' = any but probe_cluster), since, until, limit.
WITH newest AS
(
    SELECT cluster, job_id, attempt, seq, cause, gpus, domains_used, domains_min, unknown_nodes,
           gpus * (toUnixTimestamp64Milli(least(valid_to, {until:DateTime64(3)}))
                   - toUnixTimestamp64Milli(greatest(valid_from, {since:DateTime64(3)}))) / 3600000 AS gpu_hours
    FROM
    (
        SELECT *
        FROM verdicts
        WHERE (cluster, job_id, attempt, seq) IN
        (
            SELECT cluster, job_id, attempt, seq
            FROM verdicts
            PREWHERE outcome = 'spill'
            WHERE valid_from < {until:DateTime64(3)} AND valid_to > {since:DateTime64(3)}
              AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        )
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND outcome = 'spill'
      AND valid_from < {until:DateTime64(3)} AND valid_to > {since:DateTime64(3)}
),
runs AS
(
    SELECT cluster, job_id, attempt, number, name, user, account, probe
    FROM
    (
        SELECT *
        FROM attempts
        WHERE (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM newest)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0
)
SELECT v.cluster AS cluster, v.job_id AS job_id, r.number AS number, r.name AS name, r.user AS user, r.account AS account,
       v.cause AS cause, v.gpus AS gpus, v.domains_used AS domains_used, v.domains_min AS domains_min,
       v.gpu_hours AS gpu_hours
FROM newest AS v
INNER JOIN runs AS r ON r.cluster = v.cluster AND r.job_id = v.job_id AND r.attempt = v.attempt
WHERE r.probe = 0
ORDER BY gpu_hours DESC NULLS LAST, cluster, job_id, number
LIMIT {limit:UInt32}

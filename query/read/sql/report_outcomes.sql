-- GPU-hours of a time by account, outcome and cause. For as long as the scale-out traffic of a spilled placement was
-- measured, its rate a GPU and direction against the link speeds bounds what it lost: nothing, if all of it was hidden
-- behind the computing, up to the time the bytes took on the scale-out links less the time they would have taken on NVLink.
-- Parameters: cluster ('' = any but probe_cluster), since, until, domain_gb_s, scale_out_gb_s.
WITH newest AS
(
    SELECT cluster, job_id, attempt, seq, outcome, cause, gpus,
           (toUnixTimestamp64Milli(least(valid_to, {until:DateTime64(3)}))
            - toUnixTimestamp64Milli(greatest(valid_from, {since:DateTime64(3)}))) / 3600000 AS hours
    FROM
    (
        SELECT cluster, job_id, attempt, seq, valid_from, valid_to, outcome, cause, gpus, is_deleted
        FROM verdicts
        WHERE (cluster, job_id, attempt, seq) IN
        (
            SELECT cluster, job_id, attempt, seq
            FROM verdicts
            WHERE valid_from < {until:DateTime64(3)} AND valid_to > {since:DateTime64(3)}
              AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        )
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND valid_from < {until:DateTime64(3)} AND valid_to > {since:DateTime64(3)}
),
runs AS
(
    SELECT cluster, job_id, attempt, account, probe
    FROM
    (
        SELECT cluster, job_id, attempt, account, probe, is_deleted
        FROM attempts
        WHERE (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM newest)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0
),
measured AS
(
    SELECT cluster, job_id, attempt, seq, seconds / 3600 AS hours,
           least(1, scale_out_bytes_per_second / 2e9 / {scale_out_gb_s:Float64})
           * (1 - {scale_out_gb_s:Float64} / {domain_gb_s:Float64}) AS most_lost
    FROM
    (
        SELECT cluster, job_id, attempt, seq, seconds, scale_out_bytes_per_second, evidence, is_deleted
        FROM traffic_evidence
        WHERE (cluster, job_id, attempt, seq) IN (SELECT cluster, job_id, attempt, seq FROM newest WHERE outcome = 'spill')
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND evidence != 'unknown' AND scale_out_bytes_per_second IS NOT NULL
)
SELECT v.cluster AS cluster, r.account AS account, toString(v.outcome) AS outcome, v.cause AS cause, count() AS placements,
       countIf(v.gpus IS NULL) AS unsized, ifNull(sum(v.gpus * v.hours), 0) AS gpu_hours,
       ifNull(sum(v.gpus * (v.hours - least(v.hours, ifNull(m.hours, 0)))), 0) AS unmeasured_gpu_hours,
       countIf(m.most_lost IS NOT NULL) AS measured, sum(v.gpus * least(v.hours, m.hours) * m.most_lost) AS lost_most
FROM newest AS v
INNER JOIN runs AS r ON r.cluster = v.cluster AND r.job_id = v.job_id AND r.attempt = v.attempt
LEFT JOIN measured AS m ON m.cluster = v.cluster AND m.job_id = v.job_id AND m.attempt = v.attempt AND m.seq = v.seq
WHERE r.probe = 0
GROUP BY v.cluster, r.account, v.outcome, v.cause
ORDER BY cluster, account, outcome, cause
SETTINGS join_use_nulls = 1

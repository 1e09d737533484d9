-- The running spills of all clusters.
WITH running AS (SELECT cluster, job_id, attempt, seq FROM verdicts WHERE valid_to = toDateTime64('2200-01-01', 3, 'UTC') AND outcome = 'spill')
SELECT v.cluster, v.job_id, a.service_class, v.cause, ifNull(toInt64(v.excess_domains), -1)
FROM
(
    SELECT *
    FROM verdicts
    WHERE (cluster, job_id) IN (SELECT cluster, job_id FROM running) AND (cluster, job_id, attempt, seq) IN (SELECT * FROM running)
    ORDER BY version DESC
    LIMIT 1 BY cluster, job_id, attempt, seq
) AS v
LEFT JOIN
(
    SELECT cluster, job_id, attempt, service_class
    FROM attempts
    WHERE (cluster, job_id) IN (SELECT cluster, job_id FROM running)
    ORDER BY version DESC
    LIMIT 1 BY cluster, job_id, attempt
) AS a ON v.cluster = a.cluster AND v.job_id = a.job_id AND v.attempt = a.attempt
WHERE NOT v.is_deleted AND v.outcome = 'spill' AND v.valid_to = toDateTime64('2200-01-01', 3, 'UTC')

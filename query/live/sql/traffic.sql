-- Mean NVLink traffic of one GPU in one direction, in GB/s, of each user's jobs of one name while they were in one domain.
-- The counters tell both directions together. Parameters: since, open: the moment.
SELECT r.cluster AS cluster, r.user AS user, r.name AS name, sum(t.nvlink_bytes) / sum(t.nvlink_gpu_seconds) / 2e9 AS gbps
FROM
(
    SELECT cluster, job_id, attempt, seq, nvlink_bytes, nvlink_gpu_seconds, is_deleted
    FROM job_traffic
    WHERE minute >= toDateTime({since:DateTime64(3)}) AND minute <= {open:DateTime64(3)}
    ORDER BY version DESC
    LIMIT 1 BY cluster, job_id, attempt, seq, minute
) AS t
INNER JOIN
(
    SELECT cluster, job_id, attempt, seq, outcome, is_deleted
    FROM verdicts
    WHERE valid_to >= {since:DateTime64(3)}
    ORDER BY version DESC
    LIMIT 1 BY cluster, job_id, attempt, seq
) AS v ON v.cluster = t.cluster AND v.job_id = t.job_id AND v.attempt = t.attempt AND v.seq = t.seq
INNER JOIN
(
    SELECT cluster, job_id, attempt, user, name
    FROM attempts
    WHERE user != '' AND name != '' AND (cluster, job_id, attempt) IN
    (
        SELECT DISTINCT cluster, job_id, attempt FROM job_traffic WHERE minute >= toDateTime({since:DateTime64(3)})
    )
    ORDER BY version DESC
    LIMIT 1 BY cluster, job_id, attempt
) AS r ON r.cluster = t.cluster AND r.job_id = t.job_id AND r.attempt = t.attempt
WHERE t.is_deleted = 0 AND v.is_deleted = 0 AND v.outcome IN ('one_partition', 'one_domain') AND t.nvlink_bytes IS NOT NULL
GROUP BY cluster, user, name
HAVING sum(t.nvlink_gpu_seconds) >= 600

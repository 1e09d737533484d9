-- How many running attempts there are of each kind of evidence.
WITH held AS
(
    SELECT cluster, job_id, attempt, seq
    FROM traffic_evidence
    WHERE valid_to = toDateTime64('2200-01-01', 3, 'UTC')
)
SELECT e.cluster AS cluster, ifNull(a.service_class, '') AS service_class, toString(e.evidence) AS evidence, count()
FROM
(
    SELECT *
    FROM traffic_evidence
    WHERE (cluster, job_id) IN (SELECT cluster, job_id FROM held) AND (cluster, job_id, attempt, seq) IN (SELECT * FROM held)
    ORDER BY version DESC
    LIMIT 1 BY cluster, job_id, attempt, seq
) AS e
LEFT JOIN
(
    SELECT cluster, job_id, attempt, service_class
    FROM attempts
    WHERE (cluster, job_id) IN (SELECT cluster, job_id FROM held)
    ORDER BY version DESC
    LIMIT 1 BY cluster, job_id, attempt
) AS a ON e.cluster = a.cluster AND e.job_id = a.job_id AND e.attempt = a.attempt
WHERE e.is_deleted = 0 AND e.valid_to = toDateTime64('2200-01-01', 3, 'UTC')
GROUP BY cluster, service_class, evidence

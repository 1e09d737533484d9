-- Placements that hold GPUs now, counted by what their traffic says. That they do is told by the placement: its evidence may be
-- older. Parameters: now, probe_cluster, measured_since (of evidence_now.sql).
WITH
{evidence_now},
told AS
(
    SELECT cluster, job_id, attempt, seq
    FROM traffic_evidence
    WHERE cluster != {probe_cluster:String} AND valid_from <= {now:DateTime64(3)} AND valid_to > {now:DateTime64(3)}
),
held AS
(
    SELECT cluster, job_id, attempt, seq
    FROM
    (
        SELECT cluster, job_id, attempt, seq, valid_from, valid_to, is_deleted
        FROM placements
        WHERE (cluster, job_id) IN (SELECT cluster, job_id FROM told) AND (cluster, job_id, attempt, seq) IN (SELECT * FROM told)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND valid_from <= {now:DateTime64(3)} AND valid_to > {now:DateTime64(3)}
),
runs AS
(
    SELECT cluster, job_id, attempt, service_class
    FROM attempts
    WHERE (cluster, job_id) IN (SELECT cluster, job_id FROM held)
    ORDER BY version DESC
    LIMIT 1 BY cluster, job_id, attempt
)
SELECT cluster, service_class, evidence_now(1, weighed, last_minute) AS evidence, count() AS placements
FROM
(
    SELECT cluster, job_id, attempt, evidence AS weighed, last_minute, is_deleted
    FROM traffic_evidence
    WHERE (cluster, job_id) IN (SELECT cluster, job_id FROM held) AND (cluster, job_id, attempt, seq) IN (SELECT * FROM held)
    ORDER BY version DESC
    LIMIT 1 BY cluster, job_id, attempt, seq
) AS said
LEFT JOIN runs USING (cluster, job_id, attempt)
WHERE is_deleted = 0
GROUP BY cluster, service_class, evidence
ORDER BY cluster, service_class, evidence

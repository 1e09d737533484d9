-- Placements that hold GPUs now, counted by what a router of alerts needs to know. Probe jobs are left out.
-- Parameter: now.
WITH held AS
(
    SELECT *
    FROM
    (
        SELECT cluster, job_id, attempt, seq, valid_from, valid_to, outcome, outcome_reason, cause, gpus, version, is_deleted
        FROM verdicts
        WHERE (cluster, job_id, attempt, seq) IN
        (
            SELECT cluster, job_id, attempt, seq
            FROM verdicts
            WHERE valid_from <= {now:DateTime64(3)} AND valid_to > {now:DateTime64(3)}
        )
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND valid_from <= {now:DateTime64(3)} AND valid_to > {now:DateTime64(3)}
),
runs AS
(
    SELECT *
    FROM
    (
        SELECT cluster, job_id, attempt, queue, account, service_class, probe, intent_level, segment_nodes, is_deleted
        FROM attempts
        WHERE (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM held)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0 AND probe = 0
)
SELECT cluster, queue, account, service_class, toString(outcome) AS outcome, cause,
       outcome = 'spill' AND outcome_reason = 'intent' AS broken,
       if(broken, multiIf(intent_level != '', intent_level, segment_nodes > 0, 'segment', 'other'), '') AS level,
       count() AS placements, sum(ifNull(gpus, 0)) AS gpus
FROM held
INNER JOIN runs USING (cluster, job_id, attempt)
GROUP BY cluster, queue, account, service_class, outcome, cause, broken, level
ORDER BY cluster, queue, account, service_class, outcome, cause, level

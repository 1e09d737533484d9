-- What became of what was asked, by queue: placements that began in [since, until), by queue and by what they asked. kept: in
-- as few domains as its size allows and nothing asked was broken. Parameters: cluster ('' = any but probe_cluster), since, until.
WITH newest AS
(
    SELECT cluster, job_id, attempt, outcome, excess_domains, domains_used, intent, intent_met
    FROM
    (
        SELECT cluster, job_id, attempt, seq, valid_from, outcome, excess_domains, domains_used, intent, intent_met, is_deleted
        FROM verdicts
        WHERE (cluster, job_id, attempt, seq) IN
        (
            SELECT cluster, job_id, attempt, seq
            FROM verdicts
            WHERE valid_from >= {since:DateTime64(3)} AND valid_from < {until:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        )
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND valid_from >= {since:DateTime64(3)} AND valid_from < {until:DateTime64(3)}
),
runs AS
(
    SELECT cluster, job_id, attempt, queue, intent_mode
    FROM
    (
        SELECT cluster, job_id, attempt, queue, intent_mode, probe, is_deleted
        FROM attempts
        WHERE (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM newest)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0 AND probe = 0
)
SELECT v.cluster AS cluster, r.queue AS queue, if(startsWith(v.intent, 'segment='), 'segment', if(v.intent = '', 'none', v.intent)) AS asked, count() AS placements,
       countIf(v.outcome = 'unknown') AS unknown, countIf(v.outcome != 'unknown' AND v.outcome != 'spill') AS kept, countIf(v.outcome = 'spill') AS wider,
       countIf(v.intent_met = 0) AS broken, avgIf(v.excess_domains, v.outcome = 'spill') AS excess,
       countIf(v.outcome != 'unknown' AND v.outcome != 'spill' AND v.domains_used > 1) AS spread_by_size
FROM newest AS v
INNER JOIN runs AS r ON r.cluster = v.cluster AND r.job_id = v.job_id AND r.attempt = v.attempt
GROUP BY cluster, queue, asked
ORDER BY cluster, queue, asked
LIMIT 1000

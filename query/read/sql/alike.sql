-- Runs of the same user and name in a cluster that started in [since, before), newest first, each with the newest word on its
-- last placement. The run itself (attempt) is left out. Name, user and start are held against the newest version: a job may
-- be renamed while it waits. Parameters: cluster, user, name, job_id, attempt, since, before, limit.
WITH alike AS
(
    SELECT cluster, job_id, attempt, number, state, submit, start, end, gpus
    FROM
    (
        SELECT cluster, job_id, attempt, number, user, name, state, submit, start, end, gpus, is_deleted
        FROM attempts
        WHERE cluster = {cluster:String} AND (job_id, attempt) IN
        (
            SELECT job_id, attempt
            FROM attempts
            WHERE cluster = {cluster:String} AND user = {user:String} AND name = {name:String}
              AND start >= {since:DateTime64(3)} AND start < {before:DateTime64(3)}
        )
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0 AND user = {user:String} AND name = {name:String} AND start >= {since:DateTime64(3)} AND start < {before:DateTime64(3)}
      AND (job_id, attempt) != ({job_id:String}, {attempt:String})
    ORDER BY start DESC, job_id, attempt
    LIMIT {limit:UInt64}
),
judged AS
(
    SELECT job_id, attempt, outcome, cause, gpus, unknown_nodes, domains_used, domains_min, excess_domains, balance, seq
    FROM
    (
        SELECT job_id, attempt, seq, outcome, cause, gpus, unknown_nodes, domains_used, domains_min, excess_domains, balance, is_deleted
        FROM verdicts
        WHERE cluster = {cluster:String} AND (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM alike)
        ORDER BY version DESC
        LIMIT 1 BY job_id, attempt, seq
    )
    WHERE is_deleted = 0
    ORDER BY seq DESC
    LIMIT 1 BY job_id, attempt
),
told AS
(
    SELECT job_id, attempt, seq, nvlink_bytes_per_second, scale_out_bytes_per_second
    FROM
    (
        SELECT job_id, attempt, seq, nvlink_bytes_per_second, scale_out_bytes_per_second, is_deleted
        FROM traffic_evidence
        WHERE cluster = {cluster:String} AND (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM alike)
        ORDER BY version DESC
        LIMIT 1 BY job_id, attempt, seq
    )
    WHERE is_deleted = 0
)
SELECT a.job_id AS job_id, a.number AS number, a.state AS state, a.submit AS submit, a.start AS start, a.end AS end, ifNull(v.gpus, a.gpus) AS gpus,
       toString(v.outcome) AS outcome, v.cause AS cause, v.unknown_nodes AS unknown_nodes, v.domains_used AS domains_used, v.domains_min AS domains_min, v.excess_domains AS excess_domains,
       v.balance AS balance, e.nvlink_bytes_per_second AS nvlink, e.scale_out_bytes_per_second AS scale_out
FROM alike AS a
LEFT JOIN judged AS v ON v.job_id = a.job_id AND v.attempt = a.attempt
LEFT JOIN told AS e ON e.job_id = v.job_id AND e.attempt = v.attempt AND e.seq = v.seq
ORDER BY start DESC, job_id, number
SETTINGS join_use_nulls = 1

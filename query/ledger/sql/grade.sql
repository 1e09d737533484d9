-- What became of each answer, by cluster. An answer is joined with its job by the id that the caller or its feedback told;
-- without one by user, name and GPUs, when a job was submitted within two minutes of it. The last answer before the start
-- counts. A question about a cluster that is not there is nobody's. Parameters: cluster ('' = any but probe_cluster), since.
WITH told AS
(
    SELECT cluster, advice_id, argMaxIf(job_id, told_at, job_id != '') AS job, argMaxIf(slowdown, told_at, slowdown IS NOT NULL) AS slowdown
    FROM advice_feedback
    WHERE told_at >= {since:DateTime64(3)}
    GROUP BY cluster, advice_id
),
asked AS
(
    SELECT l.cluster AS cluster, l.advice_id AS advice_id, l.asked_at AS asked_at, l.user AS user, l.job_name AS job_name, l.gpus AS gpus,
           l.code AS code, l.wait_s AS wait_s, arraySort(l.domains) AS domains, l.slowdown_low AS low, l.slowdown_high AS high,
           if(t.job != '', t.job, l.job_id) AS job, t.slowdown AS slowdown
    FROM advice_ledger AS l
    LEFT JOIN told AS t ON t.cluster = l.cluster AND t.advice_id = l.advice_id
    WHERE l.asked_at >= {since:DateTime64(3)} AND l.code != 'unknown_cluster' AND ({cluster:String} = '' AND l.cluster != {probe_cluster:String} OR l.cluster = {cluster:String})
),
runs AS
(
    SELECT cluster, job_id, attempt, user, name, requested_gpus, submit, start, end, state
    FROM
    (
        SELECT *
        FROM attempts
        WHERE start >= {since:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0 AND start IS NOT NULL
),
judged AS
(
    SELECT cluster, job_id, attempt, arraySort(domains) AS domains, outcome, if(unknown_nodes = 0, domains_used, NULL) AS used -- else a lower bound
    FROM
    (
        SELECT cluster, job_id, attempt, seq, domains, toString(outcome) AS outcome, domains_used, unknown_nodes, is_deleted
        FROM verdicts
        WHERE seq = 0 AND (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM runs)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0
),
placed AS
(
    SELECT r.cluster AS cluster, r.job_id AS job_id, r.user AS user, r.name AS name, r.requested_gpus AS requested_gpus, r.submit AS submit,
           r.start AS start, v.domains AS domains, v.outcome AS outcome, v.used AS used,
           if(r.end IS NULL OR r.state != 'completed', NULL, dateDiff('second', r.start, r.end)) AS seconds
    FROM runs AS r
    INNER JOIN judged AS v ON v.cluster = r.cluster AND v.job_id = r.job_id AND v.attempt = r.attempt
),
whole AS
(
    SELECT cluster, user, name, requested_gpus AS gpus, quantileExact(0.5)(seconds) AS usual
    FROM placed
    WHERE seconds IS NOT NULL AND used = 1 AND name != ''
    GROUP BY cluster, user, name, gpus
    HAVING count() >= 3
),
matched AS
(
    SELECT a.cluster AS cluster, a.advice_id AS advice_id, a.asked_at AS asked_at, a.wait_s AS wait_s, a.domains AS advised, a.low AS low,
           a.high AS high, a.slowdown AS slowdown, p.job_id AS job_id, p.user AS user, p.name AS name, p.requested_gpus AS gpus,
           p.start AS start, p.domains AS domains, p.outcome AS outcome, p.used AS used, p.seconds AS seconds
    FROM asked AS a
    INNER JOIN placed AS p ON p.cluster = a.cluster AND p.job_id = a.job
    WHERE a.job != '' AND a.code = '' AND p.start >= a.asked_at - INTERVAL 1 SECOND
    UNION ALL
    SELECT a.cluster, a.advice_id, a.asked_at, a.wait_s, a.domains, a.low, a.high, a.slowdown, p.job_id, p.user, p.name, p.requested_gpus,
           p.start, p.domains, p.outcome, p.used, p.seconds
    FROM asked AS a
    INNER JOIN placed AS p ON p.cluster = a.cluster AND p.user = a.user AND p.name = a.job_name
    WHERE a.job = '' AND a.code = '' AND a.user != '' AND a.job_name != '' AND p.requested_gpus = a.gpus
      AND p.submit BETWEEN a.asked_at - INTERVAL 2 MINUTE AND a.asked_at + INTERVAL 2 MINUTE AND p.start >= a.asked_at - INTERVAL 1 SECOND
),
last AS
(
    SELECT *
    FROM (SELECT * FROM matched ORDER BY start, asked_at DESC LIMIT 1 BY cluster, advice_id)
    ORDER BY asked_at DESC
    LIMIT 1 BY cluster, job_id
),
graded AS
(
    SELECT l.cluster AS cluster, l.used IS NOT NULL AND l.domains = l.advised AS as_advised, l.outcome = 'spill' AS spills,
           l.wait_s IS NOT NULL AND abs(dateDiff('second', l.asked_at + toIntervalSecond(l.wait_s), l.start)) <= 60 AS in_time,
           if(l.used > 1 AND l.domains = l.advised AND l.low IS NOT NULL,
              coalesce(l.slowdown, toFloat32(l.seconds / nullIf(w.usual, 0))), NULL) AS ratio,
           ratio BETWEEN l.low - 0.02 AND l.high + 0.02 AS held
    FROM last AS l
    LEFT JOIN whole AS w ON w.cluster = l.cluster AND w.user = l.user AND w.name = l.name AND w.gpus = l.gpus
),
outcomes AS
(
    SELECT cluster, count() AS started, countIf(as_advised) AS followed, countIf(spills) AS spilled, countIf(as_advised AND spills) AS followed_spilled,
           countIf(in_time) AS on_time, countIf(ratio IS NOT NULL) AS measured, countIf(ratio IS NOT NULL AND held) AS inside
    FROM graded
    GROUP BY cluster
)
SELECT s.cluster AS cluster, s.answered AS answered, s.refused AS refused, toUInt64(ifNull(o.started, 0)) AS started,
       toUInt64(ifNull(o.followed, 0)) AS followed, toUInt64(ifNull(o.spilled, 0)) AS spilled,
       toUInt64(ifNull(o.followed_spilled, 0)) AS followed_spilled, toUInt64(ifNull(o.on_time, 0)) AS on_time,
       toUInt64(ifNull(o.measured, 0)) AS measured, toUInt64(ifNull(o.inside, 0)) AS inside
FROM (SELECT cluster, countIf(code = '') AS answered, countIf(code != '') AS refused FROM asked GROUP BY cluster) AS s
LEFT JOIN outcomes AS o ON o.cluster = s.cluster
ORDER BY cluster
SETTINGS join_use_nulls = 1

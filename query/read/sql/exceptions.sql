-- Running jobs whose life-cycle facts do not fit together, one row a job and kind: the most that are wanted of each cluster and
-- kind, the longest first, and how many there are of it. Probe jobs are left out. Nodes are told
-- as of now, except the domain of a node when the placement began, which is looked up as of then.
-- Each CTE is worked out once, and the sides of joins are narrowed first: this is asked every few seconds.
-- Parameters: now, since (vanished jobs from then on), completing_s, settle_s, overrun_s, most.
WITH held AS MATERIALIZED
(
    SELECT cluster, job_id, attempt, seq, valid_from, nodes, node_gpus, gpus
    FROM
    (
        SELECT cluster, job_id, attempt, seq, valid_from, valid_to, nodes, node_gpus, gpus, probe, is_deleted
        FROM placements
        WHERE (cluster, job_id, attempt, seq) IN
        (
            SELECT cluster, job_id, attempt, seq
            FROM placements
            WHERE valid_from <= {now:DateTime64(3)} AND valid_to > {now:DateTime64(3)}
        )
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND probe = 0 AND valid_from <= {now:DateTime64(3)} AND valid_to > {now:DateTime64(3)}
),
vanished AS
(
    SELECT cluster, job_id, attempt
    FROM attempts
    WHERE state = 'vanished' AND end >= {since:DateTime64(3)}
),
runs AS MATERIALIZED
(
    SELECT cluster, job_id, attempt, number, name, user, account, queue, service_class, state, start, end, end_earliest, expected_end, gpus
    FROM
    (
        SELECT *
        FROM attempts
        WHERE (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM held UNION ALL SELECT cluster, job_id, attempt FROM vanished)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0 AND probe = 0
),
spots AS MATERIALIZED
(
    SELECT cluster, job_id, attempt, seq, valid_from, node, ifNull(gpus_here, 0) AS gpus_here
    FROM held
    ARRAY JOIN nodes AS node, arrayResize(node_gpus, length(nodes), NULL) AS gpus_here
),
states AS MATERIALIZED
(
    SELECT cluster, node, valid_from, gpus_present, schedulable, state_raw, reason
    FROM
    (
        SELECT *
        FROM node_states
        WHERE valid_from <= {now:DateTime64(3)} AND (cluster, node) IN (SELECT cluster, node FROM spots)
        ORDER BY version DESC
        LIMIT 1 BY cluster, node, valid_from
    )
    WHERE is_deleted = 0 AND valid_to > {now:DateTime64(3)}
),
members AS MATERIALIZED
(
    SELECT cluster, node, valid_from, valid_to, domain
    FROM
    (
        SELECT cluster, node, valid_from, valid_to, domain, is_deleted
        FROM membership
        WHERE valid_from <= {now:DateTime64(3)} AND (cluster, node) IN (SELECT cluster, node FROM spots)
        ORDER BY version DESC
        LIMIT 1 BY cluster, node, valid_from
    )
    WHERE is_deleted = 0
),
found AS
(
    -- Ended by its own word, yet its GPUs are not given back. What earlier runs of the job said does not count.
    SELECT h.cluster AS cluster, h.job_id AS job_id, h.attempt AS attempt, 'completing_long' AS kind, e.first AS since, arraySlice(h.nodes, 1, 10) AS nodes,
           toUInt64(length(h.nodes)) AS node_count, '' AS detail
    FROM held AS h
    INNER JOIN runs AS r ON r.cluster = h.cluster AND r.job_id = h.job_id AND r.attempt = h.attempt
    INNER JOIN
    (
        SELECT c.cluster AS cluster, c.job_id AS job_id, c.attempt AS attempt, min(o.observed_at) AS first
        FROM (SELECT cluster, job_id, observed_at FROM placement_events WHERE state = 'completing' AND (cluster, job_id) IN (SELECT cluster, job_id FROM runs WHERE state = 'completing')) AS o
        INNER JOIN (SELECT cluster, job_id, attempt, start FROM runs WHERE state = 'completing') AS c ON c.cluster = o.cluster AND c.job_id = o.job_id
        WHERE o.observed_at >= ifNull(c.start, toDateTime64(0, 3, 'UTC'))
        GROUP BY cluster, job_id, attempt
    ) AS e ON e.cluster = h.cluster AND e.job_id = h.job_id AND e.attempt = h.attempt
    WHERE r.state = 'completing' AND e.first <= {now:DateTime64(3)} - toIntervalSecond({completing_s:UInt64})

    UNION ALL
    -- On nodes that take no jobs: gone, or only kept from new ones. State words count whole: Slurm's FAIL and POWERED_DOWN are
    -- said beside a state, of nodes that are to fail or to sleep.
    SELECT p.cluster, p.job_id, p.attempt, if(hasAny(splitByRegexp('[,+]', upper(s.state_raw)), ['DOWN', 'NOT_RESPONDING', 'ERROR', 'NOTREADY']), 'node_down', 'node_draining') AS kind,
           greatest(min(p.valid_from), min(s.valid_from)), groupArray(10)(p.node), count(), any(if(s.reason = '', s.state_raw, concat(s.state_raw, ': ', s.reason)))
    FROM spots AS p
    INNER JOIN (SELECT * FROM states WHERE schedulable = 0) AS s ON s.cluster = p.cluster AND s.node = p.node
    WHERE greatest(p.valid_from, s.valid_from) <= {now:DateTime64(3)} - toIntervalSecond({settle_s:UInt64})
    GROUP BY p.cluster, p.job_id, p.attempt, kind

    UNION ALL
    -- On nodes where more GPUs are held than there are, since the last of their jobs came.
    SELECT p.cluster, p.job_id, p.attempt, 'overbooked', min(b.since), groupArray(10)(p.node), count(),
           concat(toString(any(b.held)), ' GPUs held of ', toString(any(b.gpus_present)))
    FROM spots AS p
    INNER JOIN
    (
        SELECT c.cluster AS cluster, c.node AS node, c.held AS held, c.since AS since, assumeNotNull(s.gpus_present) AS gpus_present
        FROM
        (
            SELECT cluster, node, sum(gpus_here) AS held, count() AS holders, max(valid_from) AS since
            FROM spots
            WHERE valid_from <= {now:DateTime64(3)} - toIntervalSecond({settle_s:UInt64})
            GROUP BY cluster, node
            HAVING holders > 1
        ) AS c
        INNER JOIN states AS s ON s.cluster = c.cluster AND s.node = c.node
        WHERE c.held > s.gpus_present
    ) AS b ON b.cluster = p.cluster AND b.node = p.node
    WHERE p.valid_from <= {now:DateTime64(3)} - toIntervalSecond({settle_s:UInt64})
    GROUP BY p.cluster, p.job_id, p.attempt

    UNION ALL
    -- On nodes whose NVLink domain is another now than when it was placed there; one that is not known now may be the same.
    SELECT p.cluster, p.job_id, p.attempt, 'domain_changed', min(n.valid_from), groupArray(10)(p.node), count(),
           any(concat(t.domain, ' -> ', n.domain))
    FROM spots AS p
    INNER JOIN (SELECT * FROM members WHERE valid_to > {now:DateTime64(3)} AND valid_from > (SELECT min(valid_from) FROM held)) AS n ON n.cluster = p.cluster AND n.node = p.node
    INNER JOIN members AS t ON t.cluster = p.cluster AND t.node = p.node
    WHERE n.valid_from > p.valid_from AND t.valid_from <= p.valid_from AND t.valid_to > p.valid_from AND t.domain != '' AND n.domain != '' AND t.domain != n.domain
    GROUP BY p.cluster, p.job_id, p.attempt

    UNION ALL
    -- Nodes that the same run did not have in the placement before.
    SELECT h.cluster, h.job_id, h.attempt, 'node_replaced', h.valid_from, arraySlice(arrayFilter(n -> NOT has(b.nodes, n), h.nodes), 1, 10) AS fresh,
           toUInt64(length(arrayFilter(n -> NOT has(b.nodes, n), h.nodes))), concat('in place of ', arrayStringConcat(arraySlice(arrayFilter(n -> NOT has(h.nodes, n), b.nodes), 1, 10), ', '))
    FROM held AS h
    INNER JOIN
    (
        SELECT cluster, job_id, attempt, seq, nodes
        FROM
        (
            SELECT cluster, job_id, attempt, seq, nodes, is_deleted
            FROM placements
            WHERE (cluster, job_id, attempt, seq) IN (SELECT cluster, job_id, attempt, toUInt16(seq - 1) FROM held WHERE seq > 0)
            ORDER BY version DESC
            LIMIT 1 BY cluster, job_id, attempt, seq
        )
        WHERE is_deleted = 0
    ) AS b ON b.cluster = h.cluster AND b.job_id = h.job_id AND b.attempt = h.attempt
    WHERE h.seq = b.seq + 1 AND notEmpty(fresh)

    UNION ALL
    -- Beyond the end that its limit set.
    SELECT h.cluster, h.job_id, h.attempt, 'past_limit', assumeNotNull(r.expected_end), arraySlice(h.nodes, 1, 10), toUInt64(length(h.nodes)), ''
    FROM held AS h
    INNER JOIN runs AS r ON r.cluster = h.cluster AND r.job_id = h.job_id AND r.attempt = h.attempt
    WHERE r.state = 'running' AND r.expected_end <= {now:DateTime64(3)} - toIntervalSecond({overrun_s:UInt64})

    UNION ALL
    -- Gone from the scheduler without a word: the end is only known to lie in an interval.
    SELECT cluster, job_id, attempt, 'vanished', assumeNotNull(end), [], toUInt64(0), ifNull(concat('ended between ', toString(end_earliest), ' and ', toString(end)), '')
    FROM runs
    WHERE state = 'vanished' AND end >= {since:DateTime64(3)}
)
SELECT f.cluster AS cluster, f.kind AS kind, f.job_id AS job_id, r.number AS number, r.name AS name, r.user AS user, r.account AS account, r.queue AS queue,
       r.service_class AS service_class, r.gpus AS gpus, f.since AS since, f.nodes AS nodes, f.node_count AS node_count, f.detail AS detail,
       count() OVER (PARTITION BY f.cluster, f.kind) AS total
FROM found AS f
INNER JOIN runs AS r ON r.cluster = f.cluster AND r.job_id = f.job_id AND r.attempt = f.attempt
ORDER BY since, cluster, job_id, kind
LIMIT {most:UInt64} BY cluster, kind
SETTINGS enable_materialized_cte = 1

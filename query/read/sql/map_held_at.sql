-- Every attempt that holds nodes at a moment, where, and what was judged of it. Lists are texts, as in map_nodes_at.
-- Parameters: cluster ('' = any but probe_cluster), at.
WITH open AS -- what some version of a placement calls held then; a CTE is worked out anew wherever it stands, so it stays small
(
    SELECT cluster, job_id, attempt, seq
    FROM placements
    WHERE valid_from <= {at:DateTime64(3)} AND valid_to > {at:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
),
held AS
(
    SELECT cluster, job_id, attempt, seq, valid_from, nodes, node_gpus, gpus
    FROM
    (
        SELECT cluster, job_id, attempt, seq, valid_from, valid_to, nodes, node_gpus, gpus, is_deleted
        FROM placements
        WHERE (cluster, job_id, attempt, seq) IN (SELECT cluster, job_id, attempt, seq FROM open)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND valid_from <= {at:DateTime64(3)} AND valid_to > {at:DateTime64(3)}
),
runs AS
(
    SELECT cluster, job_id, attempt, number, name, user, account, queue, service_class, probe, expected_end, state
    FROM
    (
        SELECT cluster, job_id, attempt, number, name, user, account, queue, service_class, probe, expected_end, state, is_deleted
        FROM attempts
        WHERE (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM open)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0
),
judged AS
(
    SELECT cluster, job_id, attempt, seq, outcome, cause, domains_used, domains_min
    FROM
    (
        SELECT cluster, job_id, attempt, seq, outcome, cause, domains_used, domains_min, is_deleted
        FROM verdicts
        WHERE (cluster, job_id, attempt, seq) IN (SELECT cluster, job_id, attempt, seq FROM open)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0
)
SELECT h.cluster AS cluster, h.job_id AS job_id, r.number AS number, r.name AS name, r.user AS user,
       r.account AS account, r.queue AS queue, r.service_class AS service_class, r.probe AS probe, r.state AS state,
       h.valid_from AS valid_from, r.expected_end AS expected_end, h.gpus AS gpus, arrayStringConcat(h.nodes, '\x1F') AS nodes,
       arrayStringConcat(arrayMap(n -> ifNull(toString(n), ''), h.node_gpus), '\x1F') AS node_gpus, toString(v.outcome) AS outcome, v.cause AS cause, v.domains_used AS domains_used,
       v.domains_min AS domains_min
FROM held AS h
INNER JOIN runs AS r ON r.cluster = h.cluster AND r.job_id = h.job_id AND r.attempt = h.attempt
LEFT JOIN judged AS v ON v.cluster = h.cluster AND v.job_id = h.job_id AND v.attempt = h.attempt AND v.seq = h.seq
ORDER BY h.cluster, h.valid_from, h.job_id
SETTINGS join_use_nulls = 1

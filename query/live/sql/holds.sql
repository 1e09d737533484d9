-- Every attempt that holds nodes at a moment. Parameter: open, the moment.
WITH held AS
(
    SELECT cluster, job_id, attempt, seq, nodes, node_gpus, probe
    FROM
    (
        SELECT cluster, job_id, attempt, seq, nodes, node_gpus, valid_from, valid_to, probe, is_deleted
        FROM placements
        WHERE (cluster, job_id, attempt, seq) IN
        (
            SELECT DISTINCT cluster, job_id, attempt, seq FROM placements WHERE valid_from <= {open:DateTime64(3)} AND valid_to > {open:DateTime64(3)}
        )
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND valid_from <= {open:DateTime64(3)} AND valid_to > {open:DateTime64(3)}
)
SELECT h.cluster AS cluster, h.job_id AS job_id, h.attempt AS attempt, h.nodes AS nodes, h.node_gpus AS node_gpus,
       h.probe AS probe, r.name AS name, r.user AS user, r.account AS account, r.service_class AS service_class,
       r.start AS start, r.expected_end AS expected_end, notEmpty(r.components) AS het, r.sources AS sources,
       r.priority AS priority, r.preemptible AS preemptible, toUnixTimestamp64Milli(r.preemptible_from) AS preemptible_ms,
       toUnixTimestamp64Milli(r.checkpoint) AS checkpoint_ms,
       r.checkpoint_every_ms AS checkpoint_every_ms, r.restart_ms AS restart_ms
FROM held AS h
INNER JOIN
(
    SELECT *
    FROM attempts
    WHERE (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM held)
    ORDER BY version DESC
    LIMIT 1 BY cluster, job_id, attempt
) AS r ON r.cluster = h.cluster AND r.job_id = h.job_id AND r.attempt = h.attempt
WHERE r.is_deleted = 0

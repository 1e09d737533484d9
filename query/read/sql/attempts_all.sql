-- Every run that started, with the verdict of its latest placement: what replay prints. Parameter: limit.
WITH runs AS
(
    SELECT *
    FROM (SELECT * FROM attempts ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt)
    WHERE is_deleted = 0 AND start IS NOT NULL
),
holdings AS
(
    SELECT cluster, job_id, attempt, argMax(nodes, seq) AS nodes, argMax(node_gpus, seq) AS node_gpus
    FROM (SELECT * FROM placements ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt, seq)
    WHERE is_deleted = 0
    GROUP BY cluster, job_id, attempt
),
judged AS
(
    SELECT *
    FROM
    (
        SELECT *
        FROM (SELECT * FROM verdicts ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt, seq)
        WHERE is_deleted = 0
        ORDER BY seq DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
)
SELECT r.cluster AS cluster, r.scheduler AS scheduler, r.job_id AS job_id, r.number AS number, r.start AS start,
       r.`end` AS `end`, r.gpus AS gpus, h.nodes AS nodes, v.domains AS domains, v.domain_gpus AS domain_gpus,
       v.domains_used AS domains_used, v.domains_min AS domains_min, v.excess_domains AS excess_domains,
       v.partitions_used AS partitions_used, v.unknown_nodes AS unknown_nodes, toString(v.outcome) AS outcome,
       v.cause AS cause, v.intent AS intent, v.intent_met AS intent_met
FROM runs AS r
LEFT JOIN holdings AS h ON h.cluster = r.cluster AND h.job_id = r.job_id AND h.attempt = r.attempt
LEFT JOIN judged AS v ON v.cluster = r.cluster AND v.job_id = r.job_id AND v.attempt = r.attempt
ORDER BY r.cluster, length(r.job_id), r.job_id, r.number, r.start
LIMIT {limit:UInt64}
SETTINGS join_use_nulls = 1

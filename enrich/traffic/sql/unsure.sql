-- Placements that hold a part of a node, and nobody told which: fewer GPUs than it was last known to have. Where that is not
-- known, one that came through pods may hold a part. Parameters: from, to; the table cut, see placed.sql.
SELECT cluster, job_id, attempt, seq, node
FROM
(
    SELECT cluster, job_id, attempt, seq, nodes[i] AS node, node_gpus[i] AS held, notEmpty(node_pods[i]) AS through_pods
    FROM
    (
        SELECT *
        FROM placements
        WHERE (cluster, job_id, attempt, seq) IN
            (SELECT cluster, job_id, attempt, seq FROM placements WHERE valid_from < {to:DateTime64(3)} AND valid_to >= {from:DateTime64(3)})
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    ARRAY JOIN arrayEnumerate(nodes) AS i
    WHERE is_deleted = 0 AND (empty(node_gpu_index[i]) OR (cluster, node) IN (SELECT cluster, node FROM cut))
) AS p
LEFT JOIN
(
    SELECT cluster, node, argMax(gpus_present, (valid_from, version)) AS present
    FROM node_states
    WHERE valid_from < {to:DateTime64(3)} AND is_deleted = 0
    GROUP BY cluster, node
) AS n USING (cluster, node)
WHERE ifNull(held < present, through_pods)

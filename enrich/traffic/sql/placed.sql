-- Nodes of the placements that held GPUs at some time in [from, to), or until from. A fragment of the other statements.
-- others are the times of all other placements on the node, and their GPUs. gpus has a bit for each GPU held; anonymous says
-- that it is not known which are: all of them while nobody else is there, else those that their source labels with the job.
-- Parameters: from, to.
SELECT cluster, job_id, attempt, seq, valid_from, valid_to, node, held, empty(gpu_index) AS anonymous, gpus,
       arrayFilter(o -> o.3 != cityHash64(job_id, attempt, seq), groupArray((valid_from, valid_to, cityHash64(job_id, attempt, seq), gpus))
           OVER (PARTITION BY cluster, node)) AS others
FROM
(
    SELECT cluster, job_id, attempt, seq, valid_from, valid_to, nodes[i] AS node, node_gpus[i] AS held, node_gpu_index[i] AS gpu_index,
           arraySum(g -> bitShiftLeft(toUInt64(1), g), gpu_index) AS gpus
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
    WHERE is_deleted = 0 AND valid_from < {to:DateTime64(3)} AND valid_to >= {from:DateTime64(3)}
)

-- Nodes of the placements that held GPUs at some time in [from, to), or until from. A fragment of the other statements. shared says that
-- another placement held GPUs of the node at the same time. gpus has a bit for each GPU held: all of them where nobody
-- else is there to hold any, none where it is not known which. Parameters: from, to.
SELECT cluster, job_id, attempt, seq, valid_from, valid_to, node, held,
       arrayCount(o -> o.1 < valid_to AND o.2 > valid_from, groupArray((valid_from, valid_to)) OVER (PARTITION BY cluster, node)) > 1 AS shared,
       if(notEmpty(gpu_index), arraySum(i -> bitShiftLeft(toUInt64(1), i), gpu_index), if(shared, 0, bitNot(toUInt64(0)))) AS gpus
FROM
(
    SELECT cluster, job_id, attempt, seq, valid_from, valid_to, nodes[i] AS node, node_gpus[i] AS held, node_gpu_index[i] AS gpu_index
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

-- Nodes of the placements that held GPUs at some time in [from, to), or until from. A fragment of the other statements.
-- gpus has a bit for each GPU held; anonymous says that it is not known which are: nobody told, or the node has MIG instances,
-- and indices count what is given out. partial is an anonymous one that holds fewer GPUs than the node has, or may do so: not
-- all of them are its own, even while nobody else is there. alone has a bit for each GPU that is its own as long as nobody else
-- holds it. names are what sources of counters call whoever uses a GPU: the pods through which it holds the node, else the job.
-- others are the times of all other placements on the node, and their GPUs; others_names are apart, as most rows do without.
-- Parameters: from, to. The tables cut and parts come with the statement: nodes that have MIG instances, and what is partial, by
-- unsure.sql.
SELECT cluster, job_id, attempt, seq, valid_from, valid_to, node, held, empty(gpu_index) AS anonymous, gpus, names,
       anonymous AND (cluster, job_id, attempt, seq, node) IN (SELECT cluster, job_id, attempt, seq, node FROM parts) AS partial,
       if(anonymous, if(partial, toUInt64(0), bitNot(toUInt64(0))), gpus) AS alone,
       arrayFilter(o -> o.3 != cityHash64(job_id, attempt, seq), groupArray((valid_from, valid_to, cityHash64(job_id, attempt, seq), gpus))
           OVER (PARTITION BY cluster, node)) AS others,
       arrayMap(o -> o.2, arrayFilter(o -> o.1 != cityHash64(job_id, attempt, seq), groupArray((cityHash64(job_id, attempt, seq), names))
           OVER (PARTITION BY cluster, node))) AS others_names
FROM
(
    SELECT cluster, job_id, attempt, seq, valid_from, valid_to, nodes[i] AS node, node_gpus[i] AS held, if(empty(node_pods[i]), [job_id], node_pods[i]) AS names,
           if((cluster, node) IN (SELECT cluster, node FROM cut), [], node_gpu_index[i]) AS gpu_index,
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

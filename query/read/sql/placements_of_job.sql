-- Where the runs of one job sat. Parameters: cluster, job_id.
SELECT attempt, seq, valid_from, valid_to, nodes, node_gpus, node_gpu_index, gpus, gpus_basis
FROM
(
    SELECT *
    FROM placements
    WHERE cluster = {cluster:String} AND job_id = {job_id:String}
    ORDER BY version DESC
    LIMIT 1 BY attempt, seq
)
WHERE is_deleted = 0
ORDER BY attempt, seq

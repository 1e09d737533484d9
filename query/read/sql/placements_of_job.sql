-- Where the runs of one job sat, also what was taken back, in no order. Parameters: cluster ('' = any but probe_cluster), job_id.
SELECT cluster, attempt, seq, valid_from, valid_to, nodes, node_gpus, node_gpu_index, gpus, gpus_basis, is_deleted
FROM placements
WHERE ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String}) AND job_id = {job_id:String}
ORDER BY version DESC
LIMIT 1 BY cluster, attempt, seq

-- What traffic says of the placements of one job, also what was taken back, in no order; evidence_held is what it says if they hold
-- their GPUs still. Parameters: cluster ('' = any but probe_cluster), job_id, measured_since (of evidence_now.sql).
WITH
{evidence_now}
SELECT cluster, attempt AS evidence_attempt, seq AS evidence_seq, evidence, evidence_now(1, evidence, last_minute) AS evidence_held, reason AS evidence_reason, nvlink_bytes_per_second,
       scale_out_bytes_per_second, gpus_measured, seconds AS measured_seconds, outlier_nodes, last_minute, is_deleted
FROM traffic_evidence
WHERE ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String}) AND job_id = {job_id:String}
ORDER BY version DESC
LIMIT 1 BY cluster, attempt, seq

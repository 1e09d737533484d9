-- The runs of one job, also those taken back, in no order. Parameters: cluster ('' = any but probe_cluster), job_id.
SELECT cluster, job_id, attempt, number, scheduler, components, array_job_id, array_task, name, user, account, queue,
       qos, service_class, probe, state, state_raw, submit, eligible, start, `end`, end_earliest, expected_end,
       requested_gpus, requested_nodes, gpus, intent_mode, segment_nodes, pending_reason, planned_start,
       planned_nodes, sources, observed_last, is_deleted
FROM attempts
WHERE ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String}) AND job_id = {job_id:String}
ORDER BY version DESC
LIMIT 1 BY cluster, job_id, attempt

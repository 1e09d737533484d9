-- The verdicts of one job's placements, also those taken back, in no order. Parameters: cluster ('' = any but probe_cluster), job_id.
SELECT cluster, attempt, seq, valid_from, valid_to, outcome, outcome_reason, gpus, node_count,
       unknown_nodes, domains_used, domains_min, excess_domains, partitions_used, domains, domain_gpus, domain_nodes,
       balance, smallest_shard, intent, intent_met, aligned, cause, cause_detail, membership_source,
       membership_generation, judged_at, is_deleted
FROM verdicts
WHERE ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String}) AND job_id = {job_id:String}
ORDER BY version DESC
LIMIT 1 BY cluster, attempt, seq

-- The verdicts of one job's placements. Parameters: cluster, job_id.
SELECT attempt, seq, valid_from, valid_to, toString(outcome) AS outcome, outcome_reason, gpus, node_count,
       unknown_nodes, domains_used, domains_min, excess_domains, partitions_used, domains, domain_gpus, domain_nodes,
       balance, smallest_shard, intent, intent_met, aligned, cause, cause_detail, membership_source,
       membership_generation, judged_at
FROM
(
    SELECT *
    FROM verdicts
    WHERE cluster = {cluster:String} AND job_id = {job_id:String}
    ORDER BY version DESC
    LIMIT 1 BY attempt, seq
)
WHERE is_deleted = 0
ORDER BY attempt, seq

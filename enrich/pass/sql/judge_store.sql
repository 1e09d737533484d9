-- Stores the verdicts that are new or say something else than the newest one of their placement.
INSERT INTO verdicts
WITH
    before AS
    (
        SELECT *
        FROM verdicts
        WHERE cluster = {cluster:String} AND job_id IN (SELECT job_id FROM pass_facts_{{.}}) AND (job_id, attempt, seq) IN (SELECT job_id, attempt, seq FROM pass_facts_{{.}})
        ORDER BY version DESC
        LIMIT 1 BY job_id, attempt, seq
    )
SELECT w.*
FROM pass_verdicts_{{.}} AS w
LEFT JOIN before AS b ON w.job_id = b.job_id AND w.attempt = b.attempt AND w.seq = b.seq
WHERE throwIf((SELECT count() FROM pass_facts_{{.}} WHERE chunk = {chunk:UInt64}) != {rows:UInt64}, 'pass_facts does not hold this chunk') = 0
  AND if(w.is_deleted OR b.version = 0 OR b.is_deleted,
    NOT w.is_deleted OR b.version > 0 AND NOT b.is_deleted,
    toString((w.valid_from, w.valid_to, w.outcome, w.outcome_reason, w.gpus, w.node_count, w.unknown_nodes, w.domains_used, w.domains_min, w.excess_domains,
        w.partitions_used, w.domains, w.domain_gpus, w.domain_nodes, w.balance, w.smallest_shard, w.intent, w.intent_met, w.aligned, w.cause, w.cause_detail, w.membership_source))
    != toString((b.valid_from, b.valid_to, b.outcome, b.outcome_reason, b.gpus, b.node_count, b.unknown_nodes, b.domains_used, b.domains_min, b.excess_domains,
        b.partitions_used, b.domains, b.domain_gpus, b.domain_nodes, b.balance, b.smallest_shard, b.intent, b.intent_met, b.aligned, b.cause, b.cause_detail, b.membership_source)))

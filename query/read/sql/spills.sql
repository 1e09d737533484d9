-- Placements judged a spill that held GPUs at some time in [since, until), worst first or newest first; with fallbacks = 1
-- those inside one domain whose traffic goes over the scale-out network: the spills nobody sees.
-- The first step finds rows that ever said so, the second takes the newest word on each: no FINAL.
-- traffic narrows to those of which their traffic says so now ('' = any, also unmeasured).
-- Parameters: fallbacks, cluster, traffic, user, account, service_class, cause ('' = any), running (1 = only those held now), since, until, now,
-- by_severity (1 = worst first), limit, offset, probe_cluster (no cluster named = any but that), measured_since (of evidence_now.sql).
WITH
{evidence_now},
candidates AS
(
    SELECT DISTINCT cluster, job_id, attempt, seq
    FROM verdicts
    PREWHERE outcome = 'spill'
    WHERE {fallbacks:UInt8} = 0 AND valid_from < {until:DateTime64(3)} AND valid_to > {since:DateTime64(3)}
      AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
    UNION ALL
    SELECT DISTINCT cluster, job_id, attempt, seq
    FROM traffic_evidence
    PREWHERE evidence = 'silent_fallback'
    WHERE {fallbacks:UInt8} = 1 AND valid_from < {until:DateTime64(3)} AND valid_to > {since:DateTime64(3)}
      AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
),
newest AS
(
    SELECT *
    FROM
    (
        SELECT *
        FROM verdicts
        WHERE (cluster, job_id, attempt, seq) IN candidates
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND (outcome = 'spill') != {fallbacks:UInt8}
      AND valid_from < {until:DateTime64(3)} AND valid_to > {since:DateTime64(3)}
      AND ({running:UInt8} = 0 OR valid_to > {now:DateTime64(3)})
      AND ({cause:String} = '' OR cause = {cause:String})
),
runs AS
(
    SELECT cluster, job_id, attempt, number, name, user, account, service_class, state, probe
    FROM
    (
        SELECT *
        FROM attempts
        WHERE (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM newest)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0
),
told AS
(
    SELECT *
    FROM
    (
        SELECT *
        FROM traffic_evidence
        WHERE (cluster, job_id, attempt, seq) IN (SELECT cluster, job_id, attempt, seq FROM newest)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0
)
SELECT if(e.version = 0, '', toString(e.evidence)) AS evidence, evidence_now(1, e.evidence, e.last_minute) AS evidence_held, e.reason AS evidence_reason, e.nvlink_bytes_per_second AS nvlink_bytes_per_second,
       e.scale_out_bytes_per_second AS scale_out_bytes_per_second, e.gpus_measured AS gpus_measured,
       e.seconds AS measured_seconds, e.outlier_nodes AS outlier_nodes, e.last_minute AS last_minute,
       v.cluster AS cluster, v.job_id AS job_id, v.attempt AS attempt, v.seq AS seq, r.number AS number, r.name AS name,
       r.user AS user, r.account AS account, r.service_class AS service_class, r.state AS state,
       v.valid_from AS valid_from, v.valid_to AS valid_to, v.outcome_reason AS outcome_reason, v.outcome AS outcome, v.gpus AS gpus,
       v.node_count AS node_count, v.unknown_nodes AS unknown_nodes, v.domains_used AS domains_used,
       v.domains_min AS domains_min, v.excess_domains AS excess_domains, v.domains AS domains,
       v.domain_gpus AS domain_gpus, v.domain_nodes AS domain_nodes, v.balance AS balance,
       v.smallest_shard AS smallest_shard, v.intent AS intent, v.intent_met AS intent_met, v.cause AS cause,
       v.cause_detail AS cause_detail, v.partitions_used AS partitions_used, v.aligned AS aligned,
       v.membership_source AS membership_source, v.membership_generation AS membership_generation, v.judged_at AS judged_at,
       count() OVER () AS total
FROM newest AS v
INNER JOIN runs AS r ON r.cluster = v.cluster AND r.job_id = v.job_id AND r.attempt = v.attempt
LEFT JOIN told AS e ON e.cluster = v.cluster AND e.job_id = v.job_id AND e.attempt = v.attempt AND e.seq = v.seq
WHERE ({traffic:String} = '' OR {traffic:String} = evidence_now(v.valid_to > {now:DateTime64(3)}, e.evidence, e.last_minute))
  AND ({user:String} = '' OR r.user = {user:String})
  AND ({account:String} = '' OR r.account = {account:String})
  AND ({service_class:String} = '' OR r.service_class = {service_class:String})
  AND r.probe = 0
ORDER BY if({by_severity:UInt8} = 1, v.excess_domains, 0) DESC NULLS LAST,
         if({by_severity:UInt8} = 1, v.gpus, 0) DESC NULLS LAST,
         v.valid_from DESC, v.cluster, v.job_id, v.attempt, v.seq
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

-- What traffic says of the placements of one job. Parameters: cluster, job_id.
SELECT attempt AS evidence_attempt, seq AS evidence_seq, toString(t.evidence) AS evidence, reason AS evidence_reason, nvlink_bytes_per_second, scale_out_bytes_per_second, gpus_measured,
       seconds AS measured_seconds, outlier_nodes, last_minute
FROM
(
    SELECT *
    FROM traffic_evidence
    WHERE cluster = {cluster:String} AND job_id = {job_id:String}
    ORDER BY version DESC
    LIMIT 1 BY attempt, seq
) AS t
WHERE is_deleted = 0

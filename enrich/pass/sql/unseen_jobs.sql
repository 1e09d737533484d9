-- Jobs of which a source told something, with an attempt that has not ended and of which nobody has told anything since a
-- moment. Parameters: cluster, source, since (Unix ms).
SELECT DISTINCT job_id
FROM
(
    SELECT job_id, attempt, state, sources, observed_last, is_deleted
    FROM attempts
    WHERE cluster = {cluster:String} AND (job_id, attempt) IN
    (
        SELECT job_id, attempt
        FROM attempts
        WHERE cluster = {cluster:String} AND state IN ('pending', 'running', 'suspended', 'completing') AND has(sources, {source:String})
    )
    ORDER BY version DESC
    LIMIT 1 BY job_id, attempt
)
WHERE NOT is_deleted AND state IN ('pending', 'running', 'suspended', 'completing') AND has(sources, {source:String})
  AND observed_last < fromUnixTimestamp64Milli({since:Int64})
ORDER BY job_id

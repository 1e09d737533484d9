-- Takes back what an earlier pass found in the minutes and this one did not: the placement no longer held then.
-- Parameters: from, to, minutes, version; {keys} narrows the placements.
INSERT INTO job_traffic (cluster, job_id, attempt, seq, minute, version, is_deleted)
SELECT cluster, job_id, attempt, seq, minute, {version:UInt64}, 1
FROM
(
    SELECT cluster, job_id, attempt, seq, minute, version, is_deleted
    FROM job_traffic
    WHERE minute >= toDateTime({from:DateTime64(3)}) AND minute < toDateTime({to:DateTime64(3)}) AND minute IN ({minutes}) AND {keys}
    ORDER BY version DESC
    LIMIT 1 BY cluster, job_id, attempt, seq, minute
)
WHERE version < {version:UInt64} AND is_deleted = 0

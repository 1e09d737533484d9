-- How long runs of each user and name took, the newest hundred of those that ended by themselves or by their limit.
-- Parameters: since, open: the moment by which they had ended.
SELECT cluster, user, name, arraySort(groupArray(100)(seconds)) AS durations
FROM
(
    SELECT cluster, user, name, toInt32(least(dateDiff('second', start, end), 2147483647)) AS seconds
    FROM
    (
        SELECT cluster, job_id, attempt, user, name, start, end, state, probe, is_deleted
        FROM attempts
        WHERE start >= {since:DateTime64(3)}
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0 AND probe = 0 AND user != '' AND name != '' AND end > start AND end <= {open:DateTime64(3)} AND state IN ('completed', 'failed', 'timeout')
    ORDER BY end DESC
)
GROUP BY cluster, user, name
HAVING length(durations) >= 3

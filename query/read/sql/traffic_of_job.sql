-- What one attempt moved over [since, until), in steps. Parameters: cluster, job_id, attempt, since, until, step (seconds).
SELECT toStartOfInterval(minute, toIntervalSecond({step:UInt32})) AS at, sum(nvlink_bytes) / nullIf(sum(nvlink_gpu_seconds), 0) AS nvlink,
       sum(scale_out_bytes) / nullIf(sum(scale_out_gpu_seconds), 0) AS scale_out, max(gpus_measured) AS gpus, max(shared_nodes) AS shared
FROM
(
    SELECT minute, gpus_measured, shared_nodes, nvlink_bytes, nvlink_gpu_seconds, scale_out_bytes, scale_out_gpu_seconds, is_deleted
    FROM job_traffic
    WHERE cluster = {cluster:String} AND job_id = {job_id:String} AND attempt = {attempt:String}
      AND minute >= toDateTime({since:DateTime64(3)}) AND minute < toDateTime({until:DateTime64(3)})
    ORDER BY version DESC
    LIMIT 1 BY seq, minute
)
WHERE is_deleted = 0
GROUP BY at
ORDER BY at

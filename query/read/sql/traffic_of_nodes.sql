-- What each node of one attempt moved over [since, until), least NVLink traffic first. GPUs side by side: bytes per second
-- of each. Parameters: cluster, job_id, attempt, since, until.
SELECT node, node_gpus AS gpus, arrayMap(b -> b / nullIf(seconds, 0) * length(node_gpus), gpu_bytes) AS gpu_nvlink, arraySum(gpu_bytes) / nullIf(seconds, 0) AS nvlink, scale_out
FROM
(
    SELECT node, any(told) AS node_gpus, sumForEach(of_gpus) AS gpu_bytes, sum(took) AS seconds,
           sum(ports) / nullIf(sumIf(took, ports IS NOT NULL), 0) AS scale_out
    FROM
    (
        SELECT node, told, of_gpus, took, ports
        FROM
        (
            SELECT *
            FROM job_traffic
            WHERE cluster = {cluster:String} AND job_id = {job_id:String} AND attempt = {attempt:String}
              AND minute >= toDateTime({since:DateTime64(3)}) AND minute < toDateTime({until:DateTime64(3)})
            ORDER BY version DESC
            LIMIT 1 BY seq, minute
        )
        ARRAY JOIN nodes AS node, node_gpus AS told, gpu_nvlink_bytes AS of_gpus, node_nvlink_seconds AS took, node_scale_out_bytes AS ports
        WHERE is_deleted = 0
    )
    GROUP BY node
)
ORDER BY nvlink NULLS FIRST, node
LIMIT {limit:UInt32}

-- Joins what was moved with the placements that held the GPUs then, and adds it up by minute. A scrape counts for a
-- placement when it and the one before lie inside of it. Of several sources that tell of one device the one that covers
-- most of the minute counts. Parameters: those of deltas and placed, version; {keys} narrows the placements.
INSERT INTO job_traffic (cluster, job_id, attempt, seq, minute, gpus_measured, nodes_measured, shared_nodes, nvlink_bytes,
    nvlink_gpu_seconds, scale_out_bytes, scale_out_gpu_seconds, nodes, node_gpus, gpu_nvlink_bytes, node_nvlink_seconds,
    node_scale_out_bytes, version, is_deleted)
SELECT cluster, job_id, attempt, seq, minute, sum(length(gpus)), countIf(ports IS NOT NULL), countIf(shared),
       sum(nvlink), sum(nvlink_seconds), sum(ports), sumIf(ports_seconds * ifNull(held, length(gpus)), ports IS NOT NULL),
       groupArray(node), groupArray(gpus), groupArray(gpu_bytes), groupArray(nvlink_seconds), groupArray(ports),
       {version:UInt64}, 0
FROM
(
    SELECT cluster, job_id, attempt, seq, minute, node, any(on_shared) AS shared, any(on_held) AS held,
           arraySort(groupArrayIf((gpu, bytes), entity = 'gpu' AND seconds > 0)) AS told, told.1 AS gpus,
           arrayMap(x -> assumeNotNull(x), told.2) AS gpu_bytes,
           sumIf(bytes, entity = 'gpu') AS nvlink, sumIf(seconds, entity = 'gpu') AS nvlink_seconds,
           sumIf(bytes, entity = 'nic') AS ports, maxIf(seconds, entity = 'nic') AS ports_seconds
    FROM
    (
        SELECT cluster, job_id, attempt, seq, minute, node, entity, gpu, part, name, any(with_others) AS on_shared, any(holds) AS on_held,
               argMax(moved_by, covered) AS bytes, max(covered) AS seconds
        FROM
        (
            SELECT p.cluster AS cluster, job_id, attempt, seq, minute, p.node AS node, source, entity, gpu, part, name,
                   any(p.shared) AS with_others, any(p.held) AS holds, sum(moved) AS moved_by, sumIf(gap, moved IS NOT NULL) AS covered
            FROM ({deltas}) AS d
            INNER JOIN (SELECT * FROM ({placed}) WHERE {keys}) AS p ON d.cluster = p.cluster AND d.node = p.node
            WHERE d.before >= p.valid_from AND d.at <= p.valid_to
              AND if(entity = 'nic', NOT p.shared, has(gpu_index, gpu) OR (empty(gpu_index) AND NOT p.shared))
            GROUP BY cluster, job_id, attempt, seq, minute, node, source, entity, gpu, part, name
        )
        GROUP BY cluster, job_id, attempt, seq, minute, node, entity, gpu, part, name
    )
    GROUP BY cluster, job_id, attempt, seq, minute, node
)
GROUP BY cluster, job_id, attempt, seq, minute

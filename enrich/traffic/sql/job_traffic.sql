-- Joins what was moved with the placements that held the GPUs then, and adds it up by minute. A scrape counts for a
-- placement when it and the one before lie inside of it: minutes that lie inside as a whole are taken as they were rolled up,
-- and only those of nodes that changed hands are looked at scrape by scrape. Of several sources that tell of one device the
-- one that covers most of the minute counts. A GPU that two hold at once is nobody's. Where it is not known which GPUs of a node
-- a placement holds, and others hold some too or it holds only a part of them, a GPU is its own while the source of counters
-- names it alone as the user, by its job or by pods of it. Parameters: those of deltas and placed, version; {keys} narrows the
-- placements.
INSERT INTO job_traffic (cluster, job_id, attempt, seq, minute, gpus_measured, nodes_measured, shared_nodes, nvlink_bytes,
    nvlink_gpu_seconds, scale_out_bytes, scale_out_gpu_seconds, nodes, node_gpus, gpu_nvlink_bytes, node_nvlink_seconds,
    node_scale_out_bytes, version, is_deleted)
SELECT cluster, job_id, attempt, seq, minute, sum(length(gpus)), countIf(ports IS NOT NULL), countIf(shared),
       sum(nvlink), sum(nvlink_seconds), sum(ports), sumIf(ports_seconds * ifNull(held, length(gpus)), ports IS NOT NULL),
       groupArray(node), groupArray(gpus), groupArray(gpu_bytes), groupArray(nvlink_seconds), groupArray(ports),
       {version:UInt64}, 0
FROM
(
    SELECT cluster, job_id, attempt, seq, minute, node, max(on_shared) AS shared, any(on_held) AS held,
           arraySort(groupArrayIf((gpu, bytes), entity = 'gpu' AND seconds > 0)) AS told, told.1 AS gpus,
           arrayMap(x -> assumeNotNull(x), told.2) AS gpu_bytes,
           sumIf(bytes, entity = 'gpu') AS nvlink, sumIf(seconds, entity = 'gpu') AS nvlink_seconds,
           sumIf(bytes, entity = 'nic') AS ports, maxIf(seconds, entity = 'nic') AS ports_seconds
    FROM
    (
        SELECT p.cluster AS cluster, job_id, attempt, seq, p.node AS node, on_shared, held AS on_held, minute, entity, gpu, bytes, seconds
        FROM
        (
            SELECT held_by, minute, entity, gpu, max(with_others) AS on_shared, argMax(moved_by, covered) AS bytes, max(covered) AS seconds
            FROM
            (
                SELECT held_by, minute, source, entity, gpu, part, name,
                       arrayExists(o -> o.1 < m.last_at AND o.2 > m.first_at, h.others) AS with_others, bytes AS moved_by, seconds AS covered
                FROM
                (
                    SELECT *
                    FROM counters_minute
                    WHERE minute >= toDateTime({from:DateTime64(3)}) AND minute < toDateTime({to:DateTime64(3)})
                      AND minute IN ({minutes}) AND entity IN ('gpu', 'nic') AND {scope}
                    ORDER BY version DESC
                    LIMIT 1 BY cluster, node, source, entity, gpu, part, name, minute
                ) AS m
                INNER JOIN ({held}) AS h ON m.cluster = h.cluster AND m.node = h.node
                WHERE {whole}
                UNION ALL
                SELECT held_by, minute, source, entity, gpu, part, name, with_others,
                       if(arrayExists(x -> x.4 IS NOT NULL, inside), arraySum(x -> ifNull(x.4, 0), inside), NULL) AS moved_by,
                       arraySum(x -> if(x.4 IS NULL, 0, x.3), inside) AS covered
                FROM
                (
                    SELECT held_by, minute, source, entity, gpu, part, name,
                           arrayExists(o -> o.1 < m.last_at AND o.2 > m.first_at, h.others) AS with_others,
                           arrayFilter(x -> x.1 >= h.valid_from AND x.2 <= h.valid_to AND (m.entity = 'nic' OR NOT h.partial OR hasAll(h.names, x.5))
                               AND NOT arrayExists((o, o_names) -> o.1 < x.2 AND o.2 > x.1 AND (m.entity = 'nic' OR bitTest(o.4, m.gpu)
                                   OR h.anonymous AND (NOT hasAll(h.names, x.5) OR hasAny(o_names, x.5))), h.others, h.others_names), scrapes) AS inside
                    FROM
                    (
                        SELECT cluster, node, source, entity, gpu, part, name, minute, min(before) AS first_at, max(at) AS last_at,
                               groupArray((before, at, gap, moved, used_by)) AS scrapes
                        FROM ({deltas})
                        GROUP BY cluster, node, source, entity, gpu, part, name, minute
                    ) AS m
                    INNER JOIN ({held}) AS h ON m.cluster = h.cluster AND m.node = h.node
                    WHERE NOT ({whole}) AND (m.entity = 'nic' OR h.anonymous OR bitTest(h.gpus, m.gpu))
                )
                WHERE notEmpty(inside)
            )
            GROUP BY held_by, minute, entity, gpu, part, name
        ) AS m
        INNER JOIN ({held}) AS p ON m.held_by = p.held_by
    )
    GROUP BY cluster, job_id, attempt, seq, minute, node
)
GROUP BY cluster, job_id, attempt, seq, minute

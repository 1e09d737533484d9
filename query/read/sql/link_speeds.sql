-- What communication tests measured, by the level that held all their nodes when they ran, and below that by the domains
-- they ran in, the operation and the GPU model. Of each run its largest message counts, in the better placement, if it has
-- min_bytes; runs that failed or computed wrong values do not. Parameters: cluster ('' = all but probe_cluster), since, until, min_bytes.
--
-- bus is what nccl-tests calls the bus bandwidth (PERFORMANCE.md of nccl-tests). per_gpu is what one GPU carried in one
-- direction over the level's links: inside one domain that is the bus bandwidth itself. Between groups of GPUs that only
-- scale-out links join, the k GPUs of the smallest group share the crossing of a ring, so it is bus / k; of an all-to-all
-- among n GPUs each sends (n - k) / (n - 1) across; of neighbours that send and receive the one at the edge sends all. The
-- groups are the domains where NCCL joined nodes by NVLink, and the nodes where it did not; where it does not say and the
-- two differ, per_gpu is NULL.
WITH runs AS
(
    SELECT *
    FROM
    (
        SELECT cluster, run_id, observed_at, operation, gpu_model, node, node_gpus, multi_node_nvlink, failure, wrong_total,
               arrayMax(size_bytes) AS largest, arrayMax(arrayFilter((b, s) -> s = largest, bus_bytes_per_second, size_bytes)) AS bus
        FROM benchmark_events
        WHERE ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
          AND observed_at >= {since:DateTime64(3)} AND observed_at < {until:DateTime64(3)}
        ORDER BY revision DESC, kafka_offset DESC
        LIMIT 1 BY cluster, run_id
    )
    WHERE failure = '' AND ifNull(wrong_total, 0) = 0 AND largest >= {min_bytes:UInt64} AND notEmpty(node)
),
members AS
(
    SELECT cluster, node, valid_from, valid_to, domain, levels
    FROM
    (
        SELECT *
        FROM membership
        WHERE (cluster, node) IN (SELECT cluster, arrayJoin(node) FROM runs)
        ORDER BY version DESC
        LIMIT 1 BY cluster, node, valid_from
    )
    WHERE is_deleted = 0
),
nodes AS
(
    SELECT r.cluster AS cluster, r.run_id AS run_id, r.name AS name, r.gpus AS gpus,
           if(m.valid_to > r.observed_at, m.domain, '') AS domain, if(domain = '', map(), m.levels) AS levels
    FROM (SELECT cluster, run_id, observed_at, name, gpus FROM runs ARRAY JOIN node AS name, node_gpus AS gpus) AS r
    ASOF LEFT JOIN members AS m ON m.cluster = r.cluster AND m.node = r.name AND m.valid_from <= r.observed_at
),
parts AS
(
    SELECT cluster, run_id, domain, sum(gpus) AS part_gpus, min(gpus) AS smallest_node, count() AS part_nodes, groupArray(levels) AS part_levels
    FROM nodes
    GROUP BY cluster, run_id, domain
),
places AS
(
    SELECT cluster, run_id, arraySort(groupArray(domain)) AS domains, sum(part_nodes) AS node_count, sum(part_gpus) AS gpu_count,
           min(part_gpus) AS of_domain, min(smallest_node) AS of_node, arrayFlatten(groupArray(part_levels)) AS all_levels,
           -- The innermost level outside domains that all nodes share.
           arrayFirst(l -> notEmpty(all_levels[1][l]) AND arrayAll(m -> m[l] = all_levels[1][l], all_levels),
                      ['block', 'block_group', 'rack', 'leaf', 'spine', 'cluster']) AS shared
    FROM parts
    GROUP BY cluster, run_id
),
speeds AS
(
    SELECT r.cluster AS cluster, r.operation AS operation, r.gpu_model AS gpu_model, r.observed_at AS observed_at, r.bus AS bus,
           p.domains AS domains, if(p.node_count = 1, NULL, r.multi_node_nvlink) AS joined,
           multiIf(p.node_count = 1, 'node', has(p.domains, ''), 'unknown', length(p.domains) = 1, 'domain',
                   p.shared = '', 'cluster', p.shared) AS level,
           multiIf(level = 'unknown', NULL,
                   level = 'node' OR level = 'domain' AND ifNull(joined, false), toUInt64(0), -- all over NVLink
                   p.of_domain = p.of_node OR NOT ifNull(joined, true), p.of_node,
                   isNull(joined), NULL,
                   p.of_domain) AS k,
           multiIf(isNull(k), NULL,
                   k = 0, r.bus,
                   r.operation IN ('all_reduce', 'all_gather', 'reduce_scatter', 'broadcast', 'reduce'), r.bus / k,
                   r.operation = 'alltoall' AND p.gpu_count > 1, r.bus * (p.gpu_count - k) / (p.gpu_count - 1),
                   r.operation = 'sendrecv', r.bus,
                   NULL) AS per_gpu
    FROM runs AS r
    INNER JOIN places AS p ON p.cluster = r.cluster AND p.run_id = r.run_id
)
SELECT cluster, level, joined, grouping(operation) = 1 AS whole_level, domains, operation, gpu_model, count() AS runs,
       max(observed_at) AS newest,
       quantileExact(0.1)(bus) AS bus_p10, quantileExact(0.5)(bus) AS bus_p50, quantileExact(0.9)(bus) AS bus_p90,
       count(per_gpu) AS runs_per_gpu,
       quantileExactOrNull(0.1)(per_gpu) AS per_gpu_p10, quantileExactOrNull(0.5)(per_gpu) AS per_gpu_p50,
       quantileExactOrNull(0.9)(per_gpu) AS per_gpu_p90
FROM speeds
GROUP BY GROUPING SETS ((cluster, level, joined), (cluster, level, joined, domains, operation, gpu_model))
ORDER BY cluster, level, joined, whole_level DESC, domains, operation, gpu_model

-- THE RULE of what traffic says of a verdict, here and nowhere else. Rates are bytes per second and GPU, both directions.
--
-- A placement is measured when its NVLinks were told of on at least half of its GPUs, and its scale-out ports on at least
-- half of its nodes, for min_seconds; anything less is unknown, which is neither good nor bad. Where there are minutes that
-- both are known of, those alone count: what the ports did before anybody read the NVLinks says nothing of them. Then:
--   one domain: idle when NVLinks and ports are quiet; silent_fallback when the NVLinks are quiet while the ports of several
--     nodes are busy; in_domain when the NVLinks are not quiet; else unknown (in_between).
--   spill: confirmed when the ports are busy; contradicted when they are quiet while the NVLinks are not; idle when both are
--     quiet; else unknown (in_between).
--   spread over no more domains than it needs: expected.
--
-- valid_from, valid_to and holding are those that the traffic was counted with, and no newer ones: by them the next pass sees
-- which minutes to count again. They are what the pass read of a placement that had changed (it comes with named); else what
-- the placement is, unless it was judged while the pass ran; else what they were. Of a placement that is new as well they are
-- the minutes that were counted and no nodes, so that these minutes and all that it holds differ.
-- Parameters: quiet_nvlink, busy_ports, quiet_ports, min_seconds, outlier_factor, recent, judged (the pass over placements that
-- had finished before anything was counted), version; {keys} names the placements.
INSERT INTO traffic_evidence (cluster, job_id, attempt, seq, valid_from, valid_to, holding, evidence, reason,
    nvlink_bytes_per_second, scale_out_bytes_per_second, nvlink_bytes, scale_out_bytes, gpus, gpus_measured, seconds,
    outlier_nodes, first_minute, last_minute, version, is_deleted)
WITH
    newest AS
    (
        SELECT cluster, job_id, attempt, seq, valid_from, valid_to, nodes, gpus, is_deleted, version <= {judged:UInt64} AS settled,
               {holding} AS holding
        FROM placements
        WHERE {keys}
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    ),
    before AS
    (
        SELECT cluster, job_id, attempt, seq, valid_from, valid_to, holding
        FROM
        (
            SELECT cluster, job_id, attempt, seq, valid_from, valid_to, holding, is_deleted
            FROM traffic_evidence
            WHERE {keys}
            ORDER BY version DESC
            LIMIT 1 BY cluster, job_id, attempt, seq
        )
        WHERE is_deleted = 0
    ),
    placed AS
    (
        SELECT n.cluster AS cluster, n.job_id AS job_id, n.attempt AS attempt, n.seq AS seq, n.nodes AS nodes, n.gpus AS gpus,
               t.holding IS NOT NULL AS was_read,
               multiIf(was_read, t.valid_from, n.settled, n.valid_from, b.valid_from) AS counted_from,
               multiIf(was_read, t.valid_to, n.settled, n.valid_to, b.valid_to) AS counted_to,
               multiIf(was_read, t.holding, n.settled, n.holding, b.holding) AS counted_holding,
               multiIf(was_read, t.is_deleted, n.settled, n.is_deleted, 0) AS gone
        FROM newest AS n
        LEFT JOIN named AS t ON n.cluster = t.cluster AND n.job_id = t.job_id AND n.attempt = t.attempt AND n.seq = t.seq
        LEFT JOIN before AS b ON n.cluster = b.cluster AND n.job_id = b.job_id AND n.attempt = b.attempt AND n.seq = b.seq
    ),
    judged AS
    (
        SELECT cluster, job_id, attempt, seq, outcome, is_deleted AS withdrawn
        FROM verdicts
        WHERE {keys}
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    ),
    minutes AS
    (
        SELECT cluster, job_id, attempt, seq, minute, gpus_measured, nodes_measured, nvlink_bytes, nvlink_gpu_seconds,
               scale_out_bytes, scale_out_gpu_seconds, nvlink_gpu_seconds > 0 AND scale_out_gpu_seconds > 0 AS both
        FROM
        (
            SELECT cluster, job_id, attempt, seq, minute, gpus_measured, nodes_measured, nvlink_bytes, nvlink_gpu_seconds,
                   scale_out_bytes, scale_out_gpu_seconds, is_deleted
            FROM job_traffic
            WHERE {keys}
            ORDER BY version DESC
            LIMIT 1 BY cluster, job_id, attempt, seq, minute
        )
        WHERE is_deleted = 0
    ),
    totals AS
    (
        SELECT cluster, job_id, attempt, seq, sum(nvlink_bytes) AS nvlink, sum(scale_out_bytes) AS ports, max(both) AS any_both,
               if(any_both, sumIf(nvlink_bytes, both), nvlink) AS nvlink_counted,
               if(any_both, sumIf(nvlink_gpu_seconds, both), sum(nvlink_gpu_seconds)) AS nvlink_seconds,
               if(any_both, sumIf(scale_out_bytes, both), ports) AS ports_counted,
               if(any_both, sumIf(scale_out_gpu_seconds, both), sum(scale_out_gpu_seconds)) AS ports_seconds,
               if(any_both, medianExactIf(gpus_measured, both), medianExact(gpus_measured)) AS measured,
               if(any_both, medianExactIf(nodes_measured, both), medianExact(nodes_measured)) AS measured_nodes,
               min(minute) AS first, max(minute) AS last, if(any_both, maxIf(minute, both), last) AS last_counted
        FROM minutes
        GROUP BY cluster, job_id, attempt, seq
    ),
    by_node AS
    (
        SELECT cluster, job_id, attempt, seq, node, sum(bytes) / sum(seconds) AS rate
        FROM
        (
            SELECT cluster, job_id, attempt, seq, node, arraySum(of_gpus) AS bytes, seconds
            FROM
            (
                SELECT *
                FROM job_traffic
                WHERE {keys} AND minute >= {recent:DateTime}
                ORDER BY version DESC
                LIMIT 1 BY cluster, job_id, attempt, seq, minute
            )
            ARRAY JOIN nodes AS node, gpu_nvlink_bytes AS of_gpus, node_nvlink_seconds AS seconds
            WHERE is_deleted = 0 AND seconds > 0
        )
        GROUP BY cluster, job_id, attempt, seq, node
    ),
    outliers AS
    (
        SELECT cluster, job_id, attempt, seq, groupArrayIf(node, rate * {outlier_factor:Float64} < usual AND usual > {quiet_nvlink:Float64}) AS nodes
        FROM (SELECT *, medianExact(rate) OVER (PARTITION BY cluster, job_id, attempt, seq) AS usual FROM by_node)
        GROUP BY cluster, job_id, attempt, seq
    )
SELECT cluster, job_id, attempt, seq, coalesce(counted_from, first, toDateTime(0, 'UTC')),
       coalesce(counted_to, last + toIntervalMinute(1), toDateTime(0, 'UTC')), ifNull(counted_holding, 0), says, if(says = 'unknown' AND why = '', 'in_between', why),
       nvlink_rate, ports_rate, nvlink, ports, gpus, ifNull(measured, 0), ifNull(seconds, 0), outliers,
       ifNull(first, toDateTime(0, 'UTC')), ifNull(last_counted, toDateTime(0, 'UTC')), {version:UInt64}, assumeNotNull(gone)
FROM
(
    SELECT p.cluster AS cluster, p.job_id AS job_id, p.attempt AS attempt, p.seq AS seq, p.counted_from AS counted_from,
           p.counted_to AS counted_to, p.counted_holding AS counted_holding, p.gpus AS gpus, p.gone AS gone,
           t.nvlink_counted / nullIf(t.nvlink_seconds, 0) AS nvlink_rate, t.ports_counted / nullIf(t.ports_seconds, 0) AS ports_rate,
           ifNull(p.gpus, t.measured) AS all_gpus,
           t.nvlink_seconds / nullIf(t.measured, 0) AS seconds,
           -- What a GPU's ports were told of: a node of the placement has all_gpus / length(nodes) of them.
           t.ports_seconds / nullIf(t.measured_nodes * all_gpus / length(p.nodes), 0) AS port_seconds,
           multiIf(nvlink_rate IS NULL AND ports_rate IS NULL, 'no_counters',
                   nvlink_rate IS NULL, 'no_nvlink_counters',
                   ports_rate IS NULL, 'no_scale_out_counters',
                   ifNull(least(seconds, port_seconds), 0) < {min_seconds:Float64}, 'too_short',
                   t.measured * 2 < all_gpus, 'too_few_gpus',
                   t.measured_nodes * 2 < length(p.nodes), 'too_few_ports',
                   j.outcome IS NULL OR j.withdrawn OR j.outcome = 'unknown', 'no_verdict', '') AS why,
           multiIf(why != '', 'unknown',
                   j.outcome = 'minimal_spread', 'expected',
                   nvlink_rate < {quiet_nvlink:Float64} AND ports_rate < {quiet_ports:Float64}, 'idle',
                   j.outcome != 'spill' AND nvlink_rate >= {quiet_nvlink:Float64}, 'in_domain',
                   j.outcome != 'spill' AND length(p.nodes) > 1 AND ports_rate >= {busy_ports:Float64}, 'silent_fallback',
                   j.outcome != 'spill', 'unknown',
                   ports_rate >= {busy_ports:Float64}, 'confirmed',
                   ports_rate < {quiet_ports:Float64}, 'contradicted',
                   'unknown') AS says,
           t.nvlink AS nvlink, t.ports AS ports, t.measured AS measured, o.nodes AS outliers, t.first AS first, t.last AS last,
           t.last_counted AS last_counted
    FROM placed AS p
    LEFT JOIN judged AS j ON p.cluster = j.cluster AND p.job_id = j.job_id AND p.attempt = j.attempt AND p.seq = j.seq
    LEFT JOIN totals AS t ON p.cluster = t.cluster AND p.job_id = t.job_id AND p.attempt = t.attempt AND p.seq = t.seq
    LEFT JOIN outliers AS o ON p.cluster = o.cluster AND p.job_id = o.job_id AND p.attempt = o.attempt AND p.seq = o.seq
)

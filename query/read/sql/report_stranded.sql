-- GPU-hours that were free and in no slot of a size, sampled every step, by the accounts that held the rest of the domain:
-- each has the part of it that its GPUs are of all held there. Account '' = nobody held anything there.
-- Sizes that were not counted follow from the wholly free nodes, as query/read/capacity.go has it; up to one node's GPUs
-- nothing tells, and uncounted says so.
-- Parameters: cluster ('' = any but probe_cluster), since, until, step (seconds), samples, size (GPUs).
WITH rows AS
(
    SELECT *
    FROM
    (
        SELECT cluster, domain, minute, nodes, nodes_free, gpus, gpus_usable, gpus_free, slot_sizes, slots, is_deleted
        FROM domain_capacity
        WHERE domain != '' AND minute < toDateTime({until:DateTime64(3)})
          AND minute >= toDateTime({since:DateTime64(3)}) - INTERVAL 90 DAY
          AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, domain, minute
    )
    WHERE is_deleted = 0
),
states AS
(
    SELECT cluster, domain, minute, gpus_usable, gpus_free, slot_sizes, greatest(1, intDiv(2 * gpus + nodes, 2 * greatest(nodes, 1))) AS per_node,
           has(slot_sizes, {size:UInt32}) AS counted, NOT counted AND gpus > 0 AND {size:UInt32} <= per_node AS uncounted,
           multiIf(counted, slots[indexOf(slot_sizes, {size:UInt32})], gpus = 0 OR uncounted, 0,
                   toUInt32(intDiv(nodes_free, intDiv({size:UInt32} + per_node - 1, per_node)))) AS fit
    FROM rows
),
grid AS
(
    SELECT cluster, domain, moment, toDateTime({since:DateTime64(3)}) + moment * {step:UInt32} AS at
    FROM (SELECT DISTINCT cluster, domain FROM states) AS d
    CROSS JOIN (SELECT toUInt32(number) AS moment FROM numbers({samples:UInt32})) AS m
),
sampled AS
(
    SELECT g.cluster AS cluster, g.domain AS domain, g.moment AS moment, s.gpus_usable AS gpus_usable,
           s.gpus_free AS gpus_free, s.gpus_free - least(s.gpus_free, s.fit * {size:UInt32}) AS stranded, s.uncounted AS uncounted,
           s.slot_sizes AS slot_sizes, s.per_node AS per_node
    FROM grid AS g
    ASOF INNER JOIN states AS s ON s.cluster = g.cluster AND s.domain = g.domain AND g.at >= s.minute
),
placed AS
(
    SELECT cluster, job_id, attempt, domains, domain_gpus, valid_from, valid_to
    FROM
    (
        SELECT cluster, job_id, attempt, seq, domains, domain_gpus, valid_from, valid_to, is_deleted
        FROM verdicts
        WHERE (cluster, job_id, attempt, seq) IN
        (
            SELECT cluster, job_id, attempt, seq
            FROM verdicts
            WHERE valid_from < {until:DateTime64(3)} AND valid_to > {since:DateTime64(3)}
              AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        )
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND valid_from < {until:DateTime64(3)} AND valid_to > {since:DateTime64(3)}
),
runs AS
(
    SELECT cluster, job_id, attempt, account, probe
    FROM
    (
        SELECT cluster, job_id, attempt, account, probe, is_deleted
        FROM attempts
        WHERE (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM placed)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0
),
moments AS
(
    SELECT p.cluster AS cluster, domain, account, part,
           arrayJoin(range(
               toUInt32(ceil(greatest(0, toUnixTimestamp64Milli(valid_from) - toUnixTimestamp64Milli({since:DateTime64(3)})) / 1000 / {step:UInt32})),
               toUInt32(least({samples:UInt32}, ceil(greatest(0, toUnixTimestamp64Milli(valid_to) - toUnixTimestamp64Milli({since:DateTime64(3)})) / 1000 / {step:UInt32}))))) AS moment
    FROM placed AS p
    INNER JOIN runs AS r ON r.cluster = p.cluster AND r.job_id = p.job_id AND r.attempt = p.attempt
    ARRAY JOIN p.domains AS domain, p.domain_gpus AS part
    WHERE r.probe = 0 AND part > 0
),
held AS
(
    SELECT cluster, domain, moment, sumMap([account], [toUInt64(part)]) AS by_account
    FROM moments
    GROUP BY cluster, domain, moment
)
SELECT cluster, account, length(parts) > 0 AS held_something,
       sum(stranded * share) * {step:UInt32} / 3600 AS stranded_gpu_hours,
       sum(gpus_free * share) * {step:UInt32} / 3600 AS free_gpu_hours,
       sum(gpus_usable * share) * {step:UInt32} / 3600 AS usable_gpu_hours,
       max(uncounted) AS refused, anyIf(slot_sizes, uncounted) AS counted_sizes, toUInt32(anyIf(per_node, uncounted)) AS node_gpus
FROM
(
    SELECT s.cluster AS cluster, s.stranded AS stranded, s.gpus_free AS gpus_free, s.gpus_usable AS gpus_usable,
           s.uncounted AS uncounted, s.slot_sizes AS slot_sizes, s.per_node AS per_node, h.by_account.1 AS accounts, h.by_account.2 AS parts
    FROM sampled AS s
    LEFT JOIN held AS h ON h.cluster = s.cluster AND h.domain = s.domain AND h.moment = s.moment
)
ARRAY JOIN if(empty(parts), [''], arrayMap(a -> toString(a), accounts)) AS account,
           if(empty(parts), [1.], arrayMap(p -> p / arraySum(parts), parts)) AS share
GROUP BY cluster, account, held_something
ORDER BY cluster, account, held_something

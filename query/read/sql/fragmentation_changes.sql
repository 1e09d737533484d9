-- What changed in each domain's capacity over a time, of each step the last alone. Parameters: cluster ('' = any but probe_cluster),
-- since, until, step (ms).
SELECT cluster, domain, minute, nodes, nodes_usable, nodes_free, gpus, gpus_usable, gpus_held, gpus_probe, gpus_free,
       slot_sizes, slots, arrayMap(x -> toUnixTimestamp(x), node_ends) AS node_ends, gpus_basis, version
FROM
(
    SELECT *
    FROM
    (
        SELECT *
        FROM domain_capacity
        WHERE domain != '' AND minute > toDateTime({since:DateTime64(3)}) AND minute <= toDateTime({until:DateTime64(3)})
          AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, domain, minute
    )
    WHERE is_deleted = 0
    ORDER BY minute DESC
    LIMIT 1 BY cluster, domain, intDiv(toUnixTimestamp(minute) * 1000 - toUnixTimestamp64Milli({since:DateTime64(3)}) - 1, {step:UInt64})
)
ORDER BY minute, cluster, domain

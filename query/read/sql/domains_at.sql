-- The capacity of every known domain as it stood at a moment. Parameters: cluster ('' = any but probe_cluster), domain ('' = any), at.
SELECT cluster, domain, minute, nodes, nodes_usable, nodes_free, gpus, gpus_usable, gpus_held, gpus_probe, gpus_free,
       slot_sizes, slots, arrayMap(x -> toUnixTimestamp(x), node_ends) AS node_ends, gpus_basis, version
FROM
(
    SELECT *
    FROM
    (
        SELECT *
        FROM domain_capacity
        WHERE domain != '' AND minute <= toDateTime({at:DateTime64(3)})
          AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
          AND ({domain:String} = '' OR domain = {domain:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, domain, minute
    )
    WHERE is_deleted = 0
    ORDER BY minute DESC
    LIMIT 1 BY cluster, domain
)
WHERE nodes > 0 OR {domain:String} != ''
ORDER BY cluster, domain

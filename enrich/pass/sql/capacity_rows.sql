-- The capacity rows of a cluster over a time. Parameters: cluster, first, last (Unix s).
SELECT domain, toInt64(toUnixTimestamp(minute)) AS at, nodes, nodes_usable, nodes_free, gpus, gpus_usable, gpus_held, gpus_probe,
       gpus_free, slot_sizes, slots, arrayMap(x -> toUnixTimestamp(x), node_ends), gpus_basis
FROM
(
    SELECT *
    FROM domain_capacity
    WHERE cluster = {cluster:String} AND minute >= toDateTime({first:Int64}, 'UTC') AND minute <= toDateTime({last:Int64}, 'UTC')
    ORDER BY version DESC
    LIMIT 1 BY domain, minute
)
WHERE is_deleted = 0
ORDER BY at, domain

-- Capacity rows of a version and newer: what a follower may not have seen, the last version included, since one pass
-- may write a version in several blocks. Parameter: version.
SELECT cluster, domain, minute, nodes, nodes_usable, nodes_free, gpus, gpus_usable, gpus_held, gpus_probe, gpus_free,
       slot_sizes, slots, gpus_basis, version, is_deleted
FROM domain_capacity
WHERE domain != '' AND version >= {version:UInt64}
ORDER BY version, minute

-- GPUs of which a source said lately that something is wrong with their NVLink fabric. A mask is packed sub-fields of which
-- most are not zero in health; here only those are let through that have any of fault_bits (event.FabricFaultBits), the caller
-- takes them apart. Parameters: cluster ('' = any but probe_cluster), since, fault_bits.
SELECT cluster, node, source, observed_at, gpu, uuid, assumeNotNull(mask) AS mask
FROM
(
    SELECT cluster, node, source, observed_at, removed, gpu_index, gpu_uuid, gpu_health_mask
    FROM membership_events
    WHERE loaded_at >= {since:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
    ORDER BY revision DESC
    LIMIT 1 BY cluster, node, source
)
ARRAY JOIN gpu_index AS gpu, gpu_uuid AS uuid, gpu_health_mask AS mask
WHERE NOT removed AND bitAnd(ifNull(mask, 0), {fault_bits:UInt32}) != 0
ORDER BY cluster, node, gpu, source
LIMIT 1000

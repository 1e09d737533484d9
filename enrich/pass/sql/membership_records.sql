-- The records of the sources and nodes in `wanted`, from a revision on, in the order of the source. Rows
-- that no pass has reached yet are left to the pass that does (@seen). Parameters: cluster, first.
SELECT node, source, topology, toUnixTimestamp64Milli(ifNull(valid_from, observed_at)) AS since, revision,
       cityHash64(removed, level, level_value, gpu_cluster_uuid, gpu_clique_id, gpu_state, gpu_status) AS fingerprint,
       removed, level, level_value, gpu_cluster_uuid, gpu_clique_id, gpu_state, gpu_status
FROM membership_events
WHERE cluster = {cluster:String} AND node IN (SELECT node FROM wanted) AND (node, source, topology) IN (SELECT node, source, topology FROM wanted)
  AND revision >= {first:UInt64} AND @seen
ORDER BY node, source, topology, revision, kafka_offset

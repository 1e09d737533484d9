-- The records of the sources and nodes in `wanted`, each from its first revision on, in the order of the source. Rows
-- that no pass has reached yet are left to the pass that does (@seen). Parameter: cluster.
SELECT node, source, topology, toUnixTimestamp64Milli(ifNull(valid_from, observed_at)) AS since, revision,
       cityHash64(removed, level, level_value, gpu_cluster_uuid, gpu_clique_id, gpu_state, gpu_status) AS fingerprint,
       removed, level, level_value, gpu_cluster_uuid, gpu_clique_id, gpu_state, gpu_status
FROM membership_events
INNER JOIN wanted USING (node, source, topology)
WHERE cluster = {cluster:String} AND node IN (SELECT node FROM wanted) AND revision >= first AND @seen
ORDER BY node, source, topology, revision, kafka_offset

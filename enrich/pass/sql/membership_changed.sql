-- Which source said something new of which node in this batch, and the revision to read again from. A record that
-- repeats the newest fact known of its source and node is left out: most of a refresh is.
WITH
    said AS
    (
        SELECT cluster, node, source, topology, revision, ifNull(valid_from, observed_at) AS since,
               cityHash64(removed, level, level_value, gpu_cluster_uuid, gpu_clique_id, gpu_state, gpu_status) AS fingerprint
        FROM membership_events
        WHERE @batch
    ),
    known AS
    (
        SELECT cluster, node, source, topology, valid_from, fingerprint
        FROM
        (
            SELECT cluster, node, source, topology, valid_from, valid_to, fingerprint, is_deleted
            FROM membership_facts
            WHERE (cluster, node) IN (SELECT cluster, node FROM said)
            ORDER BY version DESC
            LIMIT 1 BY cluster, node, source, topology, valid_from
        )
        WHERE is_deleted = 0 AND valid_to >= '2200-01-01'
    )
SELECT said.cluster AS cluster, said.node AS node, said.source AS source, said.topology AS topology, min(said.revision) AS first
FROM said
LEFT JOIN known ON said.cluster = known.cluster AND said.node = known.node AND said.source = known.source
               AND said.topology = known.topology
WHERE said.fingerprint != known.fingerprint OR said.since < known.valid_from
GROUP BY cluster, node, source, topology
SETTINGS join_use_nulls = 0

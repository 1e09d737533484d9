-- Which source said something new of which node's capacity in this batch, and the revision to read again from. A record
-- that repeats the newest fact known of its source and node is left out: most of a refresh is.
WITH
    said AS
    (
        SELECT cluster, node, source, revision, ifNull(valid_from, observed_at) AS since,
               cityHash64(removed, [gpus_present, gpus_healthy, gpus_allocatable, toUInt16(schedulable)], if(schedulable = 0, [state_raw, reason], [])) AS fingerprint
        FROM node_events
        WHERE @batch
    ),
    known AS
    (
        SELECT cluster, node, source, valid_from, fingerprint
        FROM
        (
            SELECT cluster, node, source, valid_from, valid_to, fingerprint, is_deleted
            FROM node_facts
            WHERE (cluster, node) IN (SELECT cluster, node FROM said)
            ORDER BY version DESC
            LIMIT 1 BY cluster, node, source, valid_from
        )
        WHERE is_deleted = 0 AND valid_to >= '2200-01-01'
    )
SELECT said.cluster AS cluster, said.node AS node, said.source AS source, '' AS topology, min(said.revision) AS first
FROM said
LEFT JOIN known ON said.cluster = known.cluster AND said.node = known.node AND said.source = known.source
WHERE said.fingerprint != known.fingerprint OR said.since < known.valid_from
GROUP BY cluster, node, source
SETTINGS join_use_nulls = 0

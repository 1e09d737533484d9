-- Effective membership: which NVLink domain and partition a node was in, by interval [valid_from, valid_to).
-- '' = unknown: it never equals another unknown. valid_to 2200-01-01 = still so. A later version of the same
-- (cluster, node, valid_from) replaces an earlier one; is_deleted = 1 withdraws an interval.
-- shard: cityHash64(cluster, node)
CREATE TABLE membership
(
    cluster    LowCardinality(String),
    node       LowCardinality(String),
    valid_from DateTime64(3, 'UTC'),
    valid_to   DateTime64(3, 'UTC'),
    domain     LowCardinality(String),
    partition  LowCardinality(String),
    levels     Map(LowCardinality(String), LowCardinality(String)),
    source     LowCardinality(String),
    reason     LowCardinality(String), -- why unknown: no_source, in_progress, unhealthy, conflict, removed; else ''
    generation UInt64,                 -- of the cluster's whole membership view; grows with each change
    version    UInt64,
    is_deleted UInt8
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, node, valid_from);

-- Nodes on whose domain two sources disagree. valid_to 2200-01-01 = still so.
-- shard: cityHash64(cluster, node)
CREATE TABLE topology_conflicts
(
    cluster    LowCardinality(String),
    node       LowCardinality(String),
    source_a   LowCardinality(String), -- the one that won by precedence
    domain_a   LowCardinality(String),
    source_b   LowCardinality(String),
    domain_b   LowCardinality(String), -- as source_b names it
    detail     String,
    valid_from DateTime64(3, 'UTC'),
    valid_to   DateTime64(3, 'UTC'),
    version    UInt64,
    is_deleted UInt8
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, node, source_a, source_b, valid_from);

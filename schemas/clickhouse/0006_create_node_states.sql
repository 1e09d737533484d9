-- Capacity of a node by interval [valid_from, valid_to). gpus_usable NULL = not known.
-- shard: cityHash64(cluster, node)
CREATE TABLE node_states
(
    cluster      LowCardinality(String),
    node         LowCardinality(String),
    valid_from   DateTime64(3, 'UTC'),
    valid_to     DateTime64(3, 'UTC'),
    gpus_present Nullable(UInt16),
    gpus_usable  Nullable(UInt16), -- healthy and schedulable: what a job could be given if nothing were held
    schedulable  Nullable(Bool),
    state_raw    LowCardinality(String),
    reason       LowCardinality(String),
    version      UInt64,
    is_deleted   UInt8
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, node, valid_from);

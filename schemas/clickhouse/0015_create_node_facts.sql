-- What each source says of each node's capacity, by interval [valid_from, valid_to): node_events without their
-- repetitions. state_raw and reason are kept where the source says that the node takes no jobs.
-- shard: cityHash64(cluster, node)
CREATE TABLE node_facts
(
    cluster          LowCardinality(String),
    node             LowCardinality(String),
    source           LowCardinality(String),
    valid_from       DateTime64(3, 'UTC'),
    valid_to         DateTime64(3, 'UTC'),
    gpus_present     Nullable(UInt16),
    gpus_healthy     Nullable(UInt16),
    gpus_allocatable Nullable(UInt16),
    schedulable      Nullable(Bool),
    state_raw        LowCardinality(String),
    reason           LowCardinality(String),
    removed          Bool,
    revision         UInt64, -- of the record that began the interval
    fingerprint      UInt64, -- of what the newest such record says: a refresh with the same one says nothing new
    version          UInt64,
    is_deleted       UInt8
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, node, source, valid_from);

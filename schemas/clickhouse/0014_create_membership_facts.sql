-- What each source says of where each node sits, by interval [valid_from, valid_to): membership_events without their
-- repetitions. The pass finds here whether a record says anything new, and what the names of one source mean in
-- another; people find here what a source said. domain '' = it tells none, for the reason given (words of
-- membership.reason).
-- shard: cityHash64(cluster, node)
CREATE TABLE membership_facts
(
    cluster     LowCardinality(String),
    node        LowCardinality(String),
    source      LowCardinality(String),
    topology    LowCardinality(String),
    valid_from  DateTime64(3, 'UTC'),
    valid_to    DateTime64(3, 'UTC'),
    domain      LowCardinality(String), -- as the source names it
    partition   LowCardinality(String),
    levels      Map(LowCardinality(String), LowCardinality(String)),
    reason      LowCardinality(String),
    revision    UInt64, -- of the record that began the interval
    fingerprint UInt64, -- of what the newest such record says: a refresh with the same one says nothing new
    version     UInt64,
    is_deleted  UInt8
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, node, source, topology, valid_from);

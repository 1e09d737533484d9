CREATE TABLE IF NOT EXISTS `spillway`.node_facts_local ON CLUSTER `fabric`
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
    revision         UInt64,
    fingerprint      UInt64,
    version          UInt64,
    is_deleted       UInt8
)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', version, is_deleted)
ORDER BY (cluster, node, source, valid_from);

CREATE OR REPLACE TABLE `spillway`.node_facts ON CLUSTER `fabric` AS `spillway`.node_facts_local
ENGINE = Distributed('fabric', 'spillway', 'node_facts_local', cityHash64(cluster, node));

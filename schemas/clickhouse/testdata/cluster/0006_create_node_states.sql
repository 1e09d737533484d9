CREATE TABLE IF NOT EXISTS `spillway`.node_states_local ON CLUSTER `fabric`
(
    cluster      LowCardinality(String),
    node         LowCardinality(String),
    valid_from   DateTime64(3, 'UTC'),
    valid_to     DateTime64(3, 'UTC'),
    gpus_present Nullable(UInt16),
    gpus_usable  Nullable(UInt16),
    schedulable  Nullable(Bool),
    state_raw    LowCardinality(String),
    reason       LowCardinality(String),
    version      UInt64,
    is_deleted   UInt8
)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', version, is_deleted)
ORDER BY (cluster, node, valid_from);

CREATE OR REPLACE TABLE `spillway`.node_states ON CLUSTER `fabric` AS `spillway`.node_states_local
ENGINE = Distributed('fabric', 'spillway', 'node_states_local', cityHash64(cluster, node));

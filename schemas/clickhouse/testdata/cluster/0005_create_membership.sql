CREATE TABLE IF NOT EXISTS `spillway`.membership_local ON CLUSTER `fabric`
(
    cluster    LowCardinality(String),
    node       LowCardinality(String),
    valid_from DateTime64(3, 'UTC'),
    valid_to   DateTime64(3, 'UTC'),
    domain     LowCardinality(String),
    partition  LowCardinality(String),
    levels     Map(LowCardinality(String), LowCardinality(String)),
    source     LowCardinality(String),
    reason     LowCardinality(String),
    generation UInt64,
    version    UInt64,
    is_deleted UInt8
)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', version, is_deleted)
ORDER BY (cluster, node, valid_from);

CREATE OR REPLACE TABLE `spillway`.membership ON CLUSTER `fabric` AS `spillway`.membership_local
ENGINE = Distributed('fabric', 'spillway', 'membership_local', cityHash64(cluster, node));

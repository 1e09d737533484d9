CREATE TABLE IF NOT EXISTS `spillway`.topology_conflicts_local ON CLUSTER `fabric`
(
    cluster    LowCardinality(String),
    node       LowCardinality(String),
    source_a   LowCardinality(String),
    domain_a   LowCardinality(String),
    source_b   LowCardinality(String),
    domain_b   LowCardinality(String),
    detail     String,
    valid_from DateTime64(3, 'UTC'),
    valid_to   DateTime64(3, 'UTC'),
    version    UInt64,
    is_deleted UInt8
)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', version, is_deleted)
ORDER BY (cluster, node, source_a, source_b, valid_from);

CREATE OR REPLACE TABLE `spillway`.topology_conflicts ON CLUSTER `fabric` AS `spillway`.topology_conflicts_local
ENGINE = Distributed('fabric', 'spillway', 'topology_conflicts_local', cityHash64(cluster, node));

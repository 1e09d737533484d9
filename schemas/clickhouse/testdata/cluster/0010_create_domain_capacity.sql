CREATE TABLE IF NOT EXISTS `spillway`.domain_capacity_local ON CLUSTER `fabric`
(
    cluster       LowCardinality(String),
    domain        LowCardinality(String),
    minute        DateTime('UTC') CODEC(Delta, ZSTD(1)),
    nodes         UInt16,
    nodes_usable  UInt16,
    nodes_free    UInt16,
    gpus          UInt32,
    gpus_usable   UInt32,
    gpus_held     UInt32,
    gpus_probe    UInt32,
    gpus_free     UInt32,
    slot_sizes    Array(UInt16),
    slots         Array(UInt32),
    gpus_basis    LowCardinality(String),
    version       UInt64,
    is_deleted    UInt8,
    INDEX by_version version TYPE minmax GRANULARITY 1
)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', version, is_deleted)
ORDER BY (cluster, domain, minute);

CREATE OR REPLACE TABLE `spillway`.domain_capacity ON CLUSTER `fabric` AS `spillway`.domain_capacity_local
ENGINE = Distributed('fabric', 'spillway', 'domain_capacity_local', cityHash64(cluster, domain));

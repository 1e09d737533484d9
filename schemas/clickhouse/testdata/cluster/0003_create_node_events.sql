CREATE TABLE IF NOT EXISTS `spillway`.node_events_local ON CLUSTER `fabric`
(
    kafka_partition  Int32 CODEC(ZSTD(1)),
    kafka_offset     Int64 CODEC(Delta, ZSTD(1)),
    loaded_at        DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster          LowCardinality(String),
    node             LowCardinality(String),
    source           LowCardinality(String),
    gpus_present     Nullable(UInt16),
    gpus_healthy     Nullable(UInt16),
    gpus_allocatable Nullable(UInt16),
    schedulable      Nullable(Bool),
    state_raw        LowCardinality(String),
    reason           LowCardinality(String),
    reservation      LowCardinality(String),
    removed          Bool,
    valid_from       Nullable(DateTime64(3, 'UTC')),
    observed_at      DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    revision         UInt64 CODEC(Delta, ZSTD(1)),
    INDEX by_offset kafka_offset TYPE minmax GRANULARITY 1,
    INDEX by_loaded loaded_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}')
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, node, source, revision)
TTL toDateTime(loaded_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, replicated_deduplication_window = 10000;

CREATE OR REPLACE TABLE `spillway`.node_events ON CLUSTER `fabric` AS `spillway`.node_events_local
ENGINE = Distributed('fabric', 'spillway', 'node_events_local', kafka_partition);

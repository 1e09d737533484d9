CREATE TABLE IF NOT EXISTS `spillway`.membership_events_local ON CLUSTER `fabric`
(
    kafka_partition  Int32 CODEC(ZSTD(1)),
    kafka_offset     Int64 CODEC(Delta, ZSTD(1)),
    loaded_at        DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster          LowCardinality(String),
    node             LowCardinality(String),
    source           LowCardinality(String),
    topology         LowCardinality(String),
    level            Array(LowCardinality(String)),
    level_value      Array(LowCardinality(String)),
    gpu_index        Array(UInt16),
    gpu_uuid         Array(String) CODEC(ZSTD(1)),
    gpu_cluster_uuid Array(LowCardinality(String)),
    gpu_clique_id    Array(Nullable(UInt32)),
    gpu_state        Array(LowCardinality(String)),
    gpu_status       Array(LowCardinality(String)),
    gpu_health_mask  Array(Nullable(UInt32)),
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

CREATE OR REPLACE TABLE `spillway`.membership_events ON CLUSTER `fabric` AS `spillway`.membership_events_local
ENGINE = Distributed('fabric', 'spillway', 'membership_events_local', kafka_partition);

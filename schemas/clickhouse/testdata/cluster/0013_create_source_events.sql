CREATE TABLE IF NOT EXISTS `spillway`.source_events_local ON CLUSTER `fabric`
(
    kafka_partition Int32 CODEC(ZSTD(1)),
    kafka_offset    Int64 CODEC(Delta, ZSTD(1)),
    loaded_at       DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster         LowCardinality(String),
    source          LowCardinality(String),
    good_at         Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    problem         String CODEC(ZSTD(1)),
    interval_ms     Nullable(UInt32),
    observed_at     DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX by_offset kafka_offset TYPE minmax GRANULARITY 1
)
ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}')
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, source, observed_at)
TTL toDateTime(loaded_at) + INTERVAL 90 DAY
SETTINGS ttl_only_drop_parts = 1, replicated_deduplication_window = 10000;

CREATE OR REPLACE TABLE `spillway`.source_events ON CLUSTER `fabric` AS `spillway`.source_events_local
ENGINE = Distributed('fabric', 'spillway', 'source_events_local', kafka_partition);

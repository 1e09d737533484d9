-- Raw node records: capacity and schedulability.
-- shard: kafka_partition
CREATE TABLE node_events
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
ENGINE = MergeTree
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, node, source, revision)
TTL toDateTime(loaded_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

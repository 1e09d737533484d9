-- When each collector last read its source in full: how old an answer is comes from here.
-- shard: kafka_partition
CREATE TABLE source_events
(
    kafka_partition Int32 CODEC(ZSTD(1)),
    kafka_offset    Int64 CODEC(Delta, ZSTD(1)),
    loaded_at       DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster         LowCardinality(String),
    source          LowCardinality(String),
    good_at         Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)), -- NULL = never yet
    problem         String CODEC(ZSTD(1)),                         -- '' = the newest read was good
    interval_ms     Nullable(UInt32),
    observed_at     DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX by_offset kafka_offset TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, source, observed_at)
TTL toDateTime(loaded_at) + INTERVAL 90 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

-- Raw domain records: the steps in the life of an IMEX or ComputeDomain.
-- shard: kafka_partition
CREATE TABLE domain_events
(
    kafka_partition Int32 CODEC(ZSTD(1)),
    kafka_offset    Int64 CODEC(Delta, ZSTD(1)),
    loaded_at       DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster         LowCardinality(String),
    domain          LowCardinality(String),
    source          LowCardinality(String),
    phase           LowCardinality(String),
    level           Array(LowCardinality(String)),
    level_value     Array(LowCardinality(String)),
    nodes           Array(LowCardinality(String)) CODEC(ZSTD(1)),
    owner           LowCardinality(String),
    observed_at     DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    revision        UInt64 CODEC(Delta, ZSTD(1)),
    INDEX by_offset kafka_offset TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, domain, source, revision)
TTL toDateTime(loaded_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

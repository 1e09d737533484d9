-- Raw workload records: what a training process says of its own speed. NULL = it does not say.
-- shard: kafka_partition
CREATE TABLE workload_events
(
    kafka_partition    Int32 CODEC(ZSTD(1)),
    kafka_offset       Int64 CODEC(Delta, ZSTD(1)),
    loaded_at          DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster            LowCardinality(String),
    job_id             String CODEC(ZSTD(1)),
    workload_key       LowCardinality(String),
    step_seconds       Nullable(Float64) CODEC(ZSTD(1)),
    samples_per_second Nullable(Float64) CODEC(ZSTD(1)),
    goodput            Nullable(Float64) CODEC(ZSTD(1)),
    observed_at        DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    INDEX by_offset kafka_offset TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, job_id, observed_at)
TTL toDateTime(loaded_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS `spillway`.workload_events_local ON CLUSTER `fabric`
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
ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}')
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, job_id, observed_at)
TTL toDateTime(loaded_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, replicated_deduplication_window = 10000;

CREATE OR REPLACE TABLE `spillway`.workload_events ON CLUSTER `fabric` AS `spillway`.workload_events_local
ENGINE = Distributed('fabric', 'spillway', 'workload_events_local', kafka_partition);

CREATE TABLE IF NOT EXISTS `spillway`.benchmark_events_local ON CLUSTER `fabric`
(
    kafka_partition            Int32 CODEC(ZSTD(1)),
    kafka_offset               Int64 CODEC(Delta, ZSTD(1)),
    loaded_at                  DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster                    LowCardinality(String),
    run_id                     String CODEC(ZSTD(1)),
    source                     LowCardinality(String),
    operation                  LowCardinality(String),
    version                    LowCardinality(String),
    gpu_model                  LowCardinality(String),
    node                       Array(LowCardinality(String)),
    node_gpus                  Array(UInt16),
    node_cluster_uuid          Array(LowCardinality(String)),
    multi_node_nvlink          Nullable(Bool),
    size_bytes                 Array(UInt64),
    in_place                   Array(Bool),
    data_type                  Array(LowCardinality(String)),
    reduction                  Array(LowCardinality(String)),
    seconds                    Array(Float64),
    algorithm_bytes_per_second Array(Float64),
    bus_bytes_per_second       Array(Float64),
    wrong_values               Array(Float64),
    wrong_total                Nullable(Int64),
    passed                     Nullable(Bool),
    truncated                  Bool,
    failure                    String CODEC(ZSTD(1)),
    observed_at                DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    revision                   UInt64 CODEC(Delta, ZSTD(1)),
    INDEX by_offset kafka_offset TYPE minmax GRANULARITY 1
)
ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}')
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, observed_at, run_id, revision)
TTL toDateTime(loaded_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, replicated_deduplication_window = 10000;

CREATE OR REPLACE TABLE `spillway`.benchmark_events ON CLUSTER `fabric` AS `spillway`.benchmark_events_local
ENGINE = Distributed('fabric', 'spillway', 'benchmark_events_local', kafka_partition);

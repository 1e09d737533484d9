-- Raw benchmark records: one run of a communication test a row, its message sizes in arrays of one length. A run whose
-- output was read again, or further, has several: the highest revision counts.
-- shard: kafka_partition
CREATE TABLE benchmark_events
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
    node_cluster_uuid          Array(LowCardinality(String)), -- as the test was told it; '' = it was not
    multi_node_nvlink          Nullable(Bool),                -- NULL = the test does not tell
    size_bytes                 Array(UInt64),
    in_place                   Array(Bool),
    data_type                  Array(LowCardinality(String)),
    reduction                  Array(LowCardinality(String)),
    seconds                    Array(Float64),
    algorithm_bytes_per_second Array(Float64),
    bus_bytes_per_second       Array(Float64),
    wrong_values               Array(Float64),                -- NaN = not checked
    wrong_total                Nullable(Int64),               -- NULL = the run ended before it said so
    passed                     Nullable(Bool),                -- NULL = no threshold was given
    truncated                  Bool,
    failure                    String CODEC(ZSTD(1)),
    observed_at                DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    revision                   UInt64 CODEC(Delta, ZSTD(1)),
    INDEX by_offset kafka_offset TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, observed_at, run_id, revision)
TTL toDateTime(loaded_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

CREATE TABLE IF NOT EXISTS `spillway`.job_traffic_local ON CLUSTER `fabric`
(
    cluster               LowCardinality(String) CODEC(ZSTD(1)),
    job_id                String CODEC(ZSTD(1)),
    attempt               String CODEC(ZSTD(1)),
    seq                   UInt16 CODEC(ZSTD(1)),
    minute                DateTime('UTC') CODEC(Delta, ZSTD(1)),
    gpus_measured         UInt32 CODEC(ZSTD(1)),
    nodes_measured        UInt32 CODEC(ZSTD(1)),
    shared_nodes          UInt32 CODEC(ZSTD(1)),
    nvlink_bytes          Nullable(Float64) CODEC(ZSTD(1)),
    nvlink_gpu_seconds    Float64 CODEC(ZSTD(1)),
    scale_out_bytes       Nullable(Float64) CODEC(ZSTD(1)),
    scale_out_gpu_seconds Float64 CODEC(ZSTD(1)),
    nodes                 Array(LowCardinality(String)) CODEC(ZSTD(1)),
    node_gpus             Array(Array(UInt16)) CODEC(ZSTD(1)),
    gpu_nvlink_bytes      Array(Array(Float32)) CODEC(ZSTD(1)),
    node_nvlink_seconds   Array(Float32) CODEC(ZSTD(1)),
    node_scale_out_bytes  Array(Nullable(Float32)) CODEC(ZSTD(1)),
    version               UInt64 CODEC(Delta, ZSTD(1)),
    is_deleted            UInt8 CODEC(ZSTD(1)),
    INDEX by_minute minute TYPE minmax GRANULARITY 1
)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', version, is_deleted)
PARTITION BY toYYYYMM(minute)
ORDER BY (cluster, job_id, attempt, seq, minute)
TTL minute + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1;

CREATE OR REPLACE TABLE `spillway`.job_traffic ON CLUSTER `fabric` AS `spillway`.job_traffic_local
ENGINE = Distributed('fabric', 'spillway', 'job_traffic_local', cityHash64(cluster, job_id));

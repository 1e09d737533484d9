CREATE TABLE IF NOT EXISTS `spillway`.placements_local ON CLUSTER `fabric`
(
    cluster        LowCardinality(String),
    job_id         String CODEC(ZSTD(1)),
    attempt        String CODEC(ZSTD(1)),
    seq            UInt16,
    valid_from     DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    valid_to       DateTime64(3, 'UTC') CODEC(ZSTD(1)),
    nodes          Array(LowCardinality(String)) CODEC(ZSTD(1)),
    node_gpus      Array(Nullable(UInt16)) CODEC(ZSTD(1)),
    node_gpu_index Array(Array(UInt16)) CODEC(ZSTD(1)),
    gpus           Nullable(UInt32),
    gpus_basis     LowCardinality(String),
    probe          Bool,
    expected_end   Nullable(DateTime64(3, 'UTC')),
    version        UInt64,
    is_deleted     UInt8,
    INDEX by_from valid_from TYPE minmax GRANULARITY 1,
    INDEX by_to valid_to TYPE minmax GRANULARITY 1
)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', version, is_deleted)
ORDER BY (cluster, job_id, attempt, seq);

CREATE OR REPLACE TABLE `spillway`.placements ON CLUSTER `fabric` AS `spillway`.placements_local
ENGINE = Distributed('fabric', 'spillway', 'placements_local', cityHash64(cluster, job_id));

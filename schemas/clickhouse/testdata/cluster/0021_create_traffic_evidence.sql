CREATE TABLE IF NOT EXISTS `spillway`.traffic_evidence_local ON CLUSTER `fabric`
(
    cluster                    LowCardinality(String),
    job_id                     String CODEC(ZSTD(1)),
    attempt                    String CODEC(ZSTD(1)),
    seq                        UInt16,
    valid_from                 DateTime64(3, 'UTC'),
    valid_to                   DateTime64(3, 'UTC'),
    holding                    UInt64,
    evidence                   Enum8('unknown' = 0, 'silent_fallback' = 1, 'confirmed' = 2, 'contradicted' = 3,
                                     'in_domain' = 4, 'expected' = 5, 'idle' = 6),
    reason                     LowCardinality(String),
    nvlink_bytes_per_second    Nullable(Float64),
    scale_out_bytes_per_second Nullable(Float64),
    nvlink_bytes               Nullable(Float64),
    scale_out_bytes            Nullable(Float64),
    gpus                       Nullable(UInt32),
    gpus_measured              UInt32,
    seconds                    Float64,
    outlier_nodes              Array(LowCardinality(String)),
    first_minute               DateTime('UTC'),
    last_minute                DateTime('UTC'),
    version                    UInt64,
    is_deleted                 UInt8,
    INDEX by_evidence evidence TYPE set(8) GRANULARITY 1
)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', version, is_deleted)
ORDER BY (cluster, job_id, attempt, seq);

CREATE OR REPLACE TABLE `spillway`.traffic_evidence ON CLUSTER `fabric` AS `spillway`.traffic_evidence_local
ENGINE = Distributed('fabric', 'spillway', 'traffic_evidence_local', cityHash64(cluster, job_id));

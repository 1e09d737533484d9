CREATE TABLE IF NOT EXISTS `spillway`.advice_feedback_local ON CLUSTER `fabric`
(
    told_at    DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster    LowCardinality(String),
    advice_id  String CODEC(ZSTD(1)),
    job_id     String CODEC(ZSTD(1)),
    chosen     Nullable(UInt8),
    slowdown   Nullable(Float32),
    comment    String CODEC(ZSTD(1))
)
ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}')
PARTITION BY toYYYYMM(told_at)
ORDER BY (cluster, advice_id, told_at)
TTL toDateTime(told_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1;

CREATE OR REPLACE TABLE `spillway`.advice_feedback ON CLUSTER `fabric` AS `spillway`.advice_feedback_local
ENGINE = Distributed('fabric', 'spillway', 'advice_feedback_local', cityHash64(cluster, advice_id));

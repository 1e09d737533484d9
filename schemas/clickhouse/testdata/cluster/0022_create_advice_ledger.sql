CREATE TABLE IF NOT EXISTS `spillway`.advice_ledger_local ON CLUSTER `fabric`
(
    asked_at        DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster         LowCardinality(String),
    advice_id       String CODEC(ZSTD(1)),
    request_id      String CODEC(ZSTD(1)),
    caller          LowCardinality(String),
    job_id          String CODEC(ZSTD(1)),
    user            LowCardinality(String),
    job_name        String CODEC(ZSTD(1)),
    tenant          LowCardinality(String),
    class           LowCardinality(String),
    mode            LowCardinality(String),
    gpus            UInt32,
    segment_nodes   UInt32,
    strategy        LowCardinality(String),
    snapshot_seq    UInt64,
    generation      UInt64,
    age_ms          Nullable(UInt32),
    code            LowCardinality(String),
    recommendation  LowCardinality(String),
    wait_s          Nullable(UInt32),
    domains         Array(LowCardinality(String)) CODEC(ZSTD(1)),
    domain_nodes    Array(UInt32) CODEC(ZSTD(1)),
    slowdown_low    Nullable(Float32),
    slowdown_high   Nullable(Float32),
    basis           LowCardinality(String),
    took_us         UInt32,
    answer          String CODEC(ZSTD(3)),
    INDEX by_id advice_id TYPE bloom_filter GRANULARITY 4
)
ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}')
PARTITION BY toYYYYMM(asked_at)
ORDER BY (cluster, asked_at)
TTL toDateTime(asked_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1;

CREATE OR REPLACE TABLE `spillway`.advice_ledger ON CLUSTER `fabric` AS `spillway`.advice_ledger_local
ENGINE = Distributed('fabric', 'spillway', 'advice_ledger_local', cityHash64(cluster, advice_id));

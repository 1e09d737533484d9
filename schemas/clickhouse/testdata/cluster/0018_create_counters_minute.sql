CREATE TABLE IF NOT EXISTS `spillway`.counters_minute_local ON CLUSTER `fabric`
(
    cluster         LowCardinality(String) CODEC(ZSTD(1)),
    node            LowCardinality(String) CODEC(ZSTD(1)),
    source          LowCardinality(String) CODEC(ZSTD(1)),
    entity          Enum8('gpu' = 1, 'mig' = 2, 'link' = 3, 'nic' = 4) CODEC(ZSTD(1)),
    gpu             UInt16 CODEC(ZSTD(1)),
    part            UInt32 CODEC(ZSTD(1)),
    name            LowCardinality(String) CODEC(ZSTD(1)),
    minute          DateTime('UTC') CODEC(Delta, ZSTD(1)),
    first_at        DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    last_at         DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    samples         UInt16 CODEC(ZSTD(1)),
    seconds         Float32 CODEC(ZSTD(1)),
    bytes           Nullable(Float64) CODEC(ZSTD(1)),
    tx_bytes        Nullable(Float64) CODEC(ZSTD(1)),
    rx_bytes        Nullable(Float64) CODEC(ZSTD(1)),
    errors          Nullable(UInt64) CODEC(ZSTD(1)),
    recoveries      Nullable(UInt64) CODEC(ZSTD(1)),
    downs           Nullable(UInt64) CODEC(ZSTD(1)),
    sm_active       Nullable(Float32) CODEC(ZSTD(1)),
    tensor_active   Nullable(Float32) CODEC(ZSTD(1)),
    resets          UInt16 CODEC(ZSTD(1)),
    version         UInt64 CODEC(Delta, ZSTD(1)),
    is_deleted      UInt8 CODEC(ZSTD(1))
)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', version, is_deleted)
PARTITION BY toYYYYMM(minute)
ORDER BY (cluster, toStartOfHour(minute), node, source, entity, gpu, part, name, minute)
TTL minute + INTERVAL 60 DAY
SETTINGS ttl_only_drop_parts = 1;

CREATE OR REPLACE TABLE `spillway`.counters_minute ON CLUSTER `fabric` AS `spillway`.counters_minute_local
ENGINE = Distributed('fabric', 'spillway', 'counters_minute_local', cityHash64(cluster, node));

CREATE TABLE IF NOT EXISTS `spillway`.counters_local ON CLUSTER `fabric`
(
    kafka_partition         Int32 CODEC(ZSTD(1)),
    kafka_offset            Int64 CODEC(Delta, ZSTD(1)),
    loaded_at               DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster                 LowCardinality(String) CODEC(ZSTD(1)),
    node                    LowCardinality(String) CODEC(ZSTD(1)),
    source                  LowCardinality(String) CODEC(ZSTD(1)),
    driver_version          LowCardinality(String) CODEC(ZSTD(1)),
    observed_at             DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    entity                  Enum8('gpu' = 1, 'mig' = 2, 'link' = 3, 'nic' = 4) CODEC(ZSTD(1)),
    gpu                     UInt16 CODEC(ZSTD(1)),
    part                    UInt32 CODEC(ZSTD(1)),
    name                    LowCardinality(String) CODEC(ZSTD(1)),
    uuid                    LowCardinality(String) CODEC(ZSTD(1)),
    model                   LowCardinality(String) CODEC(ZSTD(1)),
    jobs                    LowCardinality(String) CODEC(ZSTD(1)),
    state                   Enum8('' = 0, 'down' = 1, 'up' = 2, 'sleep' = 3, 'traffic_disabled' = 4, 'starting' = 5,
                                  'missing' = 6) CODEC(ZSTD(1)),
    missing                 Bool CODEC(ZSTD(1)),
    reset                   Bool CODEC(ZSTD(1)),
    since                   Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    tx_bytes                Nullable(UInt64) CODEC(Delta, T64('bit'), ZSTD(1)),
    rx_bytes                Nullable(UInt64) CODEC(Delta, T64('bit'), ZSTD(1)),
    bytes_per_second        Nullable(Float32) CODEC(ZSTD(1)),
    tx_bytes_per_second     Nullable(Float32) CODEC(ZSTD(1)),
    rx_bytes_per_second     Nullable(Float32) CODEC(ZSTD(1)),
    errors                  Nullable(UInt64) CODEC(Delta, ZSTD(1)),
    discards                Nullable(UInt64) CODEC(Delta, ZSTD(1)),
    replays                 Nullable(UInt64) CODEC(Delta, ZSTD(1)),
    recoveries              Nullable(UInt64) CODEC(Delta, ZSTD(1)),
    recovery_failures       Nullable(UInt64) CODEC(Delta, ZSTD(1)),
    downs                   Nullable(UInt64) CODEC(Delta, ZSTD(1)),
    symbol_errors           Nullable(UInt64) CODEC(Delta, ZSTD(1)),
    effective_errors        Nullable(UInt64) CODEC(Delta, ZSTD(1)),
    effective_ber           Nullable(Float32) CODEC(ZSTD(1)),
    tx_wait                 Nullable(UInt64) CODEC(Delta, T64('bit'), ZSTD(1)),
    speed_bytes_per_second  Nullable(Float32) CODEC(ZSTD(1)),
    graphics_active         Nullable(Float32) CODEC(ZSTD(1)),
    sm_active               Nullable(Float32) CODEC(ZSTD(1)),
    tensor_active           Nullable(Float32) CODEC(ZSTD(1)),
    pcie_tx_bytes_per_second Nullable(Float32) CODEC(ZSTD(1)),
    pcie_rx_bytes_per_second Nullable(Float32) CODEC(ZSTD(1)),
    c2c_tx_bytes_per_second Nullable(Float32) CODEC(ZSTD(1)),
    c2c_rx_bytes_per_second Nullable(Float32) CODEC(ZSTD(1)),
    INDEX by_offset kafka_offset TYPE minmax GRANULARITY 1,
    INDEX by_loaded loaded_at TYPE minmax GRANULARITY 1
)
ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}')
PARTITION BY toYYYYMMDD(loaded_at)
ORDER BY (cluster, toStartOfHour(observed_at), node, entity, gpu, part, name, observed_at)
TTL toDateTime(loaded_at) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, replicated_deduplication_window = 10000;

CREATE OR REPLACE TABLE `spillway`.counters ON CLUSTER `fabric` AS `spillway`.counters_local
ENGINE = Distributed('fabric', 'spillway', 'counters_local', kafka_partition);

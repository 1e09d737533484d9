-- Raw counters, one row for each GPU, MIG instance, NVLink and NIC port of each scrape. Loaded, never changed. A number
-- that the source did not tell is NULL. Cumulative bytes are kept to 1 MiB, rates to 10 significant bits, ratios of time
-- to 1/1024. The hour before the entity in the key keeps the rows of one entity together, where they compress, and a
-- question about an hour away from the rest of the day.
-- shard: kafka_partition
CREATE TABLE counters
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
    gpu                     UInt16 CODEC(ZSTD(1)),                 -- index on its node; 0 for a NIC, which has none
    part                    UInt32 CODEC(ZSTD(1)),                 -- MIG instance, number of the link, port of the NIC
    name                    LowCardinality(String) CODEC(ZSTD(1)), -- of the NIC
    uuid                    LowCardinality(String) CODEC(ZSTD(1)), -- of the GPU; GID of the NIC's port
    model                   LowCardinality(String) CODEC(ZSTD(1)), -- of the GPU; profile of the instance; link layer of the NIC
    jobs                    LowCardinality(String) CODEC(ZSTD(1)), -- who used the GPU as the source labels it: ids with commas between
    state                   Enum8('' = 0, 'down' = 1, 'up' = 2, 'sleep' = 3, 'traffic_disabled' = 4, 'starting' = 5,
                                  'missing' = 6) CODEC(ZSTD(1)),   -- of a link or port
    missing                 Bool CODEC(ZSTD(1)),                   -- a GPU that the source no longer lists
    reset                   Bool CODEC(ZSTD(1)),                   -- the cumulative columns began anew since the row before
    since                   Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)), -- since when they run unbroken
    tx_bytes                Nullable(UInt64) CODEC(Delta, T64('bit'), ZSTD(1)), -- cumulative: all NVLinks of a GPU, one NVLink, a port
    rx_bytes                Nullable(UInt64) CODEC(Delta, T64('bit'), ZSTD(1)),
    bytes_per_second        Nullable(Float32) CODEC(ZSTD(1)),      -- both directions together
    tx_bytes_per_second     Nullable(Float32) CODEC(ZSTD(1)),
    rx_bytes_per_second     Nullable(Float32) CODEC(ZSTD(1)),
    errors                  Nullable(UInt64) CODEC(Delta, ZSTD(1)), -- this and the following: cumulative
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
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(loaded_at)
ORDER BY (cluster, toStartOfHour(observed_at), node, entity, gpu, part, name, observed_at)
TTL toDateTime(loaded_at) + INTERVAL 7 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

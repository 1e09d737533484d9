-- Counters by minute. A row is computed anew from all raw rows of its minute, never added to: what arrives late, twice or
-- again leaves it as it is or makes it right. What a scrape adds since the one before belongs to the minute of the scrape.
-- shard: cityHash64(cluster, node)
CREATE TABLE counters_minute
(
    cluster         LowCardinality(String) CODEC(ZSTD(1)),
    node            LowCardinality(String) CODEC(ZSTD(1)),
    source          LowCardinality(String) CODEC(ZSTD(1)),
    entity          Enum8('gpu' = 1, 'mig' = 2, 'link' = 3, 'nic' = 4) CODEC(ZSTD(1)),
    gpu             UInt16 CODEC(ZSTD(1)),
    part            UInt32 CODEC(ZSTD(1)),
    name            LowCardinality(String) CODEC(ZSTD(1)),
    minute          DateTime('UTC') CODEC(Delta, ZSTD(1)),
    first_at        DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)), -- the scrape before the first of the minute
    last_at         DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)), -- the last scrape of the minute
    samples         UInt16 CODEC(ZSTD(1)),             -- scrapes
    seconds         Float32 CODEC(ZSTD(1)),            -- that bytes covers
    bytes           Nullable(Float64) CODEC(ZSTD(1)),  -- moved, both directions; from rates where there is no counter
    tx_bytes        Nullable(Float64) CODEC(ZSTD(1)),
    rx_bytes        Nullable(Float64) CODEC(ZSTD(1)),
    errors          Nullable(UInt64) CODEC(ZSTD(1)),   -- new ones
    recoveries      Nullable(UInt64) CODEC(ZSTD(1)),
    downs           Nullable(UInt64) CODEC(ZSTD(1)),
    sm_active       Nullable(Float32) CODEC(ZSTD(1)),  -- mean
    tensor_active   Nullable(Float32) CODEC(ZSTD(1)),
    resets          UInt16 CODEC(ZSTD(1)),             -- times the counters began anew
    version         UInt64 CODEC(Delta, ZSTD(1)),
    is_deleted      UInt8 CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version, is_deleted)
PARTITION BY toYYYYMM(minute)
ORDER BY (cluster, toStartOfHour(minute), node, source, entity, gpu, part, name, minute)
TTL minute + INTERVAL 60 DAY
SETTINGS ttl_only_drop_parts = 1;

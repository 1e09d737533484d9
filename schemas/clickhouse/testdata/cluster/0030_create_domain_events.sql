CREATE TABLE IF NOT EXISTS `spillway`.domain_events_local ON CLUSTER `fabric`
(
    kafka_partition Int32 CODEC(ZSTD(1)),
    kafka_offset    Int64 CODEC(Delta, ZSTD(1)),
    loaded_at       DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster         LowCardinality(String),
    domain          LowCardinality(String),
    source          LowCardinality(String),
    phase           LowCardinality(String),
    level           Array(LowCardinality(String)),
    level_value     Array(LowCardinality(String)),
    nodes           Array(LowCardinality(String)) CODEC(ZSTD(1)),
    owner           LowCardinality(String),
    observed_at     DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    revision        UInt64 CODEC(Delta, ZSTD(1)),
    INDEX by_offset kafka_offset TYPE minmax GRANULARITY 1
)
ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}')
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, domain, source, revision)
TTL toDateTime(loaded_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, replicated_deduplication_window = 10000;

CREATE OR REPLACE TABLE `spillway`.domain_events ON CLUSTER `fabric` AS `spillway`.domain_events_local
ENGINE = Distributed('fabric', 'spillway', 'domain_events_local', kafka_partition);

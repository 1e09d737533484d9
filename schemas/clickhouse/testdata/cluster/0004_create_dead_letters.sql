CREATE TABLE IF NOT EXISTS `spillway`.dead_letters_local ON CLUSTER `fabric`
(
    kafka_partition Int32,
    kafka_offset    Int64,
    loaded_at       DateTime64(3, 'UTC'),
    topic           LowCardinality(String),
    topic_partition Int32,
    topic_offset    Int64,
    stage           LowCardinality(String),
    reason          String CODEC(ZSTD(1)),
    key             String CODEC(ZSTD(1)),
    value           String CODEC(ZSTD(1)),
    observed_at     DateTime64(3, 'UTC')
)
ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}')
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (topic, topic_partition, topic_offset)
TTL toDateTime(loaded_at) + INTERVAL 90 DAY
SETTINGS ttl_only_drop_parts = 1, replicated_deduplication_window = 10000;

CREATE OR REPLACE TABLE `spillway`.dead_letters ON CLUSTER `fabric` AS `spillway`.dead_letters_local
ENGINE = Distributed('fabric', 'spillway', 'dead_letters_local', kafka_partition);

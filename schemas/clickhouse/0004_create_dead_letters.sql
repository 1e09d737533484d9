-- Records that could not be used, whole, with the reason. kafka_partition and kafka_offset are those of the
-- dead-letter topic; topic, topic_partition and topic_offset say where the record came from.
-- shard: kafka_partition
CREATE TABLE dead_letters
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
ENGINE = MergeTree
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (topic, topic_partition, topic_offset)
TTL toDateTime(loaded_at) + INTERVAL 90 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

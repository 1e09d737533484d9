-- How far each pass has read each raw table: every row with kafka_offset < next_offset of that partition is judged.
-- shard: cityHash64(pass)
CREATE TABLE pass_progress
(
    pass            LowCardinality(String),
    raw_table       LowCardinality(String),
    kafka_partition Int32,
    next_offset     Int64,
    version         UInt64
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (pass, raw_table, kafka_partition);

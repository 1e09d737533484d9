CREATE TABLE IF NOT EXISTS `spillway`.pass_progress_local ON CLUSTER `fabric`
(
    pass            LowCardinality(String),
    raw_table       LowCardinality(String),
    kafka_partition Int32,
    next_offset     Int64,
    version         UInt64
)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', version)
ORDER BY (pass, raw_table, kafka_partition);

CREATE OR REPLACE TABLE `spillway`.pass_progress ON CLUSTER `fabric` AS `spillway`.pass_progress_local
ENGINE = Distributed('fabric', 'spillway', 'pass_progress_local', cityHash64(pass));

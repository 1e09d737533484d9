ALTER TABLE `spillway`.source_events_local ON CLUSTER `fabric`
    ADD COLUMN IF NOT EXISTS told_source Array(LowCardinality(String)) AFTER interval_ms,
    ADD COLUMN IF NOT EXISTS told_since Array(DateTime64(3, 'UTC')) CODEC(ZSTD(1)) AFTER told_source,
    ADD COLUMN IF NOT EXISTS told_good Array(DateTime64(3, 'UTC')) CODEC(ZSTD(1)) AFTER told_since;

CREATE OR REPLACE TABLE `spillway`.source_events ON CLUSTER `fabric` AS `spillway`.source_events_local
ENGINE = Distributed('fabric', 'spillway', 'source_events_local', kafka_partition);

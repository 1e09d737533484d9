ALTER TABLE `spillway`.placement_events_local ON CLUSTER `fabric` ADD COLUMN IF NOT EXISTS traceparent String CODEC(ZSTD(1));

CREATE OR REPLACE TABLE `spillway`.placement_events ON CLUSTER `fabric` AS `spillway`.placement_events_local
ENGINE = Distributed('fabric', 'spillway', 'placement_events_local', kafka_partition);

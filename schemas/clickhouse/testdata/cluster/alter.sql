ALTER TABLE `spillway`.placement_events_local ON CLUSTER `fabric` ADD COLUMN IF NOT EXISTS x UInt8;

CREATE OR REPLACE TABLE `spillway`.placement_events ON CLUSTER `fabric` AS `spillway`.placement_events_local
ENGINE = Distributed('fabric', 'spillway', 'placement_events_local', kafka_partition);

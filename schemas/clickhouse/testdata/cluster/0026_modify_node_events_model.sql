ALTER TABLE `spillway`.node_events_local ON CLUSTER `fabric` ADD COLUMN IF NOT EXISTS gpu_model LowCardinality(String) AFTER reservation;

CREATE OR REPLACE TABLE `spillway`.node_events ON CLUSTER `fabric` AS `spillway`.node_events_local
ENGINE = Distributed('fabric', 'spillway', 'node_events_local', kafka_partition);

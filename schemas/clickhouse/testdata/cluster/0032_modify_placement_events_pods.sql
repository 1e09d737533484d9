ALTER TABLE `spillway`.placement_events_local ON CLUSTER `fabric`
    ADD COLUMN IF NOT EXISTS node_pods Array(Array(String)) CODEC(ZSTD(1)) AFTER node_to,
    ADD COLUMN IF NOT EXISTS preemptible_from Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)) AFTER preemptible;

CREATE OR REPLACE TABLE `spillway`.placement_events ON CLUSTER `fabric` AS `spillway`.placement_events_local
ENGINE = Distributed('fabric', 'spillway', 'placement_events_local', kafka_partition);

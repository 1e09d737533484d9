ALTER TABLE `spillway`.placement_events_local ON CLUSTER `fabric`
    ADD COLUMN IF NOT EXISTS priority Nullable(Int64) AFTER planned_nodes,
    ADD COLUMN IF NOT EXISTS preemptible Nullable(Bool) AFTER priority,
    ADD COLUMN IF NOT EXISTS checkpoint Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)) AFTER preemptible,
    ADD COLUMN IF NOT EXISTS checkpoint_every_ms Nullable(Int64) AFTER checkpoint,
    ADD COLUMN IF NOT EXISTS restart_ms Nullable(Int64) AFTER checkpoint_every_ms;

CREATE OR REPLACE TABLE `spillway`.placement_events ON CLUSTER `fabric` AS `spillway`.placement_events_local
ENGINE = Distributed('fabric', 'spillway', 'placement_events_local', kafka_partition);

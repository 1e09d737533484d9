ALTER TABLE `spillway`.attempts_local ON CLUSTER `fabric`
    ADD COLUMN IF NOT EXISTS priority Nullable(Int64) AFTER planned_nodes,
    ADD COLUMN IF NOT EXISTS preemptible Nullable(Bool) AFTER priority,
    ADD COLUMN IF NOT EXISTS checkpoint Nullable(DateTime64(3, 'UTC')) AFTER preemptible,
    ADD COLUMN IF NOT EXISTS checkpoint_every_ms Nullable(Int64) AFTER checkpoint,
    ADD COLUMN IF NOT EXISTS restart_ms Nullable(Int64) AFTER checkpoint_every_ms;

CREATE OR REPLACE TABLE `spillway`.attempts ON CLUSTER `fabric` AS `spillway`.attempts_local
ENGINE = Distributed('fabric', 'spillway', 'attempts_local', cityHash64(cluster, job_id));

ALTER TABLE `spillway`.attempts_local ON CLUSTER `fabric`
    ADD COLUMN IF NOT EXISTS preemptible_from Nullable(DateTime64(3, 'UTC')) AFTER preemptible;

CREATE OR REPLACE TABLE `spillway`.attempts ON CLUSTER `fabric` AS `spillway`.attempts_local
ENGINE = Distributed('fabric', 'spillway', 'attempts_local', cityHash64(cluster, job_id));

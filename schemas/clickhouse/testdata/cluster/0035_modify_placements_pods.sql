ALTER TABLE `spillway`.placements_local ON CLUSTER `fabric`
    ADD COLUMN IF NOT EXISTS node_pods Array(Array(String)) CODEC(ZSTD(1)) AFTER node_gpu_index;

CREATE OR REPLACE TABLE `spillway`.placements ON CLUSTER `fabric` AS `spillway`.placements_local
ENGINE = Distributed('fabric', 'spillway', 'placements_local', cityHash64(cluster, job_id));

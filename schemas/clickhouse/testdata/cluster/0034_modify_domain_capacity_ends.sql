ALTER TABLE `spillway`.domain_capacity_local ON CLUSTER `fabric`
    ADD COLUMN IF NOT EXISTS node_ends Array(DateTime('UTC')) CODEC(Delta(4), ZSTD(1)) AFTER slots;

CREATE OR REPLACE TABLE `spillway`.domain_capacity ON CLUSTER `fabric` AS `spillway`.domain_capacity_local
ENGINE = Distributed('fabric', 'spillway', 'domain_capacity_local', cityHash64(cluster, domain));

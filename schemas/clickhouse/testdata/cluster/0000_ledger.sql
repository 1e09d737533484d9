CREATE DATABASE IF NOT EXISTS `spillway` ON CLUSTER `fabric`;

CREATE TABLE IF NOT EXISTS `spillway`.schema_steps ON CLUSTER `fabric`
(
    name       String,
    sha256     String,
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/all/{database}/{table}', '{shard}-{replica}')
ORDER BY name;

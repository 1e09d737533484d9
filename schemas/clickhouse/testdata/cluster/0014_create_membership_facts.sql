CREATE TABLE IF NOT EXISTS `spillway`.membership_facts_local ON CLUSTER `fabric`
(
    cluster     LowCardinality(String),
    node        LowCardinality(String),
    source      LowCardinality(String),
    topology    LowCardinality(String),
    valid_from  DateTime64(3, 'UTC'),
    valid_to    DateTime64(3, 'UTC'),
    domain      LowCardinality(String),
    partition   LowCardinality(String),
    levels      Map(LowCardinality(String), LowCardinality(String)),
    reason      LowCardinality(String),
    revision    UInt64,
    fingerprint UInt64,
    version     UInt64,
    is_deleted  UInt8
)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', version, is_deleted)
ORDER BY (cluster, node, source, topology, valid_from);

CREATE OR REPLACE TABLE `spillway`.membership_facts ON CLUSTER `fabric` AS `spillway`.membership_facts_local
ENGINE = Distributed('fabric', 'spillway', 'membership_facts_local', cityHash64(cluster, node));

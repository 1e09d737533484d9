CREATE TABLE IF NOT EXISTS `spillway`.verdicts_local ON CLUSTER `fabric`
(
    cluster               LowCardinality(String),
    job_id                String CODEC(ZSTD(1)),
    attempt               String CODEC(ZSTD(1)),
    seq                   UInt16,
    valid_from            DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    valid_to              DateTime64(3, 'UTC') CODEC(ZSTD(1)),
    outcome               Enum8('one_partition' = 1, 'one_domain' = 2, 'minimal_spread' = 3, 'spill' = 4, 'unknown' = 5),
    outcome_reason        LowCardinality(String),
    gpus                  Nullable(UInt32),
    node_count            UInt32,
    unknown_nodes         UInt32,
    domains_used          Nullable(UInt32),
    domains_min           Nullable(UInt32),
    excess_domains        Nullable(Int32),
    partitions_used       Nullable(UInt32),
    domains               Array(LowCardinality(String)) CODEC(ZSTD(1)),
    domain_gpus           Array(Nullable(UInt32)) CODEC(ZSTD(1)),
    domain_nodes          Array(UInt32) CODEC(ZSTD(1)),
    balance               Nullable(Float32),
    smallest_shard        Nullable(UInt32),
    intent                LowCardinality(String),
    intent_met            Nullable(Bool),
    aligned               Bool,
    cause                 LowCardinality(String),
    cause_detail          Map(LowCardinality(String), String),
    membership_source     LowCardinality(String),
    membership_generation UInt64,
    judged_at             DateTime64(3, 'UTC'),
    version               UInt64,
    is_deleted            UInt8,
    INDEX by_from valid_from TYPE minmax GRANULARITY 1,
    INDEX by_to valid_to TYPE minmax GRANULARITY 1,
    INDEX by_outcome outcome TYPE set(8) GRANULARITY 1
)
ENGINE = ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}', version, is_deleted)
ORDER BY (cluster, job_id, attempt, seq);

CREATE OR REPLACE TABLE `spillway`.verdicts ON CLUSTER `fabric` AS `spillway`.verdicts_local
ENGINE = Distributed('fabric', 'spillway', 'verdicts_local', cityHash64(cluster, job_id));

-- One verdict a placement. The verdict of an attempt is that of its latest placement.
-- shard: cityHash64(cluster, job_id)
CREATE TABLE verdicts
(
    cluster               LowCardinality(String),
    job_id                String CODEC(ZSTD(1)),
    attempt               String CODEC(ZSTD(1)),
    seq                   UInt16,
    valid_from            DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    valid_to              DateTime64(3, 'UTC') CODEC(ZSTD(1)),
    outcome               Enum8('one_partition' = 1, 'one_domain' = 2, 'minimal_spread' = 3, 'spill' = 4, 'unknown' = 5),
    outcome_reason        LowCardinality(String),          -- why unknown, or which rule made it a spill: excess, intent
    gpus                  Nullable(UInt32),
    node_count            UInt32,
    unknown_nodes         UInt32,
    domains_used          Nullable(UInt32),                -- NULL = cannot say; with unknown_nodes > 0 it is a lower bound
    domains_min           Nullable(UInt32),
    excess_domains        Nullable(Int32),
    partitions_used       Nullable(UInt32),
    domains               Array(LowCardinality(String)) CODEC(ZSTD(1)),   -- largest shard first
    domain_gpus           Array(Nullable(UInt32)) CODEC(ZSTD(1)),
    domain_nodes          Array(UInt32) CODEC(ZSTD(1)),
    balance               Nullable(Float32),               -- smallest shard / largest shard, 0..1
    smallest_shard        Nullable(UInt32),                -- GPUs
    intent                LowCardinality(String),          -- as text: none, segment=16, switches=1, required domain, ...
    intent_met            Nullable(Bool),
    aligned               Bool,                            -- a segment contract was asked and met
    cause                 LowCardinality(String),          -- policy, timing, repack, capacity; '' = no spill or cannot say
    cause_detail          Map(LowCardinality(String), String), -- the figures behind the cause
    membership_source     LowCardinality(String),
    membership_generation UInt64,
    judged_at             DateTime64(3, 'UTC'),
    version               UInt64,
    is_deleted            UInt8,
    INDEX by_from valid_from TYPE minmax GRANULARITY 1,
    INDEX by_to valid_to TYPE minmax GRANULARITY 1,
    INDEX by_outcome outcome TYPE set(8) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, job_id, attempt, seq);

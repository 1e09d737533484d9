-- What an attempt holds over [valid_from, valid_to): a node replaced or a resize makes the next seq.
-- node_gpus[i] is how many GPUs of nodes[i] are held, NULL = not known.
-- shard: cityHash64(cluster, job_id)
CREATE TABLE placements
(
    cluster        LowCardinality(String),
    job_id         String CODEC(ZSTD(1)),
    attempt        String CODEC(ZSTD(1)),
    seq            UInt16,
    valid_from     DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    valid_to       DateTime64(3, 'UTC') CODEC(ZSTD(1)), -- 2200-01-01 = still held
    nodes          Array(LowCardinality(String)) CODEC(ZSTD(1)),
    node_gpus      Array(Nullable(UInt16)) CODEC(ZSTD(1)),
    node_gpu_index Array(Array(UInt16)) CODEC(ZSTD(1)),
    gpus           Nullable(UInt32),
    gpus_basis     LowCardinality(String), -- exact: told per node; even: total split evenly; unknown
    probe          Bool,
    expected_end   Nullable(DateTime64(3, 'UTC')),
    version        UInt64,
    is_deleted     UInt8,
    INDEX by_from valid_from TYPE minmax GRANULARITY 1,
    INDEX by_to valid_to TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, job_id, attempt, seq);

-- What the traffic of a placement says of its verdict. A placement without a row here, like one whose evidence is unknown,
-- is one that nobody measured: neither confirmed nor cleared.
-- shard: cityHash64(cluster, job_id)
CREATE TABLE traffic_evidence
(
    cluster                    LowCardinality(String),
    job_id                     String CODEC(ZSTD(1)),
    attempt                    String CODEC(ZSTD(1)),
    seq                        UInt16,
    valid_from                 DateTime64(3, 'UTC'), -- of the placement, as it was counted
    valid_to                   DateTime64(3, 'UTC'),
    holding                    UInt64,               -- hash of its nodes and GPUs, likewise
    evidence                   Enum8('unknown' = 0, 'silent_fallback' = 1, 'confirmed' = 2, 'contradicted' = 3,
                                     'in_domain' = 4, 'expected' = 5, 'idle' = 6),
    reason                     LowCardinality(String), -- why it is unknown
    nvlink_bytes_per_second    Nullable(Float64),    -- a GPU, both directions
    scale_out_bytes_per_second Nullable(Float64),
    nvlink_bytes               Nullable(Float64),
    scale_out_bytes            Nullable(Float64),
    gpus                       Nullable(UInt32),
    gpus_measured              UInt32,               -- of them, in the usual minute
    seconds                    Float64,              -- measured, of the usual GPU
    outlier_nodes              Array(LowCardinality(String)), -- whose NVLinks move far less than those of the others
    first_minute               DateTime('UTC'),
    last_minute                DateTime('UTC'),
    version                    UInt64,
    is_deleted                 UInt8,
    INDEX by_evidence evidence TYPE set(8) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, job_id, attempt, seq);

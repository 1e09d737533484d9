-- What callers told of an advice afterwards: which job it was for, what they took, and what came of it.
-- shard: cityHash64(cluster, advice_id)
CREATE TABLE advice_feedback
(
    told_at    DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster    LowCardinality(String),
    advice_id  String CODEC(ZSTD(1)),
    job_id     String CODEC(ZSTD(1)),
    chosen     Nullable(UInt8),   -- rank of the candidate taken; 0 = none of them
    slowdown   Nullable(Float32), -- measured by the caller against its best shape
    comment    String CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(told_at)
ORDER BY (cluster, advice_id, told_at)
TTL toDateTime(told_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1;

-- Every answer of the placement advisor, also the refusals: what was asked, what was said and on what it rested. Written
-- in batches and never changed; what became of it is joined in when it is graded.
-- shard: cityHash64(cluster, advice_id)
CREATE TABLE advice_ledger
(
    asked_at        DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster         LowCardinality(String),
    advice_id       String CODEC(ZSTD(1)),           -- named in the answer
    request_id      String CODEC(ZSTD(1)),           -- the caller's own
    caller          LowCardinality(String),          -- api, extender
    job_id          String CODEC(ZSTD(1)),           -- where the caller knew it
    user            LowCardinality(String),
    job_name        String CODEC(ZSTD(1)),
    tenant          LowCardinality(String),
    class           LowCardinality(String),
    mode            LowCardinality(String),
    gpus            UInt32,
    segment_nodes   UInt32,
    strategy        LowCardinality(String),
    snapshot_seq    UInt64,
    generation      UInt64,                          -- membership generation the advice rests on
    age_ms          Nullable(UInt32),                -- of the picture; NULL where it is not known
    code            LowCardinality(String),          -- of a refusal; empty = advice was given
    recommendation  LowCardinality(String),
    wait_s          Nullable(UInt32),                -- until the recommended start; 0 = now
    domains         Array(LowCardinality(String)) CODEC(ZSTD(1)), -- of the recommended candidate
    domain_nodes    Array(UInt32) CODEC(ZSTD(1)),
    slowdown_low    Nullable(Float32),               -- predicted; NULL = no basis
    slowdown_high   Nullable(Float32),
    basis           LowCardinality(String),
    took_us         UInt32,
    answer          String CODEC(ZSTD(3)),           -- the body as it was sent
    INDEX by_id advice_id TYPE bloom_filter GRANULARITY 4
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(asked_at)
ORDER BY (cluster, asked_at)
TTL toDateTime(asked_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1;

-- One row an attempt: one run of a job, folded from all that every source said of it.
-- attempt is the run's key, stable over sources; number counts a job's runs from 0.
-- shard: cityHash64(cluster, job_id)
CREATE TABLE attempts
(
    cluster              LowCardinality(String),
    job_id               String CODEC(ZSTD(1)),
    attempt              String CODEC(ZSTD(1)),
    number               UInt32,
    scheduler            LowCardinality(String),
    components           Array(String) CODEC(ZSTD(1)), -- of a heterogeneous job, else []
    array_job_id         String CODEC(ZSTD(1)),
    array_task           Nullable(UInt32),
    name                 String CODEC(ZSTD(1)),
    user                 LowCardinality(String),
    account              LowCardinality(String),
    queue                LowCardinality(String),
    qos                  LowCardinality(String),
    reservation          LowCardinality(String),
    service_class        LowCardinality(String),
    probe                Bool,
    state                LowCardinality(String),       -- words of placement_events.state
    state_raw            LowCardinality(String),
    submit               Nullable(DateTime64(3, 'UTC')),
    eligible             Nullable(DateTime64(3, 'UTC')),
    start                Nullable(DateTime64(3, 'UTC')),
    end                  Nullable(DateTime64(3, 'UTC')), -- NULL = not ended
    end_earliest         Nullable(DateTime64(3, 'UTC')), -- set = the end lies in [end_earliest, end]
    expected_end         Nullable(DateTime64(3, 'UTC')), -- start + time limit; NULL = no limit known
    requested_gpus       Nullable(UInt32),
    requested_nodes      Nullable(UInt32),
    gpus                 Nullable(UInt32),
    intent_mode          LowCardinality(String),
    intent_level         LowCardinality(String),
    segment_nodes        Nullable(UInt32),
    spread_segments      Bool,
    consolidate_segments Bool,
    exclusive_domain     Bool,
    max_switches         Nullable(UInt32),
    pending_reason       LowCardinality(String),
    planned_start        Nullable(DateTime64(3, 'UTC')),
    planned_nodes        Array(LowCardinality(String)) CODEC(ZSTD(1)),
    sources              Array(LowCardinality(String)),
    observed_first       DateTime64(3, 'UTC'),
    observed_last        DateTime64(3, 'UTC'),
    version              UInt64,
    is_deleted           UInt8,
    INDEX by_start start TYPE minmax GRANULARITY 4,
    INDEX by_user user TYPE set(100) GRANULARITY 4
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, job_id, attempt);

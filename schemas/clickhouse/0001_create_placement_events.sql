-- Raw placement records, one row a record. Loaded, never changed. The partition is by load time, so that one insert
-- block is one part and therefore atomic together with the offsets it holds; for the same reason rows are spread over a
-- cluster by Kafka partition.
-- shard: kafka_partition
CREATE TABLE placement_events
(
    kafka_partition      Int32 CODEC(ZSTD(1)),
    kafka_offset         Int64 CODEC(Delta, ZSTD(1)),
    loaded_at            DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    cluster              LowCardinality(String),
    job_id               String CODEC(ZSTD(1)),
    component            String CODEC(ZSTD(1)),
    scheduler            LowCardinality(String),
    source               LowCardinality(String),
    run_id               String CODEC(ZSTD(1)),
    restart              Nullable(UInt32),
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
    state                Enum8('pending' = 1, 'running' = 2, 'suspended' = 3, 'completing' = 4, 'completed' = 5,
                               'failed' = 6, 'cancelled' = 7, 'timeout' = 8, 'node_fail' = 9, 'preempted' = 10,
                               'requeued' = 11, 'vanished' = 12),
    state_raw            LowCardinality(String),
    submit               Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    eligible             Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    start                Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    end                  Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    end_earliest         Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    time_limit_ms        Nullable(Int64),
    requested_gpus       Nullable(UInt32),
    requested_nodes      Nullable(UInt32),
    gpus                 Nullable(UInt32),
    intent_mode          Enum8('none' = 0, 'unconstrained' = 1, 'preferred' = 2, 'required' = 3),
    intent_level         LowCardinality(String),
    segment_nodes        Nullable(UInt32),
    spread_segments      Bool,
    consolidate_segments Bool,
    exclusive_domain     Bool,
    max_switches         Nullable(UInt32),
    max_switch_wait_ms   Nullable(Int64),
    nodes                Array(LowCardinality(String)) CODEC(ZSTD(1)),
    node_gpus            Array(Nullable(UInt16)) CODEC(ZSTD(1)),
    node_gpu_index       Array(Array(UInt16)) CODEC(ZSTD(1)),
    node_from            Array(Nullable(DateTime64(3, 'UTC'))) CODEC(ZSTD(1)),
    node_to              Array(Nullable(DateTime64(3, 'UTC'))) CODEC(ZSTD(1)),
    partial              Bool,
    pending_reason       LowCardinality(String),
    planned_start        Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    planned_nodes        Array(LowCardinality(String)) CODEC(ZSTD(1)),
    observed_at          DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    revision             UInt64 CODEC(Delta, ZSTD(1)),
    INDEX by_offset kafka_offset TYPE minmax GRANULARITY 1,
    INDEX by_loaded loaded_at TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, job_id, revision)
TTL toDateTime(loaded_at) + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;

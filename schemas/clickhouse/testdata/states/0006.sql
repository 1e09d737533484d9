-- A database as it was after step 0006. Recorded once, never changed.

CREATE TABLE dead_letters
(
    `kafka_partition` Int32,
    `kafka_offset` Int64,
    `loaded_at` DateTime64(3, 'UTC'),
    `topic` LowCardinality(String),
    `topic_partition` Int32,
    `topic_offset` Int64,
    `stage` LowCardinality(String),
    `reason` String CODEC(ZSTD(1)),
    `key` String CODEC(ZSTD(1)),
    `value` String CODEC(ZSTD(1)),
    `observed_at` DateTime64(3, 'UTC')
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (topic, topic_partition, topic_offset)
TTL toDateTime(loaded_at) + toIntervalDay(90)
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000, index_granularity = 8192;

CREATE TABLE membership
(
    `cluster` LowCardinality(String),
    `node` LowCardinality(String),
    `valid_from` DateTime64(3, 'UTC'),
    `valid_to` DateTime64(3, 'UTC'),
    `domain` LowCardinality(String),
    `partition` LowCardinality(String),
    `levels` Map(LowCardinality(String), LowCardinality(String)),
    `source` LowCardinality(String),
    `reason` LowCardinality(String),
    `generation` UInt64,
    `version` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, node, valid_from)
SETTINGS index_granularity = 8192;

CREATE TABLE membership_events
(
    `kafka_partition` Int32 CODEC(ZSTD(1)),
    `kafka_offset` Int64 CODEC(Delta(8), ZSTD(1)),
    `loaded_at` DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `cluster` LowCardinality(String),
    `node` LowCardinality(String),
    `source` LowCardinality(String),
    `topology` LowCardinality(String),
    `level` Array(LowCardinality(String)),
    `level_value` Array(LowCardinality(String)),
    `gpu_index` Array(UInt16),
    `gpu_uuid` Array(String) CODEC(ZSTD(1)),
    `gpu_cluster_uuid` Array(LowCardinality(String)),
    `gpu_clique_id` Array(Nullable(UInt32)),
    `gpu_state` Array(LowCardinality(String)),
    `gpu_status` Array(LowCardinality(String)),
    `gpu_health_mask` Array(Nullable(UInt32)),
    `removed` Bool,
    `valid_from` Nullable(DateTime64(3, 'UTC')),
    `observed_at` DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `revision` UInt64 CODEC(Delta(8), ZSTD(1)),
    INDEX by_offset kafka_offset TYPE minmax GRANULARITY 1,
    INDEX by_loaded loaded_at TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, node, source, revision)
TTL toDateTime(loaded_at) + toIntervalDay(400)
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000, index_granularity = 8192;

CREATE TABLE node_events
(
    `kafka_partition` Int32 CODEC(ZSTD(1)),
    `kafka_offset` Int64 CODEC(Delta(8), ZSTD(1)),
    `loaded_at` DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `cluster` LowCardinality(String),
    `node` LowCardinality(String),
    `source` LowCardinality(String),
    `gpus_present` Nullable(UInt16),
    `gpus_healthy` Nullable(UInt16),
    `gpus_allocatable` Nullable(UInt16),
    `schedulable` Nullable(Bool),
    `state_raw` LowCardinality(String),
    `reason` LowCardinality(String),
    `reservation` LowCardinality(String),
    `removed` Bool,
    `valid_from` Nullable(DateTime64(3, 'UTC')),
    `observed_at` DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `revision` UInt64 CODEC(Delta(8), ZSTD(1)),
    INDEX by_offset kafka_offset TYPE minmax GRANULARITY 1,
    INDEX by_loaded loaded_at TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, node, source, revision)
TTL toDateTime(loaded_at) + toIntervalDay(400)
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000, index_granularity = 8192;

CREATE TABLE node_states
(
    `cluster` LowCardinality(String),
    `node` LowCardinality(String),
    `valid_from` DateTime64(3, 'UTC'),
    `valid_to` DateTime64(3, 'UTC'),
    `gpus_present` Nullable(UInt16),
    `gpus_usable` Nullable(UInt16),
    `schedulable` Nullable(Bool),
    `state_raw` LowCardinality(String),
    `reason` LowCardinality(String),
    `version` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, node, valid_from)
SETTINGS index_granularity = 8192;

CREATE TABLE placement_events
(
    `kafka_partition` Int32 CODEC(ZSTD(1)),
    `kafka_offset` Int64 CODEC(Delta(8), ZSTD(1)),
    `loaded_at` DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `cluster` LowCardinality(String),
    `job_id` String CODEC(ZSTD(1)),
    `component` String CODEC(ZSTD(1)),
    `scheduler` LowCardinality(String),
    `source` LowCardinality(String),
    `run_id` String CODEC(ZSTD(1)),
    `restart` Nullable(UInt32),
    `array_job_id` String CODEC(ZSTD(1)),
    `array_task` Nullable(UInt32),
    `name` String CODEC(ZSTD(1)),
    `user` LowCardinality(String),
    `account` LowCardinality(String),
    `queue` LowCardinality(String),
    `qos` LowCardinality(String),
    `reservation` LowCardinality(String),
    `service_class` LowCardinality(String),
    `probe` Bool,
    `state` Enum8('pending' = 1, 'running' = 2, 'suspended' = 3, 'completing' = 4, 'completed' = 5, 'failed' = 6, 'cancelled' = 7, 'timeout' = 8, 'node_fail' = 9, 'preempted' = 10, 'requeued' = 11, 'vanished' = 12),
    `state_raw` LowCardinality(String),
    `submit` Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    `eligible` Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    `start` Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    `end` Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    `end_earliest` Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    `time_limit_ms` Nullable(Int64),
    `requested_gpus` Nullable(UInt32),
    `requested_nodes` Nullable(UInt32),
    `gpus` Nullable(UInt32),
    `intent_mode` Enum8('none' = 0, 'unconstrained' = 1, 'preferred' = 2, 'required' = 3),
    `intent_level` LowCardinality(String),
    `segment_nodes` Nullable(UInt32),
    `spread_segments` Bool,
    `consolidate_segments` Bool,
    `exclusive_domain` Bool,
    `max_switches` Nullable(UInt32),
    `max_switch_wait_ms` Nullable(Int64),
    `nodes` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `node_gpus` Array(Nullable(UInt16)) CODEC(ZSTD(1)),
    `node_gpu_index` Array(Array(UInt16)) CODEC(ZSTD(1)),
    `node_from` Array(Nullable(DateTime64(3, 'UTC'))) CODEC(ZSTD(1)),
    `node_to` Array(Nullable(DateTime64(3, 'UTC'))) CODEC(ZSTD(1)),
    `partial` Bool,
    `pending_reason` LowCardinality(String),
    `planned_start` Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    `planned_nodes` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `observed_at` DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `revision` UInt64 CODEC(Delta(8), ZSTD(1)),
    INDEX by_offset kafka_offset TYPE minmax GRANULARITY 1,
    INDEX by_loaded loaded_at TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(loaded_at)
ORDER BY (cluster, job_id, revision)
TTL toDateTime(loaded_at) + toIntervalDay(400)
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000, index_granularity = 8192;

CREATE TABLE schema_steps
(
    `name` String,
    `sha256` String,
    `applied_at` DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree
ORDER BY name
SETTINGS index_granularity = 8192;

INSERT INTO schema_steps (name, sha256) VALUES
    ('0001_create_placement_events', '29333dc3c8ebef5b53016ecadbd7c72e49b857c68d20628368d41aa8c58d5b72'),
    ('0002_create_membership_events', 'ef4e43a65b5074e9e6632d2caea91502247432822ae2d0d2b6f6e815b523032c'),
    ('0003_create_node_events', '770f64045a47ea7c4eccde92b270cf6981aaa3d87915a1002b59ce2ee6585530'),
    ('0004_create_dead_letters', '87ec732cf86dd421e70837da6957a3d707edc6ad3a266ddbf2659b674ea25c00'),
    ('0005_create_membership', '9871d75ab8249b26f2b06a183c7178835c98f5b7b5c4bcefdd9ccfeb3eca9737'),
    ('0006_create_node_states', 'cabfc35e2e8806de5f9c71d534d38341db0a27446ec8de834519b0f9f9bd98ce');

-- A database as it was after step 0012. Recorded once, never changed.

CREATE TABLE attempts
(
    `cluster` LowCardinality(String),
    `job_id` String CODEC(ZSTD(1)),
    `attempt` String CODEC(ZSTD(1)),
    `number` UInt32,
    `scheduler` LowCardinality(String),
    `components` Array(String) CODEC(ZSTD(1)),
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
    `state` LowCardinality(String),
    `state_raw` LowCardinality(String),
    `submit` Nullable(DateTime64(3, 'UTC')),
    `eligible` Nullable(DateTime64(3, 'UTC')),
    `start` Nullable(DateTime64(3, 'UTC')),
    `end` Nullable(DateTime64(3, 'UTC')),
    `end_earliest` Nullable(DateTime64(3, 'UTC')),
    `expected_end` Nullable(DateTime64(3, 'UTC')),
    `requested_gpus` Nullable(UInt32),
    `requested_nodes` Nullable(UInt32),
    `gpus` Nullable(UInt32),
    `intent_mode` LowCardinality(String),
    `intent_level` LowCardinality(String),
    `segment_nodes` Nullable(UInt32),
    `spread_segments` Bool,
    `consolidate_segments` Bool,
    `exclusive_domain` Bool,
    `max_switches` Nullable(UInt32),
    `pending_reason` LowCardinality(String),
    `planned_start` Nullable(DateTime64(3, 'UTC')),
    `planned_nodes` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `sources` Array(LowCardinality(String)),
    `observed_first` DateTime64(3, 'UTC'),
    `observed_last` DateTime64(3, 'UTC'),
    `version` UInt64,
    `is_deleted` UInt8,
    INDEX by_start start TYPE minmax GRANULARITY 4,
    INDEX by_user user TYPE set(100) GRANULARITY 4
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, job_id, attempt)
SETTINGS index_granularity = 8192;

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

CREATE TABLE domain_capacity
(
    `cluster` LowCardinality(String),
    `domain` LowCardinality(String),
    `minute` DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    `nodes` UInt16,
    `nodes_usable` UInt16,
    `nodes_free` UInt16,
    `gpus` UInt32,
    `gpus_usable` UInt32,
    `gpus_held` UInt32,
    `gpus_probe` UInt32,
    `gpus_free` UInt32,
    `slot_sizes` Array(UInt16),
    `slots` Array(UInt32),
    `gpus_basis` LowCardinality(String),
    `version` UInt64,
    `is_deleted` UInt8,
    INDEX by_version version TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, domain, minute)
SETTINGS index_granularity = 8192;

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

CREATE TABLE pass_progress
(
    `pass` LowCardinality(String),
    `raw_table` LowCardinality(String),
    `kafka_partition` Int32,
    `next_offset` Int64,
    `version` UInt64
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (pass, raw_table, kafka_partition)
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

CREATE TABLE placements
(
    `cluster` LowCardinality(String),
    `job_id` String CODEC(ZSTD(1)),
    `attempt` String CODEC(ZSTD(1)),
    `seq` UInt16,
    `valid_from` DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `valid_to` DateTime64(3, 'UTC') CODEC(ZSTD(1)),
    `nodes` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `node_gpus` Array(Nullable(UInt16)) CODEC(ZSTD(1)),
    `node_gpu_index` Array(Array(UInt16)) CODEC(ZSTD(1)),
    `gpus` Nullable(UInt32),
    `gpus_basis` LowCardinality(String),
    `probe` Bool,
    `expected_end` Nullable(DateTime64(3, 'UTC')),
    `version` UInt64,
    `is_deleted` UInt8,
    INDEX by_from valid_from TYPE minmax GRANULARITY 1,
    INDEX by_to valid_to TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, job_id, attempt, seq)
SETTINGS index_granularity = 8192;

CREATE TABLE schema_steps
(
    `name` String,
    `sha256` String,
    `applied_at` DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree
ORDER BY name
SETTINGS index_granularity = 8192;

CREATE TABLE topology_conflicts
(
    `cluster` LowCardinality(String),
    `node` LowCardinality(String),
    `source_a` LowCardinality(String),
    `domain_a` LowCardinality(String),
    `source_b` LowCardinality(String),
    `domain_b` LowCardinality(String),
    `detail` String,
    `valid_from` DateTime64(3, 'UTC'),
    `valid_to` DateTime64(3, 'UTC'),
    `version` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, node, source_a, source_b, valid_from)
SETTINGS index_granularity = 8192;

CREATE TABLE verdicts
(
    `cluster` LowCardinality(String),
    `job_id` String CODEC(ZSTD(1)),
    `attempt` String CODEC(ZSTD(1)),
    `seq` UInt16,
    `valid_from` DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `valid_to` DateTime64(3, 'UTC') CODEC(ZSTD(1)),
    `outcome` Enum8('one_partition' = 1, 'one_domain' = 2, 'minimal_spread' = 3, 'spill' = 4, 'unknown' = 5),
    `outcome_reason` LowCardinality(String),
    `gpus` Nullable(UInt32),
    `node_count` UInt32,
    `unknown_nodes` UInt32,
    `domains_used` Nullable(UInt32),
    `domains_min` Nullable(UInt32),
    `excess_domains` Nullable(Int32),
    `partitions_used` Nullable(UInt32),
    `domains` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `domain_gpus` Array(Nullable(UInt32)) CODEC(ZSTD(1)),
    `domain_nodes` Array(UInt32) CODEC(ZSTD(1)),
    `balance` Nullable(Float32),
    `smallest_shard` Nullable(UInt32),
    `intent` LowCardinality(String),
    `intent_met` Nullable(Bool),
    `aligned` Bool,
    `cause` LowCardinality(String),
    `cause_detail` Map(LowCardinality(String), String),
    `membership_source` LowCardinality(String),
    `membership_generation` UInt64,
    `judged_at` DateTime64(3, 'UTC'),
    `version` UInt64,
    `is_deleted` UInt8,
    INDEX by_from valid_from TYPE minmax GRANULARITY 1,
    INDEX by_to valid_to TYPE minmax GRANULARITY 1,
    INDEX by_outcome outcome TYPE set(8) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, job_id, attempt, seq)
SETTINGS index_granularity = 8192;

INSERT INTO schema_steps (name, sha256) VALUES
    ('0001_create_placement_events', '29333dc3c8ebef5b53016ecadbd7c72e49b857c68d20628368d41aa8c58d5b72'),
    ('0002_create_membership_events', 'ef4e43a65b5074e9e6632d2caea91502247432822ae2d0d2b6f6e815b523032c'),
    ('0003_create_node_events', '770f64045a47ea7c4eccde92b270cf6981aaa3d87915a1002b59ce2ee6585530'),
    ('0004_create_dead_letters', '87ec732cf86dd421e70837da6957a3d707edc6ad3a266ddbf2659b674ea25c00'),
    ('0005_create_membership', '9871d75ab8249b26f2b06a183c7178835c98f5b7b5c4bcefdd9ccfeb3eca9737'),
    ('0006_create_node_states', 'cabfc35e2e8806de5f9c71d534d38341db0a27446ec8de834519b0f9f9bd98ce'),
    ('0007_create_attempts', '19cff8691b22620c58490c4c4ed5f02aad5c0d5dca955ef95660e5e06ce96bc2'),
    ('0008_create_placements', '58a49920c91d6aae1a7971d8330bab55f9671dffb38ad1fc372a76019f0114f0'),
    ('0009_create_verdicts', 'a5d86c324a5fc965f742681951c31f4862fe96cc661fbb592fa19e8ec3dbbc15'),
    ('0010_create_domain_capacity', '864637ea8d33031b357f4716c875d494b914db2175af63e76664524ecf20fe07'),
    ('0011_create_topology_conflicts', '55f059bb0476abb588cad586081d00bed1204a0029ca38cfbb5a43cef2873945'),
    ('0012_create_pass_progress', 'f46b251e65b65e11dccfe68dfe7e9cd3775c3e1e40ccab5f89410073ce81f05f');

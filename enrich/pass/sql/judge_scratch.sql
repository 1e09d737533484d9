-- What one chunk's statements hand on to the next. Memory tables: nothing here outlives a chunk. Made anew by every
-- process: another version of it may have left them in another shape.
DROP TABLE IF EXISTS pass_sizes_{{.}} SYNC;
CREATE TABLE pass_sizes_{{.}}
(
    at            DateTime64(3, 'UTC'), -- from then on
    largest_nodes UInt64,               -- nodes of the domain with most
    assumed       UInt8,                -- some node's GPUs are the usual number, nobody counted them
    unsized       UInt8,                -- some node's GPUs are not even usual
    by_domain     Map(UInt64, UInt64),  -- usable GPUs by hash of the domain
    largest_first Array(UInt64),        -- usable GPUs of the largest, the two largest, ... domains
    nodes_first   Array(UInt64)         -- nodes of the domain with most, the two with most, ...
)
ENGINE = Memory;
DROP TABLE IF EXISTS pass_placed_{{.}} SYNC;
CREATE TABLE pass_placed_{{.}}
(
    chunk                UInt64,
    id                   UInt32,
    job_id               String,
    attempt              String,
    seq                  UInt16,
    valid_from           DateTime64(3, 'UTC'),
    valid_to             DateTime64(3, 'UTC'),
    nodes                Array(LowCardinality(String)),
    node_gpus            Array(Nullable(UInt16)),
    gpus                 UInt32, -- 0 = none or not known
    requested_nodes      Nullable(UInt32),
    probe                Bool,
    expected_end         Nullable(DateTime64(3, 'UTC')),
    is_deleted           UInt8,
    mode                 LowCardinality(String),
    level                LowCardinality(String),
    segment              UInt32,
    spread_segments      Bool,
    consolidate_segments Bool,
    exclusive            Bool,
    max_switches         UInt32
)
ENGINE = Memory;
DROP TABLE IF EXISTS pass_spread_{{.}} SYNC;
CREATE TABLE pass_spread_{{.}}
(
    id                UInt32,
    unknown_nodes     UInt32,
    unknown_reason    String,
    late_nodes        Array(Tuple(String, String)), -- node and domain, where no domain was known yet at the start
    domains           Array(String),                -- largest shard first
    domain_gpus       Array(Nullable(UInt32)),
    domain_nodes      Array(UInt32),
    used              UInt32,
    partitions_used   UInt32,
    partition_unknown UInt8,
    levels_used       UInt32,                       -- distinct values of the level asked for
    level_unknown     UInt8,
    source            String,
    generation        UInt64,
    sized             UInt8,                        -- domain sizes are known
    assumed           UInt8,
    largest_nodes     UInt64,
    largest_first     Array(UInt64),
    nodes_first       Array(UInt64)
)
ENGINE = Memory;
DROP TABLE IF EXISTS pass_facts_{{.}} SYNC;
CREATE TABLE pass_facts_{{.}}
(
    chunk                UInt64,
    id                   UInt32,
    job_id               String,
    attempt              String,
    seq                  UInt16,
    valid_from           DateTime64(3, 'UTC'),
    valid_to             DateTime64(3, 'UTC'),
    nodes                Array(LowCardinality(String)),
    node_gpus            Array(Nullable(UInt16)),
    late_nodes           Array(Tuple(String, String)), -- node and domain, where no domain was known yet at the start
    probe                Bool,
    expected_end         Nullable(DateTime64(3, 'UTC')),
    judged               UInt8,                        -- 0 = there is nothing on NVLink to judge (any more)
    mode                 LowCardinality(String),
    level                LowCardinality(String),
    segment              UInt32,
    spread_segments      Bool,
    consolidate_segments Bool,
    exclusive            Bool,
    max_switches         UInt32,
    gpus                 UInt32,
    node_count           UInt32,
    unknown_nodes        UInt32,
    unknown_reason       String,
    domains              Array(String),                -- largest shard first
    domain_gpus          Array(Nullable(UInt32)),
    domain_nodes         Array(UInt32),
    used                 UInt32,
    partitions_used      UInt32,
    partition_unknown    UInt8,
    levels_used          UInt32,                       -- distinct values of the level asked for
    level_unknown        UInt8,
    source               String,
    generation           UInt64,
    sized                UInt8,                        -- domain sizes are known
    assumed              UInt8,
    fewest               Nullable(UInt32),
    segment_asked        UInt8,
    segment_met          UInt8,
    disputed             UInt8
)
ENGINE = Memory;
DROP TABLE IF EXISTS pass_holdings_{{.}} SYNC;
CREATE TABLE pass_holdings_{{.}}
(
    node   String,
    ats    Array(DateTime64(3, 'UTC')),
    homes  Array(String),
    usable Array(Int64),
    held   Array(Int64),
    due    Array(Int64)
)
ENGINE = Memory;
DROP TABLE IF EXISTS pass_free_{{.}} SYNC;
CREATE TABLE pass_free_{{.}}
(
    id             UInt32,
    held_by_others Int64,        -- in the domains the placement uses
    free_first     Array(Int64), -- free GPUs of every domain, most first
    later_first    Array(Int64)
)
ENGINE = Memory;
DROP TABLE IF EXISTS pass_verdicts_{{.}} SYNC;
CREATE TABLE pass_verdicts_{{.}} ENGINE = Memory EMPTY AS SELECT * FROM verdicts;

-- Capacity of each NVLink domain by minute, kept for ever. A row is written for a minute in which something changed;
-- the state holds until the next row of the domain.
-- shard: cityHash64(cluster, domain)
CREATE TABLE domain_capacity
(
    cluster       LowCardinality(String),
    domain        LowCardinality(String),
    minute        DateTime('UTC') CODEC(Delta, ZSTD(1)),
    nodes         UInt16,
    nodes_usable  UInt16,
    nodes_free    UInt16,                 -- usable and wholly free
    gpus          UInt32,
    gpus_usable   UInt32,
    gpus_held     UInt32,                 -- by real jobs
    gpus_probe    UInt32,                 -- by probe jobs: occupied, yet free to any real job
    gpus_free     UInt32,                 -- usable and not held; probe jobs count as free
    slot_sizes    Array(UInt16),          -- GPUs
    slots         Array(UInt32),          -- how many slots of each size fit now
    gpus_basis    LowCardinality(String), -- exact, or assumed where a node's GPU count is not known
    version       UInt64,
    is_deleted    UInt8,
    INDEX by_version version TYPE minmax GRANULARITY 1 -- readers follow what is new
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (cluster, domain, minute);

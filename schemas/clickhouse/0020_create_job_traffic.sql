-- What each placement moved, by minute: the GPUs' NVLinks, and the scale-out ports of its nodes, both directions. Only what
-- was moved while the placement held is counted, so the first and last scrape of a run may be left out; seconds say how
-- much time the bytes cover. NULL = nobody told. Arrays run over the nodes that told anything.
-- shard: cityHash64(cluster, job_id)
CREATE TABLE job_traffic
(
    cluster               LowCardinality(String) CODEC(ZSTD(1)),
    job_id                String CODEC(ZSTD(1)),
    attempt               String CODEC(ZSTD(1)),
    seq                   UInt16 CODEC(ZSTD(1)),
    minute                DateTime('UTC') CODEC(Delta, ZSTD(1)),
    gpus_measured         UInt32 CODEC(ZSTD(1)),              -- GPUs whose NVLinks were told of
    nodes_measured        UInt32 CODEC(ZSTD(1)),              -- nodes whose scale-out ports were, and which nobody shared
    shared_nodes          UInt32 CODEC(ZSTD(1)),              -- others held GPUs there too: the ports tell nothing of this job
    nvlink_bytes          Nullable(Float64) CODEC(ZSTD(1)),
    nvlink_gpu_seconds    Float64 CODEC(ZSTD(1)),
    scale_out_bytes       Nullable(Float64) CODEC(ZSTD(1)),
    scale_out_gpu_seconds Float64 CODEC(ZSTD(1)),             -- seconds of a node's ports times its GPUs of this placement
    nodes                 Array(LowCardinality(String)) CODEC(ZSTD(1)),
    node_gpus             Array(Array(UInt16)) CODEC(ZSTD(1)),  -- indices of the GPUs that were told of
    gpu_nvlink_bytes      Array(Array(Float32)) CODEC(ZSTD(1)), -- of each
    node_nvlink_seconds   Array(Float32) CODEC(ZSTD(1)),        -- of all GPUs of the node together
    node_scale_out_bytes  Array(Nullable(Float32)) CODEC(ZSTD(1)),
    version               UInt64 CODEC(Delta, ZSTD(1)),
    is_deleted            UInt8 CODEC(ZSTD(1)),
    INDEX by_minute minute TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version, is_deleted)
PARTITION BY toYYYYMM(minute)
ORDER BY (cluster, job_id, attempt, seq, minute)
TTL minute + INTERVAL 400 DAY
SETTINGS ttl_only_drop_parts = 1;

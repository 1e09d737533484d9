-- Through which pods a node's GPUs are held, namespace/name each, and from when on a run may be ended for others. Empty and NULL = not told.
ALTER TABLE placement_events
    ADD COLUMN IF NOT EXISTS node_pods Array(Array(String)) CODEC(ZSTD(1)) AFTER node_to,
    ADD COLUMN IF NOT EXISTS preemptible_from Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)) AFTER preemptible;

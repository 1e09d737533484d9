-- What it takes to move a run: whether it may be ended, in which order, and what of its work that loses. NULL = not told.
ALTER TABLE placement_events
    ADD COLUMN IF NOT EXISTS priority Nullable(Int64) AFTER planned_nodes,
    ADD COLUMN IF NOT EXISTS preemptible Nullable(Bool) AFTER priority,
    ADD COLUMN IF NOT EXISTS checkpoint Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)) AFTER preemptible,
    ADD COLUMN IF NOT EXISTS checkpoint_every_ms Nullable(Int64) AFTER checkpoint,
    ADD COLUMN IF NOT EXISTS restart_ms Nullable(Int64) AFTER checkpoint_every_ms;

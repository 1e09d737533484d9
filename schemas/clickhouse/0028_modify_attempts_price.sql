-- What it takes to move an attempt, as was last told of it; NULL = not told.
ALTER TABLE attempts
    ADD COLUMN IF NOT EXISTS priority Nullable(Int64) AFTER planned_nodes,
    ADD COLUMN IF NOT EXISTS preemptible Nullable(Bool) AFTER priority,
    ADD COLUMN IF NOT EXISTS checkpoint Nullable(DateTime64(3, 'UTC')) AFTER preemptible,
    ADD COLUMN IF NOT EXISTS checkpoint_every_ms Nullable(Int64) AFTER checkpoint,
    ADD COLUMN IF NOT EXISTS restart_ms Nullable(Int64) AFTER checkpoint_every_ms;

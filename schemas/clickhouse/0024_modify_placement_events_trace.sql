-- The trace that a record came with, so that the pass that judged it can be found from it: W3C traceparent, '' = none
-- or not sampled.
ALTER TABLE placement_events ADD COLUMN IF NOT EXISTS traceparent String CODEC(ZSTD(1));

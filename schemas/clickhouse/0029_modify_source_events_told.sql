-- Of which records a collector has told all that its source lists, since when, and of when its last full read is.
ALTER TABLE source_events
    ADD COLUMN IF NOT EXISTS told_source Array(LowCardinality(String)) AFTER interval_ms,
    ADD COLUMN IF NOT EXISTS told_since Array(DateTime64(3, 'UTC')) CODEC(ZSTD(1)) AFTER told_source,
    ADD COLUMN IF NOT EXISTS told_good Array(DateTime64(3, 'UTC')) CODEC(ZSTD(1)) AFTER told_since;

-- From when on an attempt may be ended for others, as was last told of it; NULL = not told.
ALTER TABLE attempts
    ADD COLUMN IF NOT EXISTS preemptible_from Nullable(DateTime64(3, 'UTC')) AFTER preemptible;

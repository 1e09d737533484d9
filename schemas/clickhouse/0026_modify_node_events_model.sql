-- What the node's GPUs are, as its source calls it; '' = not told.
ALTER TABLE node_events ADD COLUMN IF NOT EXISTS gpu_model LowCardinality(String) AFTER reservation;

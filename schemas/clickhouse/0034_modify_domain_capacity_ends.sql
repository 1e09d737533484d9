-- When each node of a domain that is not wholly free would be by the time limits of those who hold it, ascending; 1970 and last =
-- no limit says. As many as nodes less nodes_free; fewer = not kept, as before this step and where no node has GPUs.
ALTER TABLE domain_capacity
    ADD COLUMN IF NOT EXISTS node_ends Array(DateTime('UTC')) CODEC(Delta(4), ZSTD(1)) AFTER slots;

-- Through which pods the GPUs of nodes[i] are held, namespace/name each; empty = not told of.
ALTER TABLE placements
    ADD COLUMN IF NOT EXISTS node_pods Array(Array(String)) CODEC(ZSTD(1)) AFTER node_gpu_index;

-- Computes minutes anew. Parameters: those of deltas, version.
INSERT INTO counters_minute (cluster, node, source, entity, gpu, part, name, minute, first_at, last_at, samples, seconds, bytes, tx_bytes, rx_bytes,
    errors, recoveries, downs, sm_active, tensor_active, resets, version, is_deleted)
SELECT cluster, node, source, entity, gpu, part, name, minute, min(before), max(at), count(), sumIf(gap, moved IS NOT NULL), sum(moved), sum(tx_moved),
       sum(rx_moved), sum(errors_new), sum(recoveries_new), sum(downs_new), avg(sm_active), avg(tensor_active), sum(broken),
       {version:UInt64}, 0
FROM ({deltas})
GROUP BY cluster, node, source, entity, gpu, part, name, minute

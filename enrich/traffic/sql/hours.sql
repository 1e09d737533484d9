-- Computes hours anew from their minutes. Parameters: from, to (of the hours), version.
INSERT INTO counters_hour (cluster, node, source, entity, gpu, part, name, hour, samples, seconds, bytes, tx_bytes, rx_bytes,
    errors, recoveries, downs, sm_active, tensor_active, resets, version, is_deleted)
SELECT cluster, node, source, entity, gpu, part, name, toStartOfHour(minute), sum(samples), sum(seconds), sum(bytes), sum(tx_bytes),
       sum(rx_bytes), sum(errors), sum(recoveries), sum(downs), avgWeighted(sm_active, samples), avgWeighted(tensor_active, samples),
       sum(resets), {version:UInt64}, 0
FROM
(
    SELECT *
    FROM counters_minute
    WHERE minute >= {from:DateTime} AND minute < {to:DateTime}
    ORDER BY version DESC
    LIMIT 1 BY cluster, node, source, entity, gpu, part, name, minute
)
GROUP BY cluster, node, source, entity, gpu, part, name, toStartOfHour(minute)

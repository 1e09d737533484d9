-- What each scrape of a GPU or port adds to the one before, for scrapes in the minutes asked for. A fragment of the other
-- statements. Two rows of one scrape, as after a retry, have no time between them and add nothing. Bytes come from the
-- counters where they run unbroken, else from the rates that the source averaged itself, else they are not known.
-- Parameters: from, to (of the minutes), minutes, max_gap (seconds); scope and edges narrow the nodes.
SELECT cluster, node, source, entity, gpu, part, name, before, at, toStartOfMinute(at) AS minute, gap, broken,
       sm_active, tensor_active, splitByChar(',', if(jobs = jobs0, jobs, '')) AS used_by,
       if(NOT broken AND tx >= tx0, toFloat64(tx - tx0), tx_rate * gap) AS tx_moved,
       if(NOT broken AND rx >= rx0, toFloat64(rx - rx0), rx_rate * gap) AS rx_moved,
       ifNull(tx_moved + rx_moved, both_rate * gap) AS moved,
       if(NOT broken AND errors >= errors0, errors - errors0, NULL) AS errors_new,
       if(NOT broken AND recoveries >= recoveries0, recoveries - recoveries0, NULL) AS recoveries_new,
       if(NOT broken AND downs >= downs0, downs - downs0, NULL) AS downs_new
FROM
(
    SELECT cluster, node, source, entity, gpu, part, name, observed_at AS at, lagInFrame(observed_at) OVER w AS before,
           dateDiff('millisecond', before, at) / 1000 AS gap,
           reset OR ifNull(since > before, 0) OR ifNull(tx_bytes < tx0, 0) OR ifNull(rx_bytes < rx0, 0) AS broken,
           tx_bytes AS tx, lagInFrame(tx_bytes) OVER w AS tx0, rx_bytes AS rx, lagInFrame(rx_bytes) OVER w AS rx0,
           tx_bytes_per_second AS tx_rate, rx_bytes_per_second AS rx_rate, bytes_per_second AS both_rate,
           errors, lagInFrame(errors) OVER w AS errors0, recoveries, lagInFrame(recoveries) OVER w AS recoveries0,
           downs, lagInFrame(downs) OVER w AS downs0, sm_active, tensor_active,
           toString(jobs) AS jobs, lagInFrame(toString(jobs)) OVER w AS jobs0
    FROM counters
    WHERE observed_at >= {from:DateTime64(3)} - toIntervalSecond({max_gap:UInt32}) AND observed_at < {to:DateTime64(3)}
      AND entity IN ('gpu', 'nic') AND NOT missing AND {scope} AND {edges}
    WINDOW w AS (PARTITION BY cluster, node, source, entity, gpu, part, name ORDER BY observed_at ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
)
WHERE at > before AND gap <= {max_gap:UInt32} AND toStartOfMinute(at) IN ({minutes})

-- Which records collectors have told in full, since when, and when the first full read was that they say so of. Parameters:
-- from, until: when that was loaded (Unix ms).
SELECT cluster, told.1 AS told_of, toUnixTimestamp64Milli(told.2) AS since, toUnixTimestamp64Milli(min(told.3)) AS good
FROM source_events
ARRAY JOIN arrayZip(told_source, told_since, told_good) AS told
WHERE loaded_at >= fromUnixTimestamp64Milli({from:Int64}) AND loaded_at < fromUnixTimestamp64Milli({until:Int64})
GROUP BY cluster, told_of, since
ORDER BY cluster, told_of, since

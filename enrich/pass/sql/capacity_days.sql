-- How many nodes were taken by placements of a cluster on each day of a time, in order. Parameters: cluster, first, last
-- (Unix ms).
SELECT toInt64(toUnixTimestamp(toStartOfDay(valid_from))) * 1000 AS day, sum(length(nodes)) AS claims
FROM placements
WHERE cluster = {cluster:String} AND valid_from >= fromUnixTimestamp64Milli({first:Int64}, 'UTC')
  AND valid_from <= fromUnixTimestamp64Milli({last:Int64}, 'UTC')
GROUP BY day
ORDER BY day

-- The records of the sources and nodes in `wanted`, from a revision on, in the order of the source. Rows
-- that no pass has reached yet are left to the pass that does (@seen). Parameters: cluster, first.
SELECT node, source, toUnixTimestamp64Milli(ifNull(valid_from, observed_at)) AS since, revision,
       cityHash64(removed, [gpus_present, gpus_healthy, gpus_allocatable, toUInt16(schedulable)], if(schedulable = 0, [state_raw, reason], [])) AS fingerprint,
       gpus_present, gpus_healthy, gpus_allocatable, schedulable, state_raw, reason, removed
FROM node_events
WHERE cluster = {cluster:String} AND node IN (SELECT node FROM wanted) AND (node, source) IN (SELECT node, source FROM wanted)
  AND revision >= {first:UInt64} AND @seen
ORDER BY node, source, revision, kafka_offset

-- Placements that held GPUs of the nodes of some, in [from, to). Parameters: from, to; {keys} names those.
SELECT DISTINCT cluster, job_id, attempt, seq
FROM ({placed})
WHERE (cluster, node) IN (SELECT cluster, arrayJoin(nodes) FROM placements WHERE {keys})

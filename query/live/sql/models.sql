-- What each node's GPUs are, as a source last told it. Sources tell all of it again within the hour. Parameters: since, open:
-- the moment.
SELECT cluster, node, argMax(gpu_model, revision) AS model
FROM node_events
WHERE loaded_at >= {since:DateTime64(3)} AND loaded_at <= {open:DateTime64(3)} AND gpu_model != ''
GROUP BY cluster, node

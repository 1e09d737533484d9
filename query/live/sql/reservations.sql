-- Which nodes a source last said to be reserved, and for what. Sources tell all of it again within the hour.
-- Parameters: since, open: the moment.
SELECT cluster, node, source, argMax(reservation, revision) AS reservation
FROM node_events
WHERE loaded_at >= {since:DateTime64(3)} AND loaded_at <= {open:DateTime64(3)}
GROUP BY cluster, node, source
HAVING reservation != ''

-- Nodes that have capacity records but no membership at all. Parameters: cluster ('' = any but probe_cluster), at.
SELECT cluster, node
FROM
(
    SELECT cluster, node, valid_to, is_deleted
    FROM node_states
    WHERE valid_from <= {at:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
    ORDER BY version DESC
    LIMIT 1 BY cluster, node, valid_from
)
WHERE is_deleted = 0 AND valid_to > {at:DateTime64(3)}
  AND (cluster, node) NOT IN 
  (
      SELECT cluster, node
      FROM (SELECT cluster, node, is_deleted FROM membership ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
      WHERE is_deleted = 0
  )
ORDER BY cluster, node
LIMIT 1000

-- Every node with its domain and state at a moment; a node that only one of the two tables knows is listed too.
-- Parameters: cluster ('' = any), at.
WITH members AS
(
    SELECT cluster, node, domain
    FROM
    (
        SELECT cluster, node, domain, valid_to, is_deleted
        FROM membership
        WHERE valid_from <= {at:DateTime64(3)} AND ({cluster:String} = '' OR cluster = {cluster:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, node, valid_from
    )
    WHERE is_deleted = 0 AND valid_to > {at:DateTime64(3)}
),
states AS
(
    SELECT cluster, node, gpus_present, gpus_usable, state_raw, reason
    FROM
    (
        SELECT *
        FROM node_states
        WHERE valid_from <= {at:DateTime64(3)} AND ({cluster:String} = '' OR cluster = {cluster:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, node, valid_from
    )
    WHERE is_deleted = 0 AND valid_to > {at:DateTime64(3)}
)
SELECT coalesce(m.cluster, s.cluster) AS cluster, coalesce(m.node, s.node) AS node, ifNull(m.domain, '') AS domain,
       s.gpus_present AS gpus_present, s.gpus_usable AS gpus_usable,
       if(s.node IS NULL, 'no node record', if(s.reason = '', s.state_raw, concat(s.state_raw, ': ', s.reason))) AS state
FROM members AS m
FULL JOIN states AS s ON s.cluster = m.cluster AND s.node = m.node
SETTINGS join_use_nulls = 1

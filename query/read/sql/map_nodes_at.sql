-- Every domain with its nodes and their states at a moment; a node that only one of the two tables knows is listed too, under
-- the empty domain where need be. The lists are texts with the separator 0x1F between: an array is read ten times as slowly.
-- Parameters: cluster ('' = any but probe_cluster), at.
WITH members AS
(
    SELECT cluster, node, domain
    FROM
    (
        SELECT cluster, node, domain, valid_to, is_deleted
        FROM membership
        WHERE valid_from <= {at:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
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
        WHERE valid_from <= {at:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, node, valid_from
    )
    WHERE is_deleted = 0 AND valid_to > {at:DateTime64(3)}
)
SELECT ifNull(coalesce(m.cluster, s.cluster), '') AS cluster, ifNull(m.domain, '') AS domain, arrayStringConcat(groupArray(ifNull(coalesce(m.node, s.node), '')), '\x1F') AS nodes,
       arrayStringConcat(groupArray(ifNull(toString(s.gpus_present), '')), '\x1F') AS gpus_present, arrayStringConcat(groupArray(ifNull(toString(s.gpus_usable), '')), '\x1F') AS gpus_usable,
       arrayStringConcat(groupArray(ifNull(if(s.node IS NULL, 'no node record', if(s.reason = '', s.state_raw, concat(s.state_raw, ': ', s.reason))), '')), '\x1F') AS states
FROM members AS m
FULL JOIN states AS s ON s.cluster = m.cluster AND s.node = m.node
GROUP BY cluster, domain
SETTINGS join_use_nulls = 1

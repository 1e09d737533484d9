-- The nodes of one domain at a moment, with their state. Parameters: cluster, domain, at.
WITH members AS
(
    SELECT node, partition, levels, source, valid_from
    FROM
    (
        SELECT *
        FROM membership
        WHERE cluster = {cluster:String} AND valid_from <= {at:DateTime64(3)}
        ORDER BY version DESC
        LIMIT 1 BY node, valid_from
    )
    WHERE is_deleted = 0 AND valid_to > {at:DateTime64(3)} AND domain = {domain:String}
),
states AS
(
    SELECT node, gpus_present, gpus_usable, schedulable, state_raw, reason
    FROM
    (
        SELECT *
        FROM node_states
        WHERE cluster = {cluster:String} AND valid_from <= {at:DateTime64(3)} AND node IN (SELECT node FROM members)
        ORDER BY version DESC
        LIMIT 1 BY node, valid_from
    )
    WHERE is_deleted = 0 AND valid_to > {at:DateTime64(3)}
)
SELECT m.node AS node, m.partition AS partition, m.levels AS levels, m.source AS source, m.valid_from AS valid_from,
       s.gpus_present AS gpus_present, s.gpus_usable AS gpus_usable, s.schedulable AS schedulable,
       s.state_raw AS state_raw, s.reason AS reason
FROM members AS m
LEFT JOIN states AS s ON s.node = m.node
ORDER BY node
SETTINGS join_use_nulls = 1

-- What GPU models the nodes of each domain were told to have over a time, each from when a node of the domain had it until
-- none had; model '' = nobody tells. A model is that of a node until another is told. Sources tell all of it again within the
-- hour; one day before the time is looked at, for those that were silent. Parameters: cluster ('' = any but probe_cluster),
-- since, until.
WITH told AS
(
    SELECT cluster, node, arraySort(groupArray((first, gpu_model))) AS steps
    FROM
    (
        SELECT cluster, node, gpu_model, min(observed_at) AS first
        FROM node_events
        WHERE loaded_at >= {since:DateTime64(3)} - INTERVAL 1 DAY AND loaded_at <= {until:DateTime64(3)} AND gpu_model != ''
          AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        GROUP BY cluster, node, gpu_model
    )
    GROUP BY cluster, node
),
members AS
(
    SELECT cluster, node, domain, valid_from, valid_to
    FROM
    (
        SELECT cluster, node, domain, valid_from, valid_to, is_deleted
        FROM membership
        WHERE valid_from <= {until:DateTime64(3)}
          AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, node, valid_from
    )
    WHERE is_deleted = 0 AND domain != '' AND valid_to > {since:DateTime64(3)}
)
SELECT cluster, domain, part.2 AS model, min(part.1) AS since, max(part.3) AS until
FROM
(
    SELECT m.cluster AS cluster, m.domain AS domain,
           arrayJoin(if(empty(t.steps), [(m.valid_from, '', m.valid_to)],
               arrayMap((step, i) -> (greatest(step.1, m.valid_from), toString(step.2), if(i < length(t.steps), least(t.steps[i + 1].1, m.valid_to), m.valid_to)),
                   t.steps, arrayEnumerate(t.steps)))) AS part
    FROM members AS m
    LEFT JOIN told AS t ON t.cluster = m.cluster AND t.node = m.node
)
WHERE part.1 < part.3
GROUP BY cluster, domain, model

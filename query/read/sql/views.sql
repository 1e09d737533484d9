-- Where the scheduler's view of a node and Spillway's differ, one row a node and difference; and one row for each cluster
-- whose scheduler tells no topology, so that domains are not compared. A scheduler's topology is Slurm's, or else what
-- topograph wrote for it, or else the labels of the nodes. Parameters: cluster ('' = any but probe_cluster), now.
WITH states AS MATERIALIZED
(
    SELECT cluster, node, gpus_present, gpus_usable, schedulable, state_raw, reason, valid_from
    FROM
    (
        SELECT *
        FROM node_states
        WHERE valid_from <= {now:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, node, valid_from
    )
    WHERE is_deleted = 0 AND valid_to > {now:DateTime64(3)}
),
members AS MATERIALIZED
(
    SELECT cluster, node, domain, source, valid_from
    FROM
    (
        SELECT cluster, node, domain, source, valid_from, valid_to, is_deleted
        FROM membership
        WHERE valid_from <= {now:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, node, valid_from
    )
    WHERE is_deleted = 0 AND valid_to > {now:DateTime64(3)}
),
waiting AS
(
    SELECT cluster, job_id, planned_start, planned_nodes
    FROM
    (
        SELECT cluster, job_id, attempt, state, planned_start, planned_nodes, is_deleted
        FROM attempts
        WHERE (cluster, job_id, attempt) IN
              (SELECT cluster, job_id, attempt FROM attempts WHERE state = 'pending' AND notEmpty(planned_nodes) AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String}))
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0 AND state = 'pending' AND planned_start > {now:DateTime64(3)}
),
held AS MATERIALIZED
(
    SELECT DISTINCT cluster, node
    FROM
    (
        SELECT cluster, nodes, valid_from, valid_to, probe, is_deleted
        FROM placements
        WHERE (cluster, job_id, attempt, seq) IN
              (SELECT cluster, job_id, attempt, seq FROM placements WHERE valid_from <= {now:DateTime64(3)} AND valid_to > {now:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String}))
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    ARRAY JOIN nodes AS node
    WHERE is_deleted = 0 AND probe = 0 AND valid_from <= {now:DateTime64(3)} AND valid_to > {now:DateTime64(3)}
),
clashes AS MATERIALIZED
(
    SELECT cluster, node, source_a, domain_a, source_b, domain_b, valid_from
    FROM
    (
        SELECT *
        FROM topology_conflicts
        WHERE valid_from <= {now:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, node, source_a, source_b, valid_from
    )
    WHERE is_deleted = 0 AND valid_to > {now:DateTime64(3)}
),
told AS MATERIALIZED
(
    SELECT cluster, argMin(name, indexOf(['slurm_topology', 'topograph', 'gfd_label', 'cloud_label'], name)) AS source
    FROM
    (
        SELECT cluster, toString(source) AS name
        FROM membership_events
        WHERE source IN ('slurm_topology', 'topograph', 'gfd_label', 'cloud_label') AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        GROUP BY cluster, node, source
        HAVING argMax(removed, revision) = 0
        UNION ALL
        SELECT cluster, arrayJoin([toString(source_a), toString(source_b)]) FROM clashes
    )
    WHERE name IN ('slurm_topology', 'topograph', 'gfd_label', 'cloud_label')
    GROUP BY cluster
)
SELECT d.cluster AS cluster, d.kind AS kind, d.node AS node, ifNull(m.domain, '') AS domain, d.scheduler AS scheduler, d.ours AS ours, d.since AS since
FROM
(
    -- Two names for where it is.
    SELECT c.cluster AS cluster, 'domain' AS kind, c.node AS node, concat(t.source, ': ', if(c.source_a = t.source, c.domain_a, c.domain_b)) AS scheduler,
           concat(if(c.source_a = t.source, c.source_b, c.source_a), ': ', if(c.source_a = t.source, c.domain_b, c.domain_a), if(c.source_a = t.source, ', the scheduler''s decides', '')) AS ours,
           toNullable(c.valid_from) AS since
    FROM clashes AS c
    INNER JOIN told AS t ON t.cluster = c.cluster
    WHERE t.source IN (c.source_a, c.source_b)

    UNION ALL
    SELECT cluster, 'not_compared', '', '', '', NULL
    FROM (SELECT cluster FROM states UNION DISTINCT SELECT cluster FROM members)
    WHERE cluster NOT IN (SELECT cluster FROM told)

    UNION ALL
    -- Its GPUs are in order and held by nobody, and it gives them to nobody.
    SELECT cluster, 'kept_out', node, if(reason = '', state_raw, concat(state_raw, ': ', reason)), concat(toString(assumeNotNull(gpus_present)), ' GPUs, held by nobody'), toNullable(valid_from)
    FROM states
    WHERE schedulable = 0 AND gpus_present > 0 AND (cluster, node) NOT IN (SELECT cluster, node FROM held)

    UNION ALL
    -- Free here and now, and planned for a job that waits.
    SELECT w.cluster, 'planned', w.node, concat('kept for job ', argMin(w.job_id, w.planned_start), ' from ', toString(toDateTime(min(w.planned_start)))), 'free now', CAST(NULL, 'Nullable(DateTime64(3, \'UTC\'))')
    FROM (SELECT cluster, job_id, planned_start, node FROM waiting ARRAY JOIN planned_nodes AS node) AS w
    WHERE (w.cluster, w.node) NOT IN (SELECT cluster, node FROM held)
    GROUP BY w.cluster, w.node

    UNION ALL
    SELECT cluster, 'not_in_scheduler', node, 'not known', concat('in ', domain, ' by ', source), toNullable(valid_from)
    FROM members
    WHERE domain != '' AND (cluster, node) NOT IN (SELECT cluster, node FROM states)

    UNION ALL
    SELECT cluster, 'not_in_topology', node, state_raw, 'no NVLink domain is known', toNullable(valid_from)
    FROM states
    WHERE (cluster, node) NOT IN (SELECT cluster, node FROM members WHERE domain != '')
) AS d
LEFT JOIN members AS m ON m.cluster = d.cluster AND m.node = d.node
ORDER BY kind = 'not_compared' DESC, cluster, kind, domain, node
LIMIT 5000
SETTINGS join_use_nulls = 1, enable_materialized_cte = 1

-- What every GPU node offers at a moment and what is free on it; sums by domain are that domain's capacity. domain '' =
-- unknown. Counted as domain_capacity is: GPUs are held once however many jobs claim them, a claim of an unknown number
-- holds the node, free = usable and not held by a real job, and a node that nobody counted has the cluster's usual
-- number. Parameters: cluster ('' = any), at.
WITH
    homes AS
    (
        SELECT cluster, node, domain, partition, reason
        FROM membership FINAL
        WHERE ({cluster:String} = '' OR cluster = {cluster:String})
          AND valid_from <= {at:DateTime64(3, 'UTC')} AND valid_to > {at:DateTime64(3, 'UTC')}
    ),
    offers AS
    (
        SELECT cluster, node, ifNull(gpus_present, gpus_usable) AS count, if(schedulable = 0, 0, gpus_usable) AS usable
        FROM node_states FINAL
        WHERE ({cluster:String} = '' OR cluster = {cluster:String})
          AND valid_from <= {at:DateTime64(3, 'UTC')} AND valid_to > {at:DateTime64(3, 'UTC')}
    ),
    holding AS -- in any version: an old one may still say what a newer one has ended
    (
        SELECT cluster, job_id, attempt, seq
        FROM placements
        WHERE ({cluster:String} = '' OR cluster = {cluster:String})
          AND valid_from <= {at:DateTime64(3, 'UTC')} AND valid_to > {at:DateTime64(3, 'UTC')}
    ),
    claims AS
    (
        SELECT cluster, node, held, probe
        FROM
        (
            SELECT cluster, valid_from, valid_to, nodes, node_gpus, probe, is_deleted
            FROM placements
            WHERE (cluster, job_id) IN (SELECT cluster, job_id FROM holding)
              AND (cluster, job_id, attempt, seq) IN (SELECT cluster, job_id, attempt, seq FROM holding)
            ORDER BY version DESC
            LIMIT 1 BY cluster, job_id, attempt, seq
        )
        ARRAY JOIN nodes AS node, node_gpus AS held
        WHERE is_deleted = 0 AND valid_from <= {at:DateTime64(3, 'UTC')} AND valid_to > {at:DateTime64(3, 'UTC')} AND (held IS NULL OR held > 0)
    ),
    usual AS
    (
        SELECT cluster, if(max(nodes) > 0, argMax(gpus, (nodes, gpus)), max(gpus)) AS gpus
        FROM
        (
            SELECT cluster, assumeNotNull(count) AS gpus, count() AS nodes FROM offers WHERE count > 0 GROUP BY cluster, gpus
            UNION ALL
            SELECT cluster, max(assumeNotNull(held)), 0 FROM claims WHERE held > 0 GROUP BY cluster
        )
        GROUP BY cluster
    ),
    facts AS
    (
        SELECT cluster, node, domain, partition, reason, 1 AS homed, 0 AS offered, CAST(NULL AS Nullable(UInt16)) AS count,
               CAST(NULL AS Nullable(UInt16)) AS usable, 0 AS held, 0 AS probe, 0 AS held_blind, 0 AS probe_blind, 0 AS claimed
        FROM homes
        UNION ALL
        SELECT cluster, node, '', '', '', 0, 1, count, usable, 0, 0, 0, 0, 0
        FROM offers
        UNION ALL
        SELECT cluster, node, '', '', '', 0, 0, NULL, NULL, if(probe, 0, ifNull(held, 0)), if(probe, ifNull(held, 0), 0),
               NOT probe AND held IS NULL, probe AND held IS NULL, 1
        FROM claims
    )
SELECT cluster, node, domain, partition, gpus, usable, held, probe, if(usable > held, usable - held, 0) AS free, basis
FROM
(
    SELECT
        f.cluster AS cluster, f.node AS node, f.domain AS domain, f.partition AS partition,
        toUInt32(ifNull(f.count, u.gpus)) AS gpus,
        least(toUInt32(ifNull(f.usable, gpus)), gpus) AS usable,
        if(f.held_blind, gpus, least(toUInt32(f.held), gpus)) AS held,
        if(f.probe_blind, gpus, least(toUInt32(f.probe), gpus)) AS probe,
        multiIf(f.count IS NULL AND u.gpus = 0, 'unknown', f.count IS NULL OR f.held_blind OR f.probe_blind, 'assumed', 'exact') AS basis
    FROM
    (
        SELECT
            cluster, node, max(domain) AS domain, max(partition) AS partition, max(reason) AS reason, max(homed) AS homed,
            max(offered) AS offered, max(count) AS count, max(usable) AS usable, sum(held) AS held, sum(probe) AS probe,
            max(held_blind) AS held_blind, max(probe_blind) AS probe_blind, max(claimed) AS claimed
        FROM facts
        GROUP BY cluster, node
    ) AS f
    LEFT JOIN usual AS u ON f.cluster = u.cluster
    -- Without a domain, a node counts that somebody holds, or that has GPUs and is not gone.
    WHERE f.domain != '' OR f.claimed OR (ifNull(f.count, 1) > 0 AND (f.offered OR f.homed AND f.reason != 'removed'))
)
ORDER BY cluster, domain, node

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
    claims AS
    (
        SELECT cluster, node, ifNull(held, 0) AS gpus, held IS NULL AS blind, probe
        FROM
        (
            SELECT cluster, valid_from, valid_to, nodes, node_gpus, probe, is_deleted
            FROM placements
            WHERE (cluster, job_id) IN -- in any version: an old one may still say what a newer one has ended
            (
                SELECT cluster, job_id
                FROM placements
                WHERE ({cluster:String} = '' OR cluster = {cluster:String})
                  AND valid_from <= {at:DateTime64(3, 'UTC')} AND valid_to > {at:DateTime64(3, 'UTC')}
            )
            ORDER BY version DESC
            LIMIT 1 BY cluster, job_id, attempt, seq
        )
        ARRAY JOIN nodes AS node, node_gpus AS held
        WHERE is_deleted = 0 AND valid_from <= {at:DateTime64(3, 'UTC')} AND valid_to > {at:DateTime64(3, 'UTC')} AND (blind OR gpus > 0)
    ),
    nodes AS
    (
        SELECT
            cluster, node, max(domain) AS domain, max(partition) AS partition, max(reason) AS reason, max(homed) AS homed,
            max(offered) AS offered, max(count) AS count, max(usable) AS usable, sum(held) AS held, sum(probe) AS probe,
            max(held_blind) AS held_blind, max(probe_blind) AS probe_blind, max(most) AS most, max(claimed) AS claimed
        FROM
        (
            SELECT cluster, node, domain, partition, reason, 1 AS homed, 0 AS offered, CAST(NULL AS Nullable(UInt16)) AS count,
                   CAST(NULL AS Nullable(UInt16)) AS usable, 0 AS held, 0 AS probe, 0 AS held_blind, 0 AS probe_blind, 0 AS most, 0 AS claimed
            FROM homes
            UNION ALL
            SELECT cluster, node, '', '', '', 0, 1, count, usable, 0, 0, 0, 0, 0, 0
            FROM offers
            UNION ALL
            SELECT cluster, node, '', '', '', 0, 0, NULL, NULL, if(probe, 0, gpus), if(probe, gpus, 0), NOT probe AND blind,
                   probe AND blind, gpus, 1
            FROM claims
        )
        GROUP BY cluster, node
    )
SELECT cluster, node, domain, partition, gpus, usable, held, probe, if(usable > held, usable - held, 0) AS free, basis
FROM
(
    SELECT
        cluster, node, domain, partition, gpus,
        least(toUInt32(ifNull(n.usable, gpus)), gpus) AS usable,
        if(held_blind, gpus, least(toUInt32(n.held), gpus)) AS held,
        if(probe_blind, gpus, least(toUInt32(n.probe), gpus)) AS probe,
        multiIf(gpus = 0 AND count IS NULL, 'unknown', count IS NULL OR held_blind OR probe_blind, 'assumed', 'exact') AS basis
    FROM
    (
        -- A node that nobody counted has the number of most counted nodes, the larger of equals, or else the most that
        -- is held of one node.
        SELECT *, toUInt32(ifNull(count, if(empty(sizes.1), most_held, arraySort(x -> (x.2, x.1), arrayZip(sizes.1, sizes.2))[-1].1))) AS gpus
        FROM
        (
            SELECT *, max(most) OVER fleet AS most_held, sumMapIf([assumeNotNull(count)], [1], count > 0) OVER fleet AS sizes
            FROM nodes
            WINDOW fleet AS (PARTITION BY cluster)
        )
        -- Without a domain, a node counts that somebody holds, or that has GPUs and is not gone.
        WHERE domain != '' OR claimed OR (ifNull(count, 1) > 0 AND (offered OR homed AND reason != 'removed'))
    ) AS n
)
ORDER BY cluster, domain, node

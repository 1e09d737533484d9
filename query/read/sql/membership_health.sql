-- How many nodes have a known domain now, by cluster and winning source. Parameters: cluster ('' = any but probe_cluster), at.
SELECT cluster, source, reason, count() AS nodes, countIf(domain != '') AS known, uniqExactIf(domain, domain != '') AS domains,
       max(generation) AS generation, max(valid_from) AS changed_at
FROM
(
    SELECT *
    FROM
    (
        SELECT *
        FROM membership
        WHERE valid_from <= {at:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
        ORDER BY version DESC
        LIMIT 1 BY cluster, node, valid_from
    )
    WHERE is_deleted = 0 AND valid_to > {at:DateTime64(3)}
)
GROUP BY cluster, source, reason
ORDER BY cluster, source, reason

-- Nodes on whose domain two sources disagree at a moment. Parameters: cluster ('' = any but probe_cluster), at.
SELECT cluster, node, source_a, domain_a, source_b, domain_b, detail, valid_from
FROM
(
    SELECT *
    FROM topology_conflicts
    WHERE valid_from <= {at:DateTime64(3)} AND ({cluster:String} = '' AND cluster != {probe_cluster:String} OR cluster = {cluster:String})
    ORDER BY version DESC
    LIMIT 1 BY cluster, node, source_a, source_b, valid_from
)
WHERE is_deleted = 0 AND valid_to > {at:DateTime64(3)}
ORDER BY cluster, node, source_a, source_b
LIMIT 1000

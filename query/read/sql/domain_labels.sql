-- What people call each domain: the rack, or else the block, that most of its nodes are in.
SELECT cluster, domain, topK(1)(place)[1] AS label
FROM
(
    SELECT cluster, domain, if(levels['rack'] != '', levels['rack'], levels['block']) AS place
    FROM (SELECT * FROM membership ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
    WHERE domain != '' AND is_deleted = 0 AND valid_to >= '2200-01-01'
)
WHERE place != '' AND place != domain
GROUP BY cluster, domain

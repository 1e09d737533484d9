-- What people call each domain: the rack, or else the block, that most of its nodes are in; empty where none is told.
SELECT cluster, domain, topKIf(1)(place, place NOT IN ('', domain))[1] AS label
FROM
(
    SELECT cluster, domain, if(levels['rack'] != '', levels['rack'], levels['block']) AS place
    FROM (SELECT * FROM membership ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
    WHERE domain != '' AND is_deleted = 0 AND valid_to >= '2200-01-01'
)
GROUP BY cluster, domain

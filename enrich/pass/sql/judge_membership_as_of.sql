    -- Membership as of a placement's start, one row a node of a placement: what holds at its start; where that is
    -- unknown, what is first known while it runs (a fabric registers seconds after boot; hardware does not move).
    said AS
    (
        SELECT node, valid_from, valid_to, domain, partition, toLowCardinality(toJSONString(levels)) AS levels, source, reason, generation -- as text: a map is dear to join
        FROM membership FINAL
        WHERE cluster = {cluster:String}
    ),
    known AS (SELECT * FROM said WHERE domain != ''),
    own AS
    (
        SELECT
            p.id AS id, p.valid_from AS start, p.node AS node, p.node_gpu AS node_gpu,
            now.valid_to > start AND now.domain != '' AS at_start,
            NOT at_start AND later.domain != '' AND later.valid_from < p.valid_to AS in_time,
            multiIf(at_start, now.domain, in_time, later.domain, '') AS domain,
            multiIf(at_start, now.partition, in_time, later.partition, '') AS partition,
            multiIf(at_start, now.source, in_time, later.source, '') AS source,
            multiIf(at_start, now.generation, in_time, later.generation, 0) AS generation,
            multiIf(domain != '', '', now.valid_to > start, now.reason, 'no_source') AS reason,
            multiIf(p.level IN ('', 'domain'), domain, p.level = 'partition', partition, p.level = 'node', node,
                domain != '', JSONExtractString(if(at_start, now.levels, later.levels), p.level), '') AS level_value
        FROM (SELECT id, valid_from, valid_to, level, node, node_gpu FROM pass_placed_{{.}} ARRAY JOIN nodes AS node, node_gpus AS node_gpu) AS p
        ASOF LEFT JOIN said AS now ON p.node = now.node AND p.valid_from >= now.valid_from
        ASOF LEFT JOIN known AS later ON p.node = later.node AND p.valid_from < later.valid_from
    )

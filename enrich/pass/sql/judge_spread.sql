-- Over which domains each placement of pass_placed is spread, and what the domains could have held then.
INSERT INTO pass_spread_{{.}}
WITH
{{template "judge_membership_as_of.sql" .}},
    shards AS -- one row a domain of a placement
    (
        SELECT
            id, domain, toUInt32(count()) AS nodes,
            if(countIf(node_gpu IS NULL) = 0, toNullable(toUInt32(sum(ifNull(node_gpu, 0)))), NULL) AS gpus,
            groupUniqArray(partition) AS partitions,
            groupUniqArrayIf(level_value, level_value != domain) AS level_values,
            countIf(level_value = domain) > 0 AS level_is_domain,
            min(source) AS source_min, max(source) AS source_max, max(reason) AS reason, max(generation) AS generation,
            -- Nodes that no home was known of at that time: they count with the domain they turned out to be in.
            groupArrayIf(toString(node), is_late) AS late_nodes,
            sumIf(toUInt64(greatest(toInt64(ifNull(node_gpu, 0)), toInt64({node_gpus:Int32}), 0)), is_late) AS late_gpus
        FROM
        (
            SELECT *, domain != '' AND if(start < {topology_from:DateTime64(3, 'UTC')}, node NOT IN (SELECT node FROM known WHERE valid_from <= {topology_from:DateTime64(3, 'UTC')} AND valid_to > {topology_from:DateTime64(3, 'UTC')}), NOT at_start) AS is_late
            FROM own
        )
        GROUP BY id, domain
    ),
    spread AS -- one row a placement, largest shard first
    (
        SELECT
            s.id AS of,
            sumIf(nodes, domain = '') AS unknown_nodes,
            maxIf(reason, domain = '') AS unknown_reason,
            arraySort(s -> (-toInt64(ifNull(s.2, 0)), -toInt64(s.3), s.1), groupArrayIf((toString(domain), gpus, nodes), domain != '')) AS shards,
            arrayDistinct(arrayFlatten(groupArrayIf(partitions, domain != ''))) AS all_partitions,
            arrayDistinct(arrayFlatten(groupArrayIf(arrayConcat(level_values, if(level_is_domain, [domain], [])), domain != ''))) AS all_levels,
            mapFromArrays(groupArrayIf(cityHash64(domain), late_gpus > 0), groupArrayIf(s.late_gpus, late_gpus > 0)) AS late_gpus,
            arrayFlatten(groupArray(arrayMap(n -> (n, toString(domain)), late_nodes))) AS late_nodes,
            arrayStringConcat(arrayFilter(x -> x != '', arrayDistinct([toString(min(source_min)), toString(max(source_max))])), ',') AS source,
            max(s.generation) AS generation
        FROM shards AS s
        GROUP BY s.id
    )
SELECT
    p.id AS id,
    toUInt32(s.unknown_nodes) AS unknown_nodes, s.unknown_reason AS unknown_reason, s.late_nodes AS late_nodes,
    s.shards.1 AS domains, s.shards.2 AS domain_gpus, s.shards.3 AS domain_nodes,
    toUInt32(length(s.shards)) AS used,
    toUInt32(length(s.all_partitions)) AS partitions_used, has(s.all_partitions, '') AS partition_unknown,
    toUInt32(length(s.all_levels)) AS levels_used, has(s.all_levels, '') AS level_unknown,
    s.source AS source, s.generation AS generation,
    z.unsized = 0 AND (notEmpty(z.largest_first) OR notEmpty(s.late_gpus)) AS sized, z.assumed AS assumed, z.largest_nodes AS largest_nodes,
    if(empty(s.late_gpus), z.largest_first, arrayMap(m -> arrayCumSum(arrayReverseSort(mapValues(mapAdd(z.by_domain, m)))), if(empty(s.late_gpus), [], [s.late_gpus]))[1]) AS largest_first,
    z.nodes_first AS nodes_first
FROM (SELECT id, valid_from, segment, 1 AS one FROM pass_placed_{{.}}) AS p
LEFT JOIN spread AS s ON p.id = s.of
ASOF LEFT JOIN (SELECT at, 1 AS one FROM pass_sizes_{{.}}) AS t ON p.one = t.one AND p.valid_from >= t.at
-- One domain is the fewest there are: only the others need the sizes.
LEFT JOIN pass_sizes_{{.}} AS z ON if(length(s.shards) > 1 OR s.unknown_nodes > 0 OR p.segment > 0, t.at, NULL) = z.at

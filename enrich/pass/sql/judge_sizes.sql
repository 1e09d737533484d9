-- How many usable GPUs each domain has, for each stretch of [first, last] in which that stays the same.
INSERT INTO pass_sizes_{{.}}
WITH
{{template "judge_capacity_view.sql" .}},
    stretches AS (SELECT DISTINCT greatest(arrayJoin([since, until]), {first:DateTime64(3, 'UTC')}) AS at FROM (SELECT since, until FROM homes UNION ALL SELECT since, until FROM offers) WHERE at <= {last:DateTime64(3, 'UTC')})
SELECT
    at, max(nodes) AS largest_nodes, max(assumed) AS assumed, max(unsized) AS unsized,
    mapFromArrays(groupArray(cityHash64(domain)), groupArray(gpus)) AS by_domain,
    arrayCumSum(arrayReverseSort(groupArray(gpus))) AS largest_first,
    arrayCumSum(arrayReverseSort(groupArray(nodes))) AS nodes_first
FROM
(
    SELECT
        h.at AS at, h.domain AS domain, count() AS nodes,
        countIf(o.until <= h.at OR o.usable < 0) > 0 AS assumed, assumed AND {node_gpus:Int32} < 0 AS unsized,
        sum(toUInt64(greatest(0, if(o.until <= h.at OR o.usable < 0, toInt64({node_gpus:Int32}), o.usable)))) AS gpus
    FROM (SELECT s.at AS at, node, domain FROM homes CROSS JOIN stretches AS s WHERE homes.since <= s.at AND homes.until > s.at) AS h
    ASOF LEFT JOIN offers AS o ON h.node = o.node AND h.at >= o.since
    GROUP BY h.at, h.domain
)
GROUP BY at

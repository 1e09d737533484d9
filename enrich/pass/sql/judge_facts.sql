-- What each placement of the external table touched (id, job_id, attempt, seq) got (D4 to D6): facts, no judgement. All
-- of them are of one cluster and start in [first, last].
INSERT INTO pass_facts_{{.}}
WITH
    placed AS
    (
        SELECT
            t.id AS id, 1 AS one, p.job_id AS job_id, p.attempt AS attempt, p.seq AS seq, p.valid_from AS valid_from, p.valid_to AS valid_to,
            p.nodes AS nodes, p.node_gpus AS node_gpus, toUInt32(ifNull(ifNull(p.gpus, a.gpus), 0)) AS total_gpus, p.probe AS probe, p.expected_end AS expected_end,
            p.is_deleted AS is_deleted, a.intent_mode AS mode, if(ifNull(a.max_switches, 0) > 0, 'leaf', a.intent_level) AS level, ifNull(a.segment_nodes, 0) AS segment, a.spread_segments AS spread_segments,
            a.consolidate_segments AS consolidate_segments, a.exclusive_domain AS exclusive, ifNull(a.max_switches, 0) AS max_switches
        FROM touched AS t
        INNER JOIN
        (
            SELECT job_id, attempt, seq, valid_from, valid_to, nodes, node_gpus, gpus, probe, expected_end, is_deleted
            FROM placements
            WHERE cluster = {cluster:String} AND job_id IN (SELECT job_id FROM touched) AND (job_id, attempt, seq) IN (SELECT job_id, attempt, seq FROM touched)
            ORDER BY version DESC
            LIMIT 1 BY job_id, attempt, seq
        ) AS p ON t.job_id = p.job_id AND t.attempt = p.attempt AND t.seq = p.seq
        LEFT JOIN
        (
            SELECT job_id, attempt, gpus, intent_mode, intent_level, segment_nodes, spread_segments, consolidate_segments, exclusive_domain, max_switches
            FROM attempts
            WHERE cluster = {cluster:String} AND job_id IN (SELECT job_id FROM touched)
            ORDER BY version DESC
            LIMIT 1 BY job_id, attempt
        ) AS a ON p.job_id = a.job_id AND p.attempt = a.attempt
    ),
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
    {chunk:UInt64} AS chunk, id, job_id, attempt, seq, valid_from, valid_to, nodes, node_gpus, late_nodes, probe, expected_end,
    judged, mode, level, segment, spread_segments, consolidate_segments, exclusive, max_switches,
    gpus, node_count, unknown_nodes, unknown_reason, domains, domain_gpus, domain_nodes, used, partitions_used, partition_unknown,
    levels_used, level_unknown, source, generation, sized, assumed, fewest, segment_asked,
    segment_asked AND unknown_nodes = 0 AND arrayAll(n -> n % segment = 0, domain_nodes) AS segment_met,
    -- Whose verdict may depend on what others held.
    judged AND unknown_nodes = 0 AND (exclusive OR sized AND used > 1 AND (ifNull(used > fewest, 0) OR mode = 'required' OR segment_asked)) AS disputed
FROM
(
    SELECT
        *,
        -- The fewest domains whose usable GPUs hold it, largest first (D6); needed 0 = not even all of them together.
        toUInt32(arrayFirstIndex(x -> x >= gpus, largest_first)) AS needed,
        multiIf(unknown_nodes = 0 AND used = 1, toNullable(toUInt32(1)), NOT sized OR used = 0, NULL, unknown_nodes = 0, if(needed = 0, used, least(needed, used)), needed = 0, NULL, needed) AS fewest,
        -- A segment longer than any domain, or one that does not divide the job, is no promise that could be kept.
        segment > 0 AND node_count >= segment AND node_count % segment = 0 AND segment <= greatest(largest_nodes, arrayMax(arrayPushBack(domain_nodes, 0))) AS segment_asked
    FROM
    (
        SELECT
            p.* EXCEPT (is_deleted, total_gpus, one),
            NOT p.is_deleted AND p.total_gpus > 0 AND notEmpty(p.nodes) AS judged,
            p.total_gpus AS gpus, toUInt32(length(p.nodes)) AS node_count,
            toUInt32(s.unknown_nodes) AS unknown_nodes, s.unknown_reason AS unknown_reason, s.late_nodes AS late_nodes,
            s.shards.1 AS domains, s.shards.2 AS domain_gpus, s.shards.3 AS domain_nodes,
            toUInt32(length(s.shards)) AS used,
            toUInt32(length(s.all_partitions)) AS partitions_used, has(s.all_partitions, '') AS partition_unknown,
            toUInt32(length(s.all_levels)) AS levels_used, has(s.all_levels, '') AS level_unknown,
            s.source AS source, s.generation AS generation,
            z.unsized = 0 AND (notEmpty(z.largest_first) OR notEmpty(s.late_gpus)) AS sized, z.assumed AS assumed, z.largest_nodes AS largest_nodes,
            if(empty(s.late_gpus), z.largest_first, arrayMap(m -> arrayCumSum(arrayReverseSort(mapValues(mapAdd(z.by_domain, m)))), if(empty(s.late_gpus), [], [s.late_gpus]))[1]) AS largest_first
        FROM placed AS p
        LEFT JOIN spread AS s ON p.id = s.of
        ASOF LEFT JOIN (SELECT at, 1 AS one FROM pass_sizes_{{.}}) AS t ON p.one = t.one AND p.valid_from >= t.at
        -- One domain is the fewest there are: only the others need the sizes.
        LEFT JOIN pass_sizes_{{.}} AS z ON if(length(s.shards) > 1 OR s.unknown_nodes > 0 OR p.segment > 0, t.at, NULL) = z.at
    )
)

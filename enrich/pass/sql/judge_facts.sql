-- What each placement got: facts, no judgement.
INSERT INTO pass_facts_{{.}}
SELECT
    chunk, id, job_id, attempt, seq, valid_from, valid_to, nodes, node_gpus, late_nodes, probe, expected_end,
    judged, mode, level, segment, spread_segments, consolidate_segments, exclusive, max_switches,
    gpus, node_count, unknown_nodes, unknown_reason, domains, domain_gpus, domain_nodes, used, partitions_used, partition_unknown,
    levels_used, level_unknown, source, generation, sized, assumed, fewest, segment_asked,
    segment_asked AND unknown_nodes = 0 AND arrayAll(n -> n % segment = 0, domain_nodes) AS segment_met,
    -- Whose verdict may depend on what others held.
    judged AND unknown_nodes = 0 AND (exclusive OR sized AND used > 1 AND (ifNull(used > fewest, 0) OR mode = 'required' OR segment_asked)) AS disputed
FROM
(
    SELECT
        p.*, s.* EXCEPT (id),
        NOT p.is_deleted AND p.gpus > 0 AND notEmpty(p.nodes) AS judged, toUInt32(length(p.nodes)) AS node_count,
        -- The fewest domains that hold it, largest first: by their usable GPUs, and by their nodes where it asked for so
        -- many nodes that they cannot share a domain. needed 0 = not even all of them together.
        toUInt32(arrayFirstIndex(x -> x >= p.gpus, s.largest_first)) AS needed_for_gpus,
        toUInt32(arrayFirstIndex(x -> x >= least(ifNull(p.requested_nodes, 0), node_count), s.nodes_first)) AS needed_for_nodes,
        if(needed_for_gpus = 0, 0, greatest(needed_for_gpus, needed_for_nodes)) AS needed,
        multiIf(s.unknown_nodes = 0 AND s.used = 1, toNullable(toUInt32(1)), NOT s.sized OR s.used = 0, NULL, s.unknown_nodes = 0, if(needed = 0, s.used, least(needed, s.used)),
            needed = 0, NULL, needed) AS fewest,
        -- A segment longer than any domain, or one that does not divide the job, is no promise that could be kept.
        p.segment > 0 AND node_count >= p.segment AND node_count % p.segment = 0 AND p.segment <= greatest(s.largest_nodes, arrayMax(arrayPushBack(s.domain_nodes, 0))) AS segment_asked
    FROM pass_placed_{{.}} AS p
    INNER JOIN pass_spread_{{.}} AS s ON p.id = s.id
)

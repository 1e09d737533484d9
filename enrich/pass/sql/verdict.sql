-- The rule of what a spill is, and the only place it is written: from the facts of placements, which come along as the
-- table `facts`, to their verdicts. Parameters: node_gpus (of a node nobody counted, -1 = not known), window_ms.
WITH
    told AS
    (
        SELECT
            f.*,
            toUInt32(length(domain_gpus)) AS used,
            -- The fewest domains that hold it, largest first: by their usable GPUs, and by their nodes where it asked for so
            -- many nodes that they cannot share a domain. needed 0 = not even all of them together.
            if(needed_for_gpus = 0, 0, greatest(needed_for_gpus, needed_for_nodes)) AS needed,
            multiIf(
                unknown_nodes = 0 AND used = 1, toNullable(toUInt32(1)),
                NOT sized OR used = 0, NULL,
                unknown_nodes = 0, if(needed = 0, used, least(needed, used)),
                needed = 0, NULL,
                needed) AS fewest,
            -- A segment longer than any domain, or one that does not divide the job, is no promise that could be kept.
            segment > 0 AND node_count >= segment AND node_count % segment = 0
                AND segment <= greatest(largest_nodes, arrayMax(arrayPushBack(domain_nodes, 0))) AS segment_asked,
            segment_asked AND unknown_nodes = 0 AND arrayAll(n -> n % segment = 0, domain_nodes) AS segment_met
        FROM facts AS f
    ),
    asked AS
    (
        SELECT
            *,
            -- What was asked, one entry a promise: 1 kept, 0 broken, NULL cannot be said.
            level != '' AND mode IN ('preferred', 'required') AND segment = 0 OR max_switches > 0 AS level_asked,
            if(unknown_nodes > 0 OR level_unknown OR levels_used = 0, NULL, toNullable(levels_used <= greatest(max_switches, 1))) AS level_met,
            if(unknown_nodes > 0 OR empty(free_first), NULL, toNullable(held_by_others <= 0)) AS exclusive_met,
            arrayConcat(
                if(segment_asked, [if(unknown_nodes > 0, NULL, toNullable(segment_met))], []),
                if(level_asked, [level_met], []),
                if(exclusive, [exclusive_met], [])) AS promises,
            segment_asked AND NOT segment_met OR mode = 'required' AND level_asked AND ifNull(level_met = 0, 0) AS broken,
            -- Room when it began, in as many domains as it needs, the freest first.
            arraySum(arraySlice(free_first, 1, ifNull(fewest, 0))) AS free_in_fewest,
            arraySum(arraySlice(later_first, 1, ifNull(fewest, 0))) AS later_in_fewest
        FROM told
    ),
    ruled AS
    (
        SELECT
            *,
            -- Outcome, the first that holds.
            multiIf(
                unknown_nodes > 0 AND NOT (NOT segment_asked AND ifNull(used > fewest, 0)), 'unknown',
                unknown_nodes > 0, 'spill',
                used = 1 AND partitions_used = 1 AND NOT partition_unknown, 'one_partition',
                used = 1, 'one_domain',
                fewest IS NULL, 'unknown',
                segment_met, 'minimal_spread',
                broken OR used > fewest, 'spill',
                'minimal_spread') AS outcome,
            -- Cause of a spill, the first that holds.
            multiIf(
                outcome != 'spill' OR unknown_nodes > 0 OR empty(free_first), '',
                free_in_fewest >= gpus, 'policy',
                later_in_fewest >= gpus, 'timing',
                free_total >= gpus, 'repack',
                'capacity') AS cause
        FROM asked
    )
SELECT
    id, outcome,
    multiIf(outcome = 'unknown' AND unknown_nodes > 0, unknown_reason, outcome = 'unknown', 'no_capacity', outcome != 'spill', '', broken, 'intent', 'excess') AS outcome_reason,
    ifNull(toInt64(fewest), -1) AS domains_min,
    toInt64(if(unknown_nodes > 0 AND outcome != 'spill', -1, ifNull(toInt64(used) - toInt64(fewest), -1))) AS excess_domains,
    toInt64(if(unknown_nodes > 0 OR partition_unknown OR partitions_used = 0, -1, partitions_used)) AS partitions,
    toInt64(if(unknown_nodes > 0 OR used = 0 OR has(domain_gpus, -1), -1, arrayMin(domain_gpus))) AS smallest_shard,
    toFloat32(if(smallest_shard < 0 OR domain_gpus[1] = 0, -1, smallest_shard / arrayMax(domain_gpus))) AS balance,
    arrayStringConcat(arrayFilter(x -> x != '', [
        multiIf(max_switches > 0, concat('switches=', toString(max_switches)), segment > 0 OR mode IN ('none', 'unknown') AND exclusive, '',
            mode IN ('preferred', 'required'), trimRight(concat(mode, ' ', level)), mode),
        if(segment > 0, concat('segment=', toString(segment), if(spread_segments, ' spread', ''), if(consolidate_segments, ' consolidate', '')), ''),
        if(exclusive, 'exclusive domain', '')]), ', ') AS intent,
    toInt8(multiIf(empty(promises), -1, has(promises, 0), 0, has(promises, NULL), -1, 1)) AS intent_met,
    toUInt8(segment_met) AS aligned, cause,
    mapFilter((k, v) -> v != '', map(
        'usual_node_gpus', if(cause != '' OR assumed, toString({node_gpus:Int32}), ''), -- stands in wherever nobody counted
        'largest_free', if(cause = '', '', toString(free_first[1])),
        'free_in_fewest', if(cause = '', '', toString(free_in_fewest)),
        'free_total', if(cause = '', '', toString(free_total)),
        'largest_free_within_window', if(cause = '', '', toString(later_first[1])),
        'free_in_fewest_within_window', if(cause = '', '', toString(later_in_fewest)),
        'window_s', if(cause = '', '', toString(intDiv({window_ms:Int64}, 1000))))) AS cause_detail
FROM ruled

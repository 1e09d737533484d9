-- The rule of what a spill is, and the only place it is written: from what a placement got (pass_facts) and what was free
-- when it began (pass_free) to its verdict.
INSERT INTO pass_verdicts_{{.}}
WITH
    asked AS
    (
        SELECT
            f.*, w.free_first AS free_first, w.later_first AS later_first,
            -- What was asked, one entry a promise: 1 kept, 0 broken, NULL cannot be said.
            f.level != '' AND f.mode IN ('preferred', 'required') AND f.segment = 0 OR f.max_switches > 0 AS level_asked,
            if(f.unknown_nodes > 0 OR f.level_unknown OR f.levels_used = 0, NULL, toNullable(f.levels_used <= greatest(f.max_switches, 1))) AS level_met,
            if(f.unknown_nodes > 0 OR empty(w.free_first), NULL, toNullable(w.held_by_others <= 0)) AS exclusive_met,
            arrayConcat(
                if(f.segment_asked, [if(f.unknown_nodes > 0, NULL, toNullable(f.segment_met))], []),
                if(level_asked, [level_met], []),
                if(f.exclusive, [exclusive_met], [])) AS promises,
            f.segment_asked AND NOT f.segment_met OR f.mode = 'required' AND level_asked AND ifNull(level_met = 0, 0) AS broken,
            -- Room when it began: all of it, and in as many domains as it needs, the freest first.
            arraySum(w.free_first) AS free_total,
            arraySum(arraySlice(w.free_first, 1, ifNull(f.fewest, 0))) AS free_in_fewest,
            arraySum(arraySlice(w.later_first, 1, ifNull(f.fewest, 0))) AS later_in_fewest
        FROM pass_facts_{{.}} AS f
        LEFT JOIN pass_free_{{.}} AS w ON f.id = w.id
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
    ),
    worded AS
    (
        SELECT
            id, job_id, attempt, seq, valid_from, valid_to, outcome,
            multiIf(outcome = 'unknown' AND unknown_nodes > 0, unknown_reason, outcome = 'unknown', 'no_capacity', outcome != 'spill', '', broken, 'intent', 'excess') AS outcome_reason,
            toNullable(gpus) AS gpus, node_count, unknown_nodes,
            if(used = 0, NULL, toNullable(used)) AS domains_used,
            fewest AS domains_min,
            if(unknown_nodes > 0 AND outcome != 'spill', NULL, toInt32(used) - toInt32(fewest)) AS excess_domains,
            if(unknown_nodes > 0 OR partition_unknown OR partitions_used = 0, NULL, toNullable(partitions_used)) AS partitions_used,
            domains, domain_gpus, domain_nodes,
            if(unknown_nodes > 0 OR used = 0 OR has(domain_gpus, NULL) OR f.domain_gpus[1] = 0, NULL, toFloat32(assumeNotNull(arrayMin(domain_gpus)) / assumeNotNull(arrayMax(domain_gpus)))) AS balance,
            if(unknown_nodes > 0 OR used = 0 OR has(domain_gpus, NULL), NULL, arrayMin(domain_gpus)) AS smallest_shard,
            arrayStringConcat(arrayFilter(x -> x != '', [
                multiIf(max_switches > 0, concat('switches=', toString(max_switches)), segment > 0 OR mode IN ('none', 'unknown') AND exclusive, '',
                    mode IN ('preferred', 'required'), trimRight(concat(mode, ' ', level)), mode),
                if(segment > 0, concat('segment=', toString(segment), if(spread_segments, ' spread', ''), if(consolidate_segments, ' consolidate', '')), ''),
                if(exclusive, 'exclusive domain', '')]), ', ') AS intent,
            multiIf(empty(promises), NULL, has(promises, 0), toNullable(false), has(promises, NULL), NULL, true) AS intent_met,
            toBool(segment_met) AS aligned, cause,
            mapFilter((k, v) -> v != '', map(
                'usual_node_gpus', if(cause != '' OR assumed, toString({node_gpus:Int32}), ''), -- stands in wherever nobody counted
                'largest_free', if(cause = '', '', toString(free_first[1])),
                'free_in_fewest', if(cause = '', '', toString(free_in_fewest)),
                'free_total', if(cause = '', '', toString(free_total)),
                'largest_free_within_window', if(cause = '', '', toString(later_first[1])),
                'free_in_fewest_within_window', if(cause = '', '', toString(later_in_fewest)),
                'window_s', if(cause = '', '', toString(intDiv({window_ms:Int64}, 1000))))) AS cause_detail,
            source AS membership_source, generation, judged
        FROM ruled AS f
    )
SELECT
    {cluster:String} AS cluster, job_id, attempt, seq, valid_from, valid_to, outcome, outcome_reason, gpus, node_count, unknown_nodes,
    domains_used, domains_min, excess_domains, partitions_used, domains, domain_gpus, domain_nodes, balance, smallest_shard,
    intent, intent_met, aligned, cause, cause_detail, membership_source, generation AS membership_generation,
    fromUnixTimestamp64Milli({judged_at_ms:Int64}, 'UTC') AS judged_at, {version:UInt64} AS version, NOT judged AS is_deleted
FROM worded

-- What each node was and held over [first, last], as a function of time: at ats[i] it became homes[i], usable[i], held[i],
-- due[i]. held is what real jobs hold; probe jobs are not counted, since any real job may evict them. due is what of
-- it lasts longer than the window by the estimates of the jobs.
INSERT INTO pass_holdings_{{.}}
WITH
{{template "judge_capacity_view.sql" .}},
    overlapping AS -- in any version: an old one may still hold what a newer one has let go
    (
        SELECT job_id, attempt, seq
        FROM placements
        WHERE cluster = {cluster:String} AND valid_from <= {last:DateTime64(3, 'UTC')} AND valid_to > {first:DateTime64(3, 'UTC')}
    ),
    holders AS
    (
        SELECT
            node, valid_from, valid_to, toInt64(ifNull(node_gpu, greatest({node_gpus:Int32}, 1))) AS gpus,
            if(expected_end IS NULL, valid_to, least(valid_to, greatest(valid_from, assumeNotNull(expected_end) - toIntervalMillisecond({window_ms:Int64})))) AS due_until
        FROM
        (
            SELECT valid_from, valid_to, nodes, node_gpus, probe, expected_end, is_deleted
            FROM placements
            WHERE cluster = {cluster:String} AND job_id IN (SELECT job_id FROM overlapping) AND (job_id, attempt, seq) IN (SELECT job_id, attempt, seq FROM overlapping)
            ORDER BY version DESC
            LIMIT 1 BY job_id, attempt, seq
        )
        ARRAY JOIN nodes AS node, node_gpus AS node_gpu
        WHERE NOT is_deleted AND NOT probe AND valid_from <= {last:DateTime64(3, 'UTC')} AND valid_to > {first:DateTime64(3, 'UTC')} AND valid_to > valid_from
    ),
    changes AS -- home NULL, usable NULL: not changed by this one
    (
        SELECT node, (arrayJoin([(valid_from, gpus, gpus), (valid_to, -gpus, 0), (due_until, 0, -gpus)]) AS step).1 AS time,
            CAST(NULL, 'Nullable(String)') AS home, CAST(NULL, 'Nullable(Int64)') AS usable, step.2 AS held, step.3 AS due
        FROM holders
        UNION ALL
        SELECT node, (arrayJoin([(since, toString(domain)), (until, '')]) AS step).1, step.2, NULL, 0, 0 FROM homes
        UNION ALL
        SELECT node, (arrayJoin([(since, usable), (until, -1)]) AS step).1, NULL, step.2, 0, 0 FROM offers
    ),
    moments AS -- all changes of one node at one time are one
    (
        SELECT node, greatest(time, {first:DateTime64(3, 'UTC')}) AS at, max(changes.home) AS home, max(changes.usable) AS usable,
            sum(changes.held) AS held, sum(changes.due) AS due
        FROM changes
        WHERE time <= {last:DateTime64(3, 'UTC')}
        GROUP BY node, at
    )
SELECT
    node,
    steps.1 AS ats,
    arrayMap(x -> ifNull(x, ''), arrayFill(x -> x IS NOT NULL, steps.2)) AS homes,
    arrayMap(x -> if(ifNull(x, -1) < 0, toInt64(greatest({node_gpus:Int32}, 0)), assumeNotNull(x)), arrayFill(x -> x IS NOT NULL, steps.3)) AS usable,
    arrayCumSum(steps.4) AS held,
    arrayCumSum(steps.5) AS due
FROM (SELECT node, arraySort(groupArray((at, m.home, m.usable, m.held, m.due))) AS steps FROM moments AS m GROUP BY node)

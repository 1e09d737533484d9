-- The placements of the external table touched (id, job_id, attempt, seq) in their newest version, with what was asked.
INSERT INTO pass_placed_{{.}}
SELECT
    {chunk:UInt64} AS chunk, t.id AS id, p.job_id AS job_id, p.attempt AS attempt, p.seq AS seq, p.valid_from AS valid_from, p.valid_to AS valid_to,
    p.nodes AS nodes, p.node_gpus AS node_gpus, toUInt32(ifNull(ifNull(p.gpus, a.gpus), 0)) AS gpus, a.requested_nodes AS requested_nodes, p.probe AS probe, p.expected_end AS expected_end,
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
    SELECT job_id, attempt, gpus, requested_nodes, intent_mode, intent_level, segment_nodes, spread_segments, consolidate_segments, exclusive_domain, max_switches
    FROM attempts
    WHERE cluster = {cluster:String} AND job_id IN (SELECT job_id FROM touched)
    ORDER BY version DESC
    LIMIT 1 BY job_id, attempt
) AS a ON p.job_id = a.job_id AND p.attempt = a.attempt

package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// job is one job as one screen: asked and given, where it sits, what it moved, and runs like it.
func job() *dashboard.DashboardBuilder {
	return board("spillway-job", "Spillway / Job", "One job: what was asked and given, where it sits, what its GPUs moved, how it compares.").
		Annotation(nodeEvents()).
		WithVariable(variable("job", "Job", `
SELECT job_id FROM attempts WHERE @clusters AND observed_last >= $__fromTime AND start IS NOT NULL
GROUP BY job_id ORDER BY max(start) DESC LIMIT 500`)).
		WithPanel(rows("Asked and given", "One row a placement, newest first: a requeue or a node replaced makes a new one.", `
SELECT a.cluster AS cluster, a.number AS attempt, v.seq AS placement, a.name AS name, a.user AS user, a.account AS account, a.state AS state, v.gpus AS gpus,
       v.intent AS asked, if(v.intent_met IS NULL, 'nothing to meet, or unknown', if(v.intent_met, 'met', 'not met')) AS intent,
       toString(v.outcome) AS outcome, v.domains_used AS domains, v.domains_min AS would_do, v.balance AS balance,
       if(v.outcome != 'spill', '', if(v.cause = '', 'unknown', v.cause)) AS cause, v.cause_detail['largest_free'] AS largest_free_then, v.cause_detail['free_total'] AS free_then,
       v.valid_from AS held_from, if(v.valid_to >= '2200-01-01', NULL, v.valid_to) AS held_to, v.membership_source AS topology_from
FROM (SELECT * FROM (SELECT * FROM attempts WHERE @clusters AND job_id = ${job:singlequote} ORDER BY version DESC LIMIT 1 BY cluster, attempt) WHERE is_deleted = 0) AS a
INNER JOIN (SELECT * FROM (SELECT * FROM verdicts WHERE @clusters AND job_id = ${job:singlequote} ORDER BY version DESC LIMIT 1 BY cluster, attempt, seq) WHERE is_deleted = 0) AS v
    ON v.cluster = a.cluster AND v.attempt = a.attempt
ORDER BY held_from DESC`).Height(7).OverrideByName("outcome", worded()).OverrideByName("cause", worded()).
			OverrideByName("held_to", []dashboard.DynamicConfigValue{{Id: "noValue", Value: "still"}})).
		WithPanel(bars("Shape of the newest placement", "GPUs in each NVLink domain; one bar is a job on one fabric.", "short", "rack", `
WITH v AS
(
    SELECT * FROM (SELECT * FROM verdicts WHERE @clusters AND job_id = ${job:singlequote} ORDER BY version DESC LIMIT 1 BY cluster, attempt, seq)
    WHERE is_deleted = 0 ORDER BY valid_from DESC LIMIT 1
)
SELECT if(l.label = '', p.domain, l.label) AS rack, p.gpus AS gpus
FROM (SELECT cluster, pair.1 AS domain, pair.2 AS gpus FROM v ARRAY JOIN arrayZip(domains, domain_gpus) AS pair) AS p
LEFT JOIN @labels AS l ON l.cluster = p.cluster AND l.domain = p.domain
ORDER BY gpus DESC`)).
		WithPanel(rows("Racks and nodes of the newest placement", "Each node with the domain that held when the placement began.", `
WITH p AS
(
    SELECT * FROM (SELECT * FROM placements WHERE @clusters AND job_id = ${job:singlequote} ORDER BY version DESC LIMIT 1 BY cluster, attempt, seq)
    WHERE is_deleted = 0 ORDER BY valid_from DESC LIMIT 1
)
SELECT n.cluster AS cluster, if(m.domain = '', 'unknown', if(m.levels['rack'] != '', m.levels['rack'], m.domain)) AS rack, n.node AS node, n.gpus AS gpus,
       if(empty(n.gpu_index), 'unknown', arrayStringConcat(arrayMap(x -> toString(x), n.gpu_index), ',')) AS gpu_index, m.partition AS partition, m.domain AS domain
FROM (SELECT cluster, valid_from, node, gpus, gpu_index FROM p ARRAY JOIN nodes AS node, node_gpus AS gpus, node_gpu_index AS gpu_index) AS n
LEFT JOIN
(
    SELECT * FROM (SELECT * FROM membership WHERE @clusters AND node IN (SELECT arrayJoin(nodes) FROM p) ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
    WHERE is_deleted = 0 AND valid_from <= (SELECT max(valid_from) FROM p) AND valid_to > (SELECT max(valid_from) FROM p)
) AS m ON m.cluster = n.cluster AND m.node = n.node
ORDER BY rack, node`).Span(12).Height(8).OverrideByName("rack", link("This domain", toDomain))).
		WithPanel(lines("NVLink and scale-out traffic", "A GPU, both directions. Empty where nobody measured it: see the row of evidence.", "Bps", `
SELECT toDateTime(minute) AS time, if(sum(nvlink_gpu_seconds) = 0, NULL, sum(nvlink_bytes) / sum(nvlink_gpu_seconds)) AS nvlink,
       if(sum(scale_out_gpu_seconds) = 0, NULL, sum(scale_out_bytes) / sum(scale_out_gpu_seconds)) AS scale_out
FROM (SELECT * FROM job_traffic WHERE @clusters AND job_id = ${job:singlequote} AND $__timeFilter(minute) ORDER BY version DESC LIMIT 1 BY cluster, attempt, seq, minute)
WHERE is_deleted = 0 GROUP BY time ORDER BY time`)).
		WithPanel(rows("What the traffic says", "silent_fallback: placed on one fabric, yet the traffic goes over the scale-out network.", `
SELECT cluster, attempt, seq AS placement, toString(evidence) AS evidence, reason, nvlink_bytes_per_second AS nvlink, scale_out_bytes_per_second AS scale_out,
       gpus_measured, gpus, arrayStringConcat(outlier_nodes, ', ') AS outlier_nodes
FROM (SELECT * FROM traffic_evidence WHERE @clusters AND job_id = ${job:singlequote} ORDER BY version DESC LIMIT 1 BY cluster, attempt, seq)
WHERE is_deleted = 0 ORDER BY attempt, placement`).Span(12).Height(8).OverrideByName("evidence", worded()).
			OverrideByName("nvlink", unit("Bps")).OverrideByName("scale_out", unit("Bps"))).
		WithPanel(rows("Odd one out", "NVLink traffic of each node of the job over the time range; the least first.", `
SELECT node, sum(bytes) / sum(seconds) AS nvlink_bytes_per_second, max(minute) AS last_minute
FROM
(
    SELECT minute, node, arraySum(gpu_bytes) AS bytes, seconds
    FROM (SELECT * FROM job_traffic WHERE @clusters AND job_id = ${job:singlequote} AND $__timeFilter(minute) ORDER BY version DESC LIMIT 1 BY cluster, attempt, seq, minute)
    ARRAY JOIN nodes AS node, gpu_nvlink_bytes AS gpu_bytes, node_nvlink_seconds AS seconds
    WHERE is_deleted = 0
)
GROUP BY node HAVING sum(seconds) > 0 ORDER BY nvlink_bytes_per_second LIMIT 200`).Span(12).Height(8).OverrideByName("nvlink_bytes_per_second", unit("Bps"))).
		WithPanel(rows("Runs like it", "Earlier runs of the same user, name and GPUs: did they sit better, and how long did they take?", `
WITH mine AS (SELECT * FROM attempts WHERE @clusters AND job_id = ${job:singlequote} AND is_deleted = 0 ORDER BY version DESC LIMIT 1),
     alike AS
     (
         SELECT * FROM
         (
             SELECT cluster, job_id, attempt, number, state, start, end, gpus, is_deleted
             FROM attempts
             WHERE @clusters AND user IN (SELECT user FROM mine) AND name IN (SELECT name FROM mine) AND gpus IN (SELECT gpus FROM mine)
             ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt
         )
         WHERE is_deleted = 0 AND start IS NOT NULL ORDER BY start DESC LIMIT 50
     )
SELECT a.cluster AS cluster, a.job_id AS job, a.number AS attempt, a.state AS state, a.start AS start, if(a.end IS NULL, NULL, dateDiff('second', a.start, a.end)) AS ran_for,
       toString(v.outcome) AS outcome, v.domains_used AS domains, v.domains_min AS would_do
FROM alike AS a
LEFT JOIN
(
    SELECT cluster, job_id, attempt, argMax(outcome, (seq, version)) AS outcome, argMax(domains_used, (seq, version)) AS domains_used, argMax(domains_min, (seq, version)) AS domains_min
    FROM verdicts WHERE (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM alike) AND is_deleted = 0
    GROUP BY cluster, job_id, attempt
) AS v ON v.cluster = a.cluster AND v.job_id = a.job_id AND v.attempt = a.attempt
ORDER BY start DESC SETTINGS join_use_nulls = 1`).Span(12).Height(8).OverrideByName("job", link("This job", toJob)).
			OverrideByName("outcome", worded()).OverrideByName("ran_for", unit("s")).
			OverrideByName("ran_for", []dashboard.DynamicConfigValue{{Id: "noValue", Value: "still running"}}))
}

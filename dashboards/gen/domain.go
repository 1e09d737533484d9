package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// domain is one rack: who, when, health, slots.
func domain() *dashboard.DashboardBuilder {
	return board("spillway-domain", "Spillway / Domain", "One NVLink domain: who is in it and was, the health of its nodes, the slots it has.").
		Annotation(nodeEvents()).Annotation(domainChanges()).
		WithVariable(variable("domain", "Domain", `
SELECT if(l.label = '', c.domain, l.label) AS __text, c.domain AS __value
FROM (SELECT DISTINCT cluster, domain FROM domain_capacity WHERE @clusters AND domain != '') AS c
LEFT JOIN @labels AS l ON l.cluster = c.cluster AND l.domain = c.domain ORDER BY __text`)).
		WithPanel(numbers("Now", "GPUs of this domain.", `
SELECT gpus AS installed, gpus_usable AS usable, gpus_held AS held, gpus_probe AS probe, gpus_free AS free, nodes_free AS free_nodes,
       arrayMax(arrayMap((size, n) -> if(n > 0, size, 0), slot_sizes, slots)) AS largest_slot
FROM @capacity_now WHERE domain = ${domain:singlequote}`)).
		WithPanel(rows("Who holds it", "At the end of the time range. A job that spills is in other domains too.", `
WITH h AS (SELECT * FROM @held WHERE has(domains, ${domain:singlequote}))
SELECT h.cluster AS cluster, h.job_id AS job, r.name AS name, r.user AS user, r.account AS account, r.queue AS queue, r.probe AS probe,
       h.domain_gpus[indexOf(h.domains, ${domain:singlequote})] AS gpus_here, h.gpus AS gpus, length(h.domains) AS domains, toString(h.outcome) AS outcome,
       h.valid_from AS since, r.expected_end AS expected_end
FROM h INNER JOIN @runs AS r ON r.cluster = h.cluster AND r.job_id = h.job_id AND r.attempt = h.attempt
ORDER BY gpus_here DESC, job LIMIT 200`).Span(24).
			OverrideByName("job", link("This job", toJob)).OverrideByName("outcome", worded())).
		WithPanel(lines("GPUs over time", "Rows are written when something changes; the state holds until the next.", "short", `
SELECT minute AS time, argMax(gpus_held, version) AS held, argMax(gpus_probe, version) AS probe, argMax(gpus_free, version) AS free, argMax(gpus_usable, version) AS usable
FROM domain_capacity WHERE @clusters AND domain = ${domain:singlequote} AND $__timeFilter(minute) AND is_deleted = 0
GROUP BY time ORDER BY time`)).
		WithPanel(lines("Slots over time", "Free slots of each size in this domain.", "short", `
SELECT minute AS time, argMax(tuple(`+slots("8")+`), version).1 AS slots_of_8, argMax(tuple(`+slots("16")+`), version).1 AS slots_of_16, argMax(tuple(`+slots("32")+`), version).1 AS slots_of_32, argMax(tuple(`+slots("64")+`), version).1 AS slots_of_64
FROM domain_capacity WHERE @clusters AND domain = ${domain:singlequote} AND $__timeFilter(minute) AND is_deleted = 0
GROUP BY time ORDER BY time`)).
		WithPanel(rows("Nodes", "State at the end of the time range; empty = nobody told.", `
SELECT m.cluster AS cluster, m.node AS node, m.partition AS partition, m.source AS source, s.gpus_present AS gpus, s.gpus_usable AS usable,
       if(s.schedulable IS NULL, 'unknown', if(s.schedulable, 'yes', 'no')) AS schedulable, s.state_raw AS state, s.reason AS reason
FROM
(
    SELECT * FROM (SELECT * FROM membership WHERE @clusters AND valid_from <= $__toTime ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
    WHERE is_deleted = 0 AND valid_to > $__toTime AND domain = ${domain:singlequote}
) AS m
LEFT JOIN
(
    SELECT * FROM (SELECT * FROM node_states WHERE @clusters AND valid_from <= $__toTime ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
    WHERE is_deleted = 0 AND valid_to > $__toTime
) AS s ON s.cluster = m.cluster AND s.node = m.node
ORDER BY node SETTINGS join_use_nulls = 1`).Span(12).
			OverrideByName("usable", coloured("#D55E00", 1, "#E69F00", 4, "#009E73"))).
		WithPanel(rows("Who was in it", "Placements of the time range, newest first.", `
WITH h AS
(
    SELECT * FROM
    (
        SELECT cluster, job_id, attempt, seq, valid_from, valid_to, outcome, gpus, domains, domain_gpus, is_deleted
        FROM verdicts
        WHERE @clusters AND (cluster, job_id, attempt, seq) IN
            (SELECT cluster, job_id, attempt, seq FROM verdicts WHERE @clusters AND has(domains, ${domain:singlequote}) AND valid_from <= $__toTime AND valid_to >= $__fromTime ORDER BY valid_from DESC LIMIT 1000)
        ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND has(domains, ${domain:singlequote}) AND valid_from <= $__toTime AND valid_to >= $__fromTime
    ORDER BY valid_from DESC LIMIT 500
)
SELECT h.cluster AS cluster, h.job_id AS job, r.user AS user, r.account AS account, h.domain_gpus[indexOf(h.domains, ${domain:singlequote})] AS gpus_here,
       h.valid_from AS held_from, if(h.valid_to >= '2200-01-01', NULL, h.valid_to) AS held_to, toString(h.outcome) AS outcome
FROM h INNER JOIN @runs AS r ON r.cluster = h.cluster AND r.job_id = h.job_id AND r.attempt = h.attempt
ORDER BY held_from DESC`).Span(12).
			OverrideByName("job", link("This job", toJob)).OverrideByName("outcome", worded()).
			OverrideByName("held_to", []dashboard.DynamicConfigValue{{Id: "noValue", Value: "still"}}))
}

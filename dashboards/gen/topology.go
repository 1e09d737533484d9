package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func text(s string) dashboard.StringOrArrayOfString {
	return dashboard.StringOrArrayOfString{String: cog.ToPtr(s)}
}

// topology is about the facts that verdicts stand on.
func topology() *dashboard.DashboardBuilder {
	return board("spillway-topology", "Spillway / Topology health", "Whether the topology that verdicts stand on is known, fresh and free of contradiction.").
		Annotation(domainChanges()).
		WithPanel(numbers("Coverage", "Nodes whose NVLink domain is known at the end of the time range.", `
SELECT count() AS nodes, countIf(domain != '') AS known, count() - known AS unknown, if(count() = 0, NULL, known / count()) AS coverage,
       uniqExactIf((cluster, domain), domain != '') AS domains
FROM (SELECT cluster, node, domain, valid_to, is_deleted FROM membership WHERE @clusters AND valid_from <= $__toTime ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
WHERE is_deleted = 0 AND valid_to > $__toTime`).OverrideByName("coverage", unit("percentunit"))).
		WithPanel(rows("By source", "Which source decided, and why a domain is unknown: no_source, in_progress, unhealthy, conflict.", `
SELECT cluster, if(source = '', 'none', source) AS source, if(reason = '', 'known', reason) AS state, count() AS nodes, max(valid_from) AS changed
FROM (SELECT cluster, node, source, reason, valid_from, valid_to, is_deleted FROM membership WHERE @clusters AND valid_from <= $__toTime ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
WHERE is_deleted = 0 AND valid_to > $__toTime
GROUP BY cluster, source, state ORDER BY cluster, nodes DESC`).Span(12)).
		WithPanel(rows("Age of sources", "When each collector last read its source in full; empty = never.", `
SELECT cluster, source, argMax(good_at, observed_at) AS last_good, if(last_good IS NULL, NULL, dateDiff('second', last_good, $__toTime)) AS age,
       argMax(problem, observed_at) AS problem, max(observed_at) AS reported
FROM source_events WHERE @clusters AND observed_at <= $__toTime AND observed_at >= $__toTime - INTERVAL 1 DAY
GROUP BY cluster, source ORDER BY cluster, source`).Span(12).
			OverrideByName("age", append(coloured("#009E73", 120, "#E69F00", 600, "#D55E00"), unit("s")...))).
		WithPanel(rows("Conflicts", "Nodes on whose domain two sources disagree. The first one decides.", `
SELECT cluster, node, source_a AS decides, domain_a AS its_domain, source_b AS disagrees, domain_b AS other_domain, detail, valid_from AS since
FROM (SELECT * FROM topology_conflicts WHERE @clusters AND valid_from <= $__toTime ORDER BY version DESC LIMIT 1 BY cluster, node, source_a, source_b, valid_from)
WHERE is_deleted = 0 AND valid_to > $__toTime ORDER BY cluster, node LIMIT 1000`).Span(12)).
		WithPanel(rows("Nodes of unknown domain", "Jobs on them have the verdict unknown.", `
SELECT cluster, node, reason, valid_from AS since
FROM (SELECT * FROM membership WHERE @clusters AND valid_from <= $__toTime ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
WHERE is_deleted = 0 AND valid_to > $__toTime AND domain = '' ORDER BY since DESC LIMIT 1000`).Span(12)).
		WithPanel(rows("Scheduler's view and ours", "Kept out: given to nobody though no job holds it. Planned: free now, kept for a job that waits. Domain: its topology says another one than the hardware.", `
WITH s AS
     (
         SELECT * FROM (SELECT * FROM node_states WHERE @clusters AND valid_from <= $__toTime ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
         WHERE is_deleted = 0 AND valid_to > $__toTime
     ),
     busy AS
     (
         SELECT DISTINCT cluster, node
         FROM
         (
             SELECT cluster, nodes, valid_from, valid_to, probe, is_deleted FROM placements
             WHERE @clusters AND (cluster, job_id, attempt, seq) IN (SELECT cluster, job_id, attempt, seq FROM placements WHERE @clusters AND valid_from <= $__toTime AND valid_to > $__toTime)
             ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt, seq
         )
         ARRAY JOIN nodes AS node
         WHERE is_deleted = 0 AND probe = 0 AND valid_from <= $__toTime AND valid_to > $__toTime
     )
SELECT * FROM
(
    SELECT cluster, node, 'kept out' AS difference, if(reason = '', state_raw, concat(state_raw, ': ', reason)) AS scheduler, 'held by nobody' AS spillway
    FROM s WHERE schedulable = 0 AND gpus_present > 0 AND (cluster, node) NOT IN (SELECT cluster, node FROM busy)
    UNION ALL
    SELECT cluster, node, 'planned', concat('kept for job ', argMin(job_id, assumeNotNull(planned_start))), 'free now'
    FROM
    (
        SELECT cluster, job_id, attempt, state, planned_start, planned_nodes, is_deleted
        FROM attempts
        WHERE @clusters AND (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM attempts WHERE @clusters AND state = 'pending' AND notEmpty(planned_nodes))
        ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt
    )
    ARRAY JOIN planned_nodes AS node
    WHERE is_deleted = 0 AND state = 'pending' AND planned_start > $__toTime AND (cluster, node) NOT IN (SELECT cluster, node FROM busy)
    GROUP BY cluster, node
    UNION ALL
    SELECT cluster, node, 'domain', concat(source_b, ': ', domain_b), concat(source_a, ': ', domain_a)
    FROM (SELECT * FROM topology_conflicts WHERE @clusters AND valid_from <= $__toTime ORDER BY version DESC LIMIT 1 BY cluster, node, source_a, source_b, valid_from)
    WHERE is_deleted = 0 AND valid_to > $__toTime AND source_b LIKE 'slurm%'
)
ORDER BY cluster, difference, node LIMIT 1000`).Span(24)).
		WithPanel(lines("Changes of membership", "Nodes that entered a domain or lost it.", "short", `
SELECT $__timeInterval(valid_from) AS time, if(domain = '', 'became unknown', 'became known') AS what, count() AS nodes
FROM (SELECT cluster, node, valid_from, domain, is_deleted FROM membership WHERE @clusters AND $__timeFilter(valid_from) ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
WHERE is_deleted = 0 GROUP BY time, what ORDER BY time`)).
		WithPanel(lines("Placements without a verdict", "Those whose domains or capacity were not known when they began.", "short", `
SELECT $__timeInterval(valid_from) AS time, countIf(outcome = 'unknown') AS unknown, count() AS all
FROM @verdicts GROUP BY time ORDER BY time`))
}

package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// fleet is the first board: racks at a glance.
func fleet() *dashboard.DashboardBuilder {
	return board("spillway-fleet", "Spillway / Fleet", "Every NVLink domain at a glance: who fills it, what is free, what spills.").
		Annotation(nodeEvents()).Annotation(domainChanges()).
		WithPanel(numbers("GPUs now", "GPUs in domains that are known. Free: usable and held by no real job.", `
SELECT sum(gpus) AS installed, sum(gpus_usable) AS usable, sum(gpus_held) AS held, sum(gpus_probe) AS probe, sum(gpus_free) AS free,
       count() AS domains
FROM @capacity_now`).Span(12)).
		WithPanel(numbers("Placements that hold GPUs", "At the end of the time range. Unknown is neither a spill nor fine.", `
SELECT count() AS running, countIf(outcome = 'spill') AS spilling, sumIf(ifNull(gpus, 0), outcome = 'spill') AS spilling_gpus,
       countIf(outcome = 'unknown') AS unknown
FROM @held`).Span(12)).
		WithPanel(rows("Racks", "One row an NVLink domain, fullest first. Spilling: placements through it that use more domains than they need.", `
WITH h AS (SELECT * FROM @held)
SELECT c.cluster AS cluster, if(l.label = '', c.domain, l.label) AS rack, c.domain AS domain, c.gpus_usable AS usable, c.gpus_held AS held,
       c.gpus_probe AS probe, c.gpus_free AS free, if(c.gpus_usable = 0, NULL, c.gpus_held / c.gpus_usable) AS filled,
       concat(toString(c.nodes_usable), '/', toString(c.nodes)) AS nodes_usable, c.nodes_free AS nodes_free,
       arrayMax(arrayMap((size, n) -> if(n > 0, size, 0), c.slot_sizes, c.slots)) AS largest_slot,
       j.jobs AS jobs, j.spilling AS spilling
FROM @capacity_now AS c
LEFT JOIN @labels AS l ON l.cluster = c.cluster AND l.domain = c.domain
LEFT JOIN
(
    SELECT cluster, arrayJoin(domains) AS domain, count() AS jobs, countIf(outcome = 'spill') AS spilling
    FROM h GROUP BY cluster, domain
) AS j ON j.cluster = c.cluster AND j.domain = c.domain
ORDER BY filled DESC, cluster, rack`).Height(16).
			OverrideByName("rack", link("This domain", toDomain)).
			OverrideByName("filled", append(coloured("#009E73", 0.5, "#E69F00", 0.95, "#0072B2"), unit("percentunit")...)).
			OverrideByName("spilling", coloured("transparent", 1, "#D55E00"))).
		WithPanel(lines("Starts by verdict", "Placements that began, by what was judged.", "short", `
SELECT $__timeInterval(valid_from) AS time, toString(outcome) AS outcome, count() AS placements
FROM @verdicts GROUP BY time, outcome ORDER BY time`).Stacking(stacked())).
		WithPanel(rows("Worst spills now", "Most domains beyond the minimum first.", `
WITH h AS (SELECT * FROM @held WHERE outcome = 'spill')
SELECT h.cluster AS cluster, h.job_id AS job, r.name AS name, r.user AS user, r.account AS account, h.gpus AS gpus, h.domains_used AS domains,
       h.excess_domains AS excess, if(h.cause = '', 'unknown', h.cause) AS cause
FROM h INNER JOIN @runs AS r ON r.cluster = h.cluster AND r.job_id = h.job_id AND r.attempt = h.attempt
WHERE r.probe = 0
ORDER BY excess DESC, gpus DESC LIMIT 15`).Span(12).Height(8).
			OverrideByName("job", link("This job", toJob)).OverrideByName("cause", worded()))
}

package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// spills is the list of what crossed, and the trend.
func spills() *dashboard.DashboardBuilder {
	return board("spillway-spills", "Spillway / Spills", "Which jobs use more NVLink domains than they need, since when and why.").
		Annotation(nodeEvents()).
		WithPanel(numbers("Started in this time", "GPU-hours are counted until the end, or until the end of the time range.", `
SELECT count() AS placements, countIf(outcome = 'spill') AS spills,
       if(countIf(outcome != 'unknown') = 0, NULL, countIf(outcome = 'spill') / countIf(outcome != 'unknown')) AS spill_share,
       round(sumIf(ifNull(gpus, 0) * dateDiff('second', valid_from, least(valid_to, toDateTime64($__toTime, 3, 'UTC'))), outcome = 'spill') / 3600) AS spilled_gpu_hours,
       countIf(outcome = 'unknown') AS unknown
FROM @verdicts`).OverrideByName("spill_share", unit("percentunit"))).
		WithPanel(rows("Spilling now, worst first", "Placements that hold GPUs at the end of the time range. A job opens its own board.", `
WITH h AS (SELECT * FROM @held WHERE outcome = 'spill')
SELECT h.cluster AS cluster, h.job_id AS job, r.number AS attempt, r.name AS name, r.user AS user, r.account AS account, r.queue AS queue,
       r.service_class AS class, h.gpus AS gpus, h.domains_used AS domains, h.domains_min AS would_do, h.excess_domains AS excess,
       arrayStringConcat(arrayMap(x -> ifNull(toString(x), '?'), arrayReverseSort(h.domain_gpus)), '+') AS shape,
       if(h.cause = '', 'unknown', h.cause) AS cause, h.intent AS asked, if(h.intent_met IS NULL, 'nothing to meet, or unknown', if(h.intent_met, 'met', 'not met')) AS intent,
       h.valid_from AS since
FROM h INNER JOIN @runs AS r ON r.cluster = h.cluster AND r.job_id = h.job_id AND r.attempt = h.attempt
WHERE r.probe = 0
ORDER BY excess DESC, gpus DESC LIMIT 500`).Height(14).
			OverrideByName("job", link("This job", toJob)).OverrideByName("cause", worded())).
		WithPanel(lines("Spills by cause", "Placements that began in each interval. Policy: the scheduler had a better place.", "short", `
SELECT $__timeInterval(valid_from) AS time, if(cause = '', 'unknown', cause) AS cause, count() AS spills
FROM @verdicts WHERE outcome = 'spill' GROUP BY time, cause ORDER BY time`).Stacking(stacked())).
		WithPanel(lines("Share of placements that spill", "Of those that could be judged; empty where none could.", "percentunit", `
SELECT $__timeInterval(valid_from) AS time, if(countIf(outcome != 'unknown') = 0, NULL, countIf(outcome = 'spill') / countIf(outcome != 'unknown')) AS spilled,
       countIf(outcome = 'unknown') / count() AS unknown
FROM @verdicts GROUP BY time ORDER BY time`)).
		WithPanel(rows("By account and queue", "GPU-hours in placements that spilled, and how often what was asked at a level was not given.", `
WITH h AS (SELECT cluster, cityHash64(cluster, job_id, attempt) AS run, valid_from, least(valid_to, toDateTime64($__toTime, 3, 'UTC')) AS until, outcome, gpus, cause FROM @verdicts),
     r AS @startedRuns
SELECT h.cluster AS cluster, r.account AS account, r.queue AS queue, count() AS placements, countIf(h.outcome = 'spill') AS spills,
       round(sumIf(ifNull(h.gpus, 0) * dateDiff('second', h.valid_from, h.until), h.outcome = 'spill') / 3600) AS spilled_gpu_hours,
       countIf(h.cause = 'policy') AS policy, countIf(h.cause = 'timing') AS timing, countIf(h.cause = 'repack') AS repack, countIf(h.cause = 'capacity') AS capacity,
       countIf(h.outcome = 'unknown') AS unknown
FROM h INNER JOIN r ON r.run = h.run
GROUP BY cluster, account, queue ORDER BY spilled_gpu_hours DESC LIMIT 100`)).
		WithPanel(rows("Asked and got, by queue", "How often what was asked at a level ended in more domains than its size needs. Narrow: in as few as can be, or in whole segments.", `
WITH h AS
     (
         SELECT cityHash64(cluster, job_id, attempt) AS run, cluster, outcome, excess_domains, intent
         FROM (SELECT cluster, job_id, attempt, seq, outcome, excess_domains, intent, is_deleted FROM verdicts WHERE @clusters AND $__timeFilter(valid_from) ORDER BY cluster, job_id, attempt, seq, version DESC LIMIT 1 BY cluster, job_id, attempt, seq)
         WHERE is_deleted = 0
     ),
     r AS @startedRuns
SELECT h.cluster AS cluster, r.queue AS queue, multiIf(startsWith(h.intent, 'segment='), 'segment', h.intent IN ('', 'none'), 'nothing', h.intent) AS asked, count() AS placements,
       countIf(h.outcome NOT IN ('unknown', 'spill')) AS narrow, countIf(h.outcome = 'spill') AS wider,
       if(narrow + wider = 0, NULL, wider / (narrow + wider)) AS wider_share, if(wider = 0, NULL, avgIf(h.excess_domains, h.outcome = 'spill')) AS domains_too_many, countIf(h.outcome = 'unknown') AS unknown
FROM h INNER JOIN r ON r.run = h.run
GROUP BY cluster, queue, asked ORDER BY wider DESC LIMIT 200`).Span(12).OverrideByName("wider_share", unit("percentunit"))).
		WithPanel(promLines("Life-cycle exceptions", "Running jobs whose facts do not fit together, by kind; the page's view Exceptions lists them with what to do.", "short",
			`sum by (cluster, kind) (spillway_lifecycle_exceptions{cluster!="spillway-probe"})`, "{{cluster}} {{kind}}").Height(10))
}

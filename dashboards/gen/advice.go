package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// advice is what became of the advisor's answers.
func advice() *dashboard.DashboardBuilder {
	return board("spillway-advice", "Spillway / Advice outcomes", "What schedulers asked, what they were told, and how the jobs were placed in the end.").
		WithPanel(numbers("Answers in this time", "Refusals are answers too: no opinion, with a reason. The age is of the picture the advice rested on.", `
SELECT count() AS answers, countIf(code = '') AS advised, countIf(code != '') AS refused, if(count() = 0, NULL, quantile(0.99)(took_us) / 1000) AS p99_ms,
       max(age_ms) AS oldest_picture_ms, uniqExact(caller, tenant) AS callers
FROM advice_ledger WHERE @clusters AND $__timeFilter(asked_at)`).OverrideByName("p99_ms", unit("ms")).OverrideByName("oldest_picture_ms", unit("ms"))).
		WithPanel(lines("Answers by what was said", "Advised, or the code of the refusal.", "short", `
SELECT $__timeInterval(asked_at) AS time, if(code = '', 'advised', code) AS said, count() AS answers
FROM advice_ledger WHERE @clusters AND $__timeFilter(asked_at) GROUP BY time, said ORDER BY time`).Stacking(stacked())).
		WithPanel(rows("By strategy and size", "What was asked for and recommended.", `
SELECT cluster, strategy, gpus, count() AS answers, countIf(code != '') AS refused, countIf(recommendation = 'wait') AS told_to_wait,
       avgIf(length(domains), code = '') AS domains_advised, avg(slowdown_low) AS predicted_slowdown
FROM advice_ledger WHERE @clusters AND $__timeFilter(asked_at) GROUP BY cluster, strategy, gpus ORDER BY answers DESC LIMIT 200`).Span(12).Height(8)).
		WithPanel(rows("What became of it", "The newest advice on each job, and the first placement that began after it. Followed: it sits in the domains advised and no others.", `
WITH said AS
     (
         SELECT * FROM
         (
             SELECT l.cluster AS cluster, if(l.job_id != '', l.job_id, f.job_id) AS job, l.asked_at AS asked_at, l.gpus AS gpus, l.recommendation AS recommendation, l.domains AS domains, l.slowdown_low AS low, l.slowdown_high AS high,
                    f.slowdown AS measured
             FROM (SELECT cluster, advice_id, job_id, asked_at, gpus, recommendation, domains, slowdown_low, slowdown_high FROM advice_ledger WHERE @clusters AND $__timeFilter(asked_at) AND code = '' ORDER BY asked_at DESC LIMIT 1000) AS l
             LEFT JOIN
             (
                 SELECT cluster, advice_id, argMax(job_id, told_at) AS job_id, argMax(slowdown, told_at) AS slowdown
                 FROM advice_feedback WHERE @clusters AND told_at >= $__fromTime AND told_at <= $__toTime GROUP BY cluster, advice_id
             ) AS f ON f.cluster = l.cluster AND f.advice_id = l.advice_id
         )
         WHERE job != '' ORDER BY asked_at DESC LIMIT 1 BY cluster, job LIMIT 500
     ),
     judged AS
     (
         SELECT * FROM
         (
             SELECT cluster, job_id, attempt, seq, valid_from, outcome, excess_domains, domains, is_deleted FROM verdicts
             WHERE @clusters AND (cluster, job_id) IN (SELECT cluster, job FROM said) ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt, seq
         )
         WHERE is_deleted = 0
     )
SELECT s.cluster AS cluster, s.job AS job, s.asked_at AS asked, s.gpus AS gpus, s.recommendation AS recommendation, length(s.domains) AS domains_advised,
       if(v.valid_from IS NULL, 'not started', if(hasAll(s.domains, v.domains), 'yes', 'no')) AS followed, if(v.valid_from IS NULL, 'not started', toString(v.outcome)) AS outcome, v.excess_domains AS excess,
       s.low AS slowdown_from, s.high AS slowdown_to, s.measured AS slowdown_told
FROM said AS s
LEFT JOIN (SELECT j.*, w.asked_at AS asked_at FROM judged AS j INNER JOIN said AS w ON w.cluster = j.cluster AND w.job = j.job_id WHERE j.valid_from >= w.asked_at ORDER BY j.valid_from LIMIT 1 BY j.cluster, j.job_id) AS v
    ON v.cluster = s.cluster AND v.job_id = s.job
ORDER BY asked DESC SETTINGS join_use_nulls = 1`).OverrideByName("job", link("This job", toJob)).OverrideByName("outcome", worded())).
		WithPanel(rows("What callers told", "Which candidate they took (0: none), and the slowdown they measured.", `
SELECT cluster, if(chosen IS NULL, 'not told', toString(chosen)) AS rank_taken, count() AS answers, avg(slowdown) AS mean_slowdown
FROM advice_feedback WHERE @clusters AND $__timeFilter(told_at) GROUP BY cluster, rank_taken ORDER BY answers DESC LIMIT 50`).Span(12).Height(8))
}

package main

import (
	"strconv"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// series turns rows that are written when something changes into totals over all domains at every interval: the change of
// each row from the one before it of its domain, and the running sum of the changes. What was so before the time range
// counts as its first interval. columns are up to four expressions over a row, each with a name, that give numbers below
// 65,536: they cross the window function packed in one number, which makes it three times as fast as one a column.
func series(columns ...string) string {
	packed, sums := "", ""
	for i := 0; i < len(columns); i += 2 {
		shift := strconv.Itoa(16 * (i / 2))
		if i > 0 {
			packed += " + "
		}
		packed += "bitShiftLeft(toUInt64(" + columns[i] + "), " + shift + ")"
		part := func(of string) string { return "toInt64(bitAnd(bitShiftRight(" + of + ", " + shift + "), 65535))" }
		sums += ",\n       sum(sum(" + part("now") + " - " + part("before") + ")) OVER (ORDER BY time) AS " + columns[i+1]
	}
	return `
SELECT time` + sums + `
FROM
(
    SELECT greatest($__timeInterval(minute), toStartOfInterval(toDateTime($__fromTime), INTERVAL $__interval_s second)) AS time, now,
           lagInFrame(now, 1, toUInt64(0)) OVER (PARTITION BY cluster, domain ORDER BY minute, version ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS before
    FROM
    (
        SELECT cluster, domain, minute, version, ` + packed + ` AS now
        FROM domain_capacity
        WHERE @clusters AND domain != '' AND is_deleted = 0 AND $__timeTo(minute)
    )
)
GROUP BY time ORDER BY time`
}

// perNode is the GPUs of a node of a row's domain, to the nearest: a node that lost one must not make all others smaller.
const perNode = "greatest(1, intDiv(2 * gpus + nodes, 2 * greatest(nodes, 1)))"

// slots is how many slots of a size a row counts; a size above one node's GPUs that was not counted follows from the
// wholly free nodes, and of a smaller one nobody can say: NULL.
func slots(size string) string {
	return "multiIf(has(slot_sizes, " + size + "), slots[indexOf(slot_sizes, " + size + ")], gpus > 0 AND " + size + " <= " + perNode + ", NULL, " + wholeSlots(size) + ")"
}

// allSlots is slots over all rows; NULL where one of them cannot say.
func allSlots(size string) string {
	return "if(countIf(isNull(" + slots(size) + ")) > 0, NULL, sum(" + slots(size) + "))"
}

// wholeSlots is slots for sizes above one node's GPUs, where only wholly free nodes count: a slot takes as many as it needs.
func wholeSlots(size string) string {
	return "toUInt32(intDiv(nodes_free, intDiv(" + size + " + " + perNode + " - 1, " + perNode + ")))"
}

// capacity is for who plans: fragmentation over time, its owners, and what the racks have left.
func capacity() *dashboard.DashboardBuilder {
	return board("spillway-capacity", "Spillway / Fragmentation and capacity", "How large a job could start, when, and what keeps larger ones out.").
		Annotation(nodeEvents()).Annotation(domainChanges()).
		WithVariable(variable("size", "Slot size", "SELECT DISTINCT toString(arrayJoin(slot_sizes)) AS size FROM domain_capacity WHERE minute >= $__fromTime ORDER BY toUInt32(size) DESC").
			Current(dashboard.VariableOption{Text: text("64"), Value: text("64")})).
		WithPanel(numbers("Now", "Largest job: GPUs free in one domain. Stranded: free, but in no slot of the size chosen.", `
SELECT free, largest_in_one_domain, free_slots, if(free_slots IS NULL, NULL, free - least(free, free_slots * ${size:raw})) AS stranded,
       if(free_slots IS NULL OR free = 0, NULL, 1 - least(1, free_slots * ${size:raw} / free)) AS fragmentation
FROM (SELECT sum(gpus_free) AS free, max(gpus_free) AS largest_in_one_domain, `+allSlots("${size:raw}")+` AS free_slots FROM @capacity_now)`).OverrideByName("fragmentation", unit("percentunit"))).
		WithPanel(lines("Free slots by size", "Slots that are free in one domain, over all domains; above one node's GPUs only wholly free nodes count.", "short",
			series(wholeSlots("16"), "slots_of_16", wholeSlots("32"), "slots_of_32", wholeSlots("64"), "slots_of_64", wholeSlots("72"), "slots_of_72"))).
		WithPanel(lines("GPUs", "Held by real jobs, by probes, free, and not usable.", "short",
			series("gpus_held", "held", "gpus_probe", "probe", "gpus_free - least(gpus_free, gpus_probe)", "free", "gpus - least(gpus, gpus_usable)", "unusable")).Stacking(stacked())).
		WithPanel(bars("The cliff: how much of what is free a job of each size can use", "Share of the free GPUs that lie in slots of the size. Where it falls, jobs begin to spill or wait.", "percentunit", "size", `
SELECT toString(size) AS size, if(free = 0 OR n IS NULL, NULL, least(1, n * toUInt32(size) / free)) AS usable_share
FROM
(
    SELECT arrayJoin(arrayZip(['1', '4', '8', '16', '32', '36', '64', '72'],
               [`+allSlots("1")+`, `+allSlots("4")+`, `+allSlots("8")+`, `+allSlots("16")+`, `+allSlots("32")+`, `+allSlots("36")+`, `+allSlots("64")+`, `+allSlots("72")+`])) AS pair,
           pair.1 AS size, pair.2 AS n, sum(gpus_free) AS free
    FROM @capacity_now
)`)).
		WithPanel(lines("Racks by class", "Domains by usable nodes. A domain of 18 nodes with 16 or 17 is an NVL64.", "short",
			series("nodes > 0 AND nodes_usable = nodes", "full", "nodes_usable >= 16 AND nodes_usable < nodes", "usable_16_or_17", "nodes_usable < 16 AND nodes_usable < nodes", "below_16")).Stacking(stacked())).
		WithPanel(rows("Who strands GPUs", "Free GPUs in domains without a slot of the size chosen, shared out to those who hold the rest of such a domain by what they hold.", `
WITH h AS (SELECT * FROM @held),
     parts AS
     (
         SELECT cluster, job_id, attempt, pair.1 AS domain, ifNull(pair.2, 0) AS gpus, sum(gpus) OVER (PARTITION BY cluster, domain) AS gpus_of_all
         FROM h ARRAY JOIN arrayZip(domains, domain_gpus) AS pair
     )
SELECT p.cluster AS cluster, r.account AS account, r.queue AS queue, uniqExact(p.job_id) AS jobs, sum(p.gpus) AS gpus_held,
       round(sum(if(p.gpus_of_all = 0, 0, b.gpus_free * p.gpus / p.gpus_of_all)), 1) AS stranded_gpus, uniqExact(p.domain) AS domains
FROM parts AS p
INNER JOIN (SELECT cluster, domain, gpus_free FROM @capacity_now WHERE gpus_free > 0 AND `+slots("${size:raw}")+` = 0) AS b ON b.cluster = p.cluster AND b.domain = p.domain
INNER JOIN @runs AS r ON r.cluster = p.cluster AND r.job_id = p.job_id AND r.attempt = p.attempt
GROUP BY cluster, account, queue ORDER BY stranded_gpus DESC LIMIT 100`).Span(12)).
		WithPanel(rows("Domains by what is free", "Most stranded GPUs first: ending or moving what is left in one opens a slot.", `
SELECT c.cluster AS cluster, if(l.label = '', c.domain, l.label) AS rack, c.domain AS domain, c.gpus_free AS free, `+slots("${size:raw}")+` AS free_slots,
       if(free_slots IS NULL, NULL, c.gpus_free - least(c.gpus_free, free_slots * ${size:raw})) AS stranded, c.nodes_free AS nodes_free, concat(toString(c.nodes_usable), '/', toString(c.nodes)) AS nodes_usable,
       c.gpus_basis AS counted
FROM @capacity_now AS c LEFT JOIN @labels AS l ON l.cluster = c.cluster AND l.domain = c.domain
ORDER BY stranded DESC, free DESC LIMIT 500`).Span(12).OverrideByName("rack", link("This domain", toDomain)))
}

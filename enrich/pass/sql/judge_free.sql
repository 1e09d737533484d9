-- Free capacity of all domains when each disputed placement began. free = usable and not held by others; later =
-- the same once those due to end within the window are gone.
INSERT INTO pass_free_{{.}}
WITH
    disputed AS
    (
        SELECT id, valid_from, valid_to, probe, expected_end, nodes, node_gpus, late_nodes, domains
        FROM pass_facts_{{.}}
        WHERE disputed
    ),
    times AS (SELECT time, toUInt32(k - 1) AS k, 1 AS one FROM (SELECT arraySort(groupUniqArray(valid_from)) AS list FROM disputed) ARRAY JOIN list AS time, arrayEnumerate(list) AS k),
    -- What each domain gained at a time. Every domain of an asker has an entry, also one that no home was known in.
    gains AS
    (
        SELECT at, gain.1 AS domain, gain.2 AS held, gain.3 AS free, gain.4 AS later, 1 AS one
        FROM
        (
            SELECT (arrayJoin(arrayZip(ats, states, arrayPopBack(arrayPushFront(states, ('', toInt64(0), toInt64(0), toInt64(0)))))) AS s).1 AS at, s.2 AS new, s.3 AS old,
                arrayJoin(if(new.1 = old.1, [(new.1, new.2 - old.2, new.3 - old.3, new.4 - old.4)], [new, (old.1, -old.2, -old.3, -old.4)])) AS gain
            FROM (SELECT ats, arrayMap((d, u, h, l) -> (d, h, if(d = '', 0, greatest(u - h, 0)), if(d = '', 0, greatest(u - l, 0))), homes, usable, held, due) AS states FROM pass_holdings_{{.}})
        )
        WHERE domain != ''
        UNION ALL
        SELECT {first:DateTime64(3, 'UTC')}, arrayJoin(domains), 0, 0, 0, 1 FROM disputed
    ),
    by_domain AS -- element k is the state at times[k]
    (
        SELECT
            domain,
            arrayCumSum(groupArrayInsertAt(0, toUInt32((SELECT count() FROM times)))(b.held, b.k)) AS held,
            arrayCumSum(groupArrayInsertAt(0, toUInt32((SELECT count() FROM times)))(b.free, b.k)) AS free,
            arrayCumSum(groupArrayInsertAt(0, toUInt32((SELECT count() FROM times)))(b.later, b.k)) AS later
        FROM
        (
            SELECT g.domain AS domain, t.k AS k, sum(g.held) AS held, sum(g.free) AS free, sum(g.later) AS later
            FROM gains AS g ASOF JOIN times AS t ON g.one = t.one AND g.at <= t.time
            GROUP BY domain, k
        ) AS b
        GROUP BY domain
    ),
    by_time AS
    (
        SELECT t.time AS time, s.domains AS domains, s.held AS held, s.free AS free, s.later AS later
        FROM
        (
            SELECT k, groupArray(domain) AS domains, groupArray(j.held) AS held, groupArray(j.free) AS free, groupArray(j.later) AS later
            FROM (SELECT domain, k, held, free, later FROM by_domain ARRAY JOIN arrayEnumerate(held) AS k, held, free, later) AS j
            GROUP BY k
        ) AS s
        INNER JOIN times AS t ON s.k = t.k + 1
    ),
    -- What the asker holds itself is free to it. A node of its own that had no home yet counts with the domain it turned
    -- out to be in.
    own_nodes AS
    (
        SELECT id, valid_from AS start, NOT probe AND valid_to > start AS counted,
            counted AND (expected_end IS NULL OR expected_end - toIntervalMillisecond({window_ms:Int64}) > start) AS counted_due,
            node, toInt64(ifNull(node_gpu, greatest({node_gpus:Int32}, 1))) AS gpus, tupleElement(arrayFirst(x -> x.1 = node, late_nodes), 2) AS late_domain
        FROM disputed
        ARRAY JOIN nodes AS node, node_gpus AS node_gpu
    ),
    returned AS
    (
        SELECT
            o.id AS id, if(n.home = '', o.late_domain, n.home) AS domain,
            if(o.counted, o.gpus, 0) AS mine, if(o.counted_due, o.gpus, 0) AS mine_due,
            if(n.home = '', greatest(o.gpus, toInt64({node_gpus:Int32})), n.usable) AS usable,
            if(n.home = '', n.held, 0) - mine AS held,
            greatest(usable - (n.held - mine), 0) - if(n.home = '', 0, greatest(usable - n.held, 0)) AS free,
            greatest(usable - (n.due - mine_due), 0) - if(n.home = '', 0, greatest(usable - n.due, 0)) AS later
        FROM own_nodes AS o
        ASOF LEFT JOIN (SELECT node, at, home, usable, held, due FROM pass_holdings_{{.}} ARRAY JOIN ats AS at, homes AS home, usable, held, due) AS n ON o.node = n.node AND o.start >= n.at
    ),
    corrections AS
    (
        SELECT id, groupArray(domain) AS domains, groupArray(c.held) AS held, groupArray(c.free) AS free, groupArray(c.later) AS later
        FROM (SELECT id, domain, sum(r.held) AS held, sum(r.free) AS free, sum(r.later) AS later FROM returned AS r GROUP BY id, domain) AS c
        GROUP BY id
    )
SELECT
    id,
    arraySum(arrayMap((h, i) -> if(i = 0, 0, h + own_held[i]), held, i)) AS held_by_others,
    arrayReverseSort(arrayMap((f, i) -> f + own_free[i], free, i)) AS free_first,
    arrayReverseSort(arrayMap((l, i) -> l + own_later[i], later, i)) AS later_first
FROM
(
    SELECT
        d.id AS id, t.held AS held, t.free AS free, t.later AS later, c.held AS own_held, c.free AS own_free, c.later AS own_later,
        arrayMap(x -> indexOf(c.domains, x), t.domains) AS i -- 0, which corrects nothing, for the domains the asker is not in
    FROM disputed AS d
    INNER JOIN by_time AS t ON d.valid_from = t.time
    INNER JOIN corrections AS c ON d.id = c.id
)

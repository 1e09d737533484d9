package main

// clusters narrows to the clusters chosen; none of them is the probe's, whose jobs spill on purpose.
const clusters = "cluster != 'spillway-probe' AND $__conditionalAll(cluster IN (${cluster:singlequote}), $cluster)"

// capacityNow is the newest word on every domain. A minute whose newest version withdraws it does not count. The table is
// read backwards in the order of its key, which costs a tenth of finding the newest by aggregation; 64 rows of a domain
// are enough to see past withdrawn ones.
const capacityNow = `(
    WITH newest AS
    (
        SELECT cluster, domain, minute, version
        FROM
        (
            SELECT *
            FROM
            (
                SELECT cluster, domain, minute, version, is_deleted
                FROM domain_capacity
                WHERE @clusters AND domain != ''
                ORDER BY cluster DESC, domain DESC, minute DESC
                LIMIT 64 BY cluster, domain
            )
            ORDER BY version DESC
            LIMIT 1 BY cluster, domain, minute
        )
        WHERE is_deleted = 0
        ORDER BY minute DESC
        LIMIT 1 BY cluster, domain
    )
    SELECT cluster, domain, nodes, nodes_usable, nodes_free, gpus, gpus_usable, gpus_held, gpus_probe, gpus_free, slot_sizes, slots, gpus_basis
    FROM domain_capacity
    PREWHERE minute IN (SELECT minute FROM newest)
    WHERE (cluster, domain, minute, version) IN newest AND nodes > 0
    LIMIT 1 BY cluster, domain
)`

// labels are what people call each domain: the rack, or else the block, that most of its nodes are in; empty where none is
// told. The API and the page name domains by the same rule, in query/read/sql/domain_labels.sql.
const labels = `(
    SELECT cluster, domain, topKIf(1)(if(levels['rack'] != '', levels['rack'], levels['block']) AS place, place NOT IN ('', domain))[1] AS label
    FROM (SELECT cluster, node, valid_to, domain, levels, is_deleted FROM membership WHERE @clusters ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
    WHERE is_deleted = 0 AND domain != '' AND valid_to >= '2200-01-01'
    GROUP BY cluster, domain
)`

// held are the placements that hold GPUs at the end of the time range.
const held = `(
    SELECT *
    FROM
    (
        SELECT cluster, job_id, attempt, seq, valid_from, valid_to, outcome, outcome_reason, gpus, domains_used, domains_min, excess_domains,
               domains, domain_gpus, intent, intent_met, cause, version, is_deleted
        FROM verdicts
        WHERE @clusters AND (cluster, job_id, attempt, seq) IN
        (
            SELECT cluster, job_id, attempt, seq FROM verdicts WHERE @clusters AND valid_from <= $__toTime AND valid_to > $__toTime
        )
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND valid_from <= $__toTime AND valid_to > $__toTime
)`

// verdicts are the newest words on all placements that began in the time range, in few columns.
const verdicts = `(
    SELECT *
    FROM
    (
        SELECT cluster, job_id, attempt, seq, valid_from, valid_to, outcome, gpus, excess_domains, cause, is_deleted
        FROM verdicts
        WHERE @clusters AND $__timeFilter(valid_from)
        ORDER BY cluster, job_id, attempt, seq, version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0
)`

// runs are the attempts of the placements in a table h.
const runs = `(
    SELECT *
    FROM
    (
        SELECT cluster, job_id, attempt, number, name, user, account, queue, service_class, state, probe, expected_end, is_deleted
        FROM attempts
        WHERE (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM h)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0
)`

// Where much of a table is read, its newest versions are found in the order of its key: that takes half of what sorting by
// version first takes.

// startedRuns are the runs heard of since the time range began, each by a hash, as its newest version has them: a job may
// change its queue while it waits, and a run may be withdrawn.
const startedRuns = `(
    SELECT run, account, queue
    FROM
    (
        SELECT cityHash64(cluster, job_id, attempt) AS run, account, queue, probe, is_deleted
        FROM attempts
        WHERE @clusters AND observed_last >= $__fromTime
        ORDER BY cluster, job_id, attempt, version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE probe = 0 AND is_deleted = 0
)`

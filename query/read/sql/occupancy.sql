-- Who held GPUs of one domain at some time in [since, until). Parameters: cluster, domain, since, until, limit.
WITH held AS
(
    SELECT *
    FROM
    (
        SELECT cluster, job_id, attempt, seq, valid_from, valid_to, outcome, gpus, domains, domain_gpus, domain_nodes, is_deleted
        FROM verdicts
        WHERE (cluster, job_id, attempt, seq) IN
        (
            SELECT cluster, job_id, attempt, seq
            FROM verdicts
            WHERE cluster = {cluster:String} AND valid_from < {until:DateTime64(3)} AND valid_to > {since:DateTime64(3)}
              AND has(domains, {domain:String})
        )
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND valid_from < {until:DateTime64(3)} AND valid_to > {since:DateTime64(3)} AND has(domains, {domain:String})
),
runs AS
(
    SELECT job_id, attempt, number, name, user, account, queue, probe, state
    FROM
    (
        SELECT *
        FROM attempts
        WHERE (cluster, job_id, attempt) IN (SELECT cluster, job_id, attempt FROM held)
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt
    )
    WHERE is_deleted = 0
)
SELECT h.job_id AS job_id, r.number AS number, h.seq AS seq, r.name AS name, r.user AS user, r.account AS account, r.queue AS queue, r.probe AS probe,
       r.state AS state, h.valid_from AS valid_from, h.valid_to AS valid_to, toString(h.outcome) AS outcome, h.gpus AS gpus,
       h.domain_gpus[indexOf(h.domains, {domain:String})] AS gpus_here, h.domain_nodes[indexOf(h.domains, {domain:String})] AS nodes_here,
       length(h.domains) AS domains_used, count() OVER () AS total
FROM held AS h
INNER JOIN runs AS r ON r.job_id = h.job_id AND r.attempt = h.attempt
ORDER BY valid_from DESC, job_id, number, seq
LIMIT {limit:UInt64}

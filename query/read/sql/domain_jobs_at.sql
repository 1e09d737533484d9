-- Who holds GPUs of one domain at a moment. Parameters: cluster, domain, at.
WITH held AS
(
    SELECT *
    FROM
    (
        SELECT *
        FROM verdicts
        WHERE (cluster, job_id, attempt, seq) IN
        (
            SELECT DISTINCT cluster, job_id, attempt, seq
            FROM verdicts
            WHERE cluster = {cluster:String} AND valid_from <= {at:DateTime64(3)} AND valid_to > {at:DateTime64(3)}
              AND has(domains, {domain:String})
        )
        ORDER BY version DESC
        LIMIT 1 BY cluster, job_id, attempt, seq
    )
    WHERE is_deleted = 0 AND valid_from <= {at:DateTime64(3)} AND valid_to > {at:DateTime64(3)}
      AND has(domains, {domain:String})
),
runs AS
(
    SELECT job_id, attempt, number, name, user, account, service_class, probe, expected_end, state
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
SELECT h.job_id AS job_id, r.number AS number, r.name AS name, r.user AS user, r.account AS account,
       r.service_class AS service_class, r.probe AS probe, r.state AS state, h.valid_from AS valid_from,
       r.expected_end AS expected_end, toString(h.outcome) AS outcome, h.gpus AS gpus,
       h.domain_gpus[indexOf(h.domains, {domain:String})] AS gpus_here, length(h.domains) AS domains_used
FROM held AS h
INNER JOIN runs AS r ON r.job_id = h.job_id AND r.attempt = h.attempt
ORDER BY gpus_here DESC NULLS LAST, job_id
LIMIT 10000

-- What each source says of each node at a moment. Parameter: open, the moment.
SELECT cluster, node, source, gpus_present, gpus_healthy, gpus_allocatable, schedulable, removed, revision
FROM
(
    SELECT *
    FROM node_facts
    ORDER BY version DESC
    LIMIT 1 BY cluster, node, source, valid_from
)
WHERE is_deleted = 0 AND valid_from <= {open:DateTime64(3)} AND valid_to > {open:DateTime64(3)}

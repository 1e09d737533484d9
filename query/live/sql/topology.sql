-- Where each node sits at a moment. Parameter: open, the moment.
SELECT cluster, node, domain, partition, levels, generation
FROM
(
    SELECT cluster, node, domain, partition, levels, generation, valid_from, valid_to, is_deleted
    FROM membership
    ORDER BY version DESC
    LIMIT 1 BY cluster, node, valid_from
)
WHERE is_deleted = 0 AND valid_from <= {open:DateTime64(3)} AND valid_to > {open:DateTime64(3)}
ORDER BY cluster, node

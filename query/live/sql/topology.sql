-- Where each node sits now. Parameter: open, the end of what has not ended.
SELECT cluster, node, domain, partition, levels, generation
FROM
(
    SELECT cluster, node, domain, partition, levels, generation, valid_to, is_deleted
    FROM membership
    ORDER BY version DESC
    LIMIT 1 BY cluster, node, valid_from
)
WHERE is_deleted = 0 AND valid_to >= {open:DateTime64(3)}
ORDER BY cluster, node

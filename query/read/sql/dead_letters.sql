-- Records that could not be used, by topic and reason. Parameter: since.
SELECT topic, stage, reason, count() AS records, max(observed_at) AS newest
FROM dead_letters
WHERE loaded_at >= {since:DateTime64(3)}
GROUP BY topic, stage, reason
ORDER BY records DESC
LIMIT 20

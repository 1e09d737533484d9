-- THE RULE of what traffic says now, here and nowhere else: while a placement holds its GPUs, what counters said that came last
-- before measured_since is unknown. A fragment of other statements, a function in their WITH.
(holds, evidence, last_minute) -> if(holds AND last_minute < {measured_since:DateTime64(3)}, 'unknown', toString(evidence)) AS evidence_now

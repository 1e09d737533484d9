-- A source that does not tell what was asked of the topology is not one that says nothing was asked.
ALTER TABLE placement_events MODIFY COLUMN intent_mode Enum8('none' = 0, 'unconstrained' = 1, 'preferred' = 2, 'required' = 3, 'unknown' = 4);

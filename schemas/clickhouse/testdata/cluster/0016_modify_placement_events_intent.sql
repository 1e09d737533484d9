ALTER TABLE `spillway`.placement_events_local ON CLUSTER `fabric` MODIFY COLUMN intent_mode Enum8('none' = 0, 'unconstrained' = 1, 'preferred' = 2, 'required' = 3, 'unknown' = 4);

CREATE OR REPLACE TABLE `spillway`.placement_events ON CLUSTER `fabric` AS `spillway`.placement_events_local
ENGINE = Distributed('fabric', 'spillway', 'placement_events_local', kafka_partition);
